"""Codes of discrete actions are never taken for quantities, nor the other way round, without a word."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from fova.data.action_kind import LoggedActions, discrete_actions
from fova.data.npz import save_npz
from fova.data.sources import load
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.spaces import Box, Discrete
from tiny import make_transitions, npz_arrays


def column(*values, **declared):
    return LoggedActions(np.array(values, np.float32)[:, None], **declared)


# --- The rule ---


def test_a_column_of_integers_holds_codes_and_the_largest_of_all_clients_counts():
    east, west = column(0, 1, 0, integers=True), column(0, 4, 2, integers=True)
    assert discrete_actions({"east": east, "west": west}) == Discrete.numbered(5)


def test_decimal_numbers_are_quantities():
    assert discrete_actions({"east": column(0.5, 1, 2)}) is None
    assert discrete_actions({"east": column(*range(51))}) is None  # too many to be codes
    assert discrete_actions({"east": column(1, 1, 1)}) is None
    assert discrete_actions({"east": column(0, 1, quantities=True)}) is None
    assert discrete_actions({"east": LoggedActions(np.ones((3, 2)))}) is None


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"east": column(0, 1, 2)}, "actions of east are whole numbers, 3 different ones"),
        ({"east": column(*range(50))}, "whole numbers, 50 different ones"),
        ({"east": column(-1, 1)}, "whole numbers, 2 different ones"),
        ({"east": column(0, 24, integers=True, bounded=True)}, "integers, and bounds are declared"),
        (
            {"east": column(0, 1, integers=True), "west": column(0.5, 1)},
            "east are integers, but those of west are not",
        ),
        ({"east": column(0, 2_000_000_000, integers=True)}, "integers up to 2,000,000,000, .* at most 10,000"),
        ({"east": LoggedActions(np.ones((3, 2)), integers=True)}, "2 columns of integers"),
        ({"east": LoggedActions(np.ones((3, 2)), integers=True, bounded=True)}, "2 columns of integers"),
    ],
)
def test_what_is_not_clear_is_asked_with_both_answers(sources, words):
    with pytest.raises(FovaError, match=words) as error:
        discrete_actions(sources)
    for answer in ("--actions continuous", "--action-low", "combinations" if "columns" in words else "discrete"):
        assert answer in str(error.value)


def test_the_user_decides():
    whole = {"east": column(0, 1, 3)}
    assert discrete_actions(whole, "continuous") is None
    assert discrete_actions(whole, "discrete") == Discrete.numbered(4)
    assert discrete_actions(whole, names=("a", "b", "c", "d", "e")).names == ("a", "b", "c", "d", "e")
    assert discrete_actions({"east": column(0, 24, integers=True, bounded=True)}, "continuous") is None
    with pytest.raises(FovaError, match="bounds are given, but actions are discrete"):
        discrete_actions(whole, "discrete", bounded=True)
    with pytest.raises(FovaError, match="action_names are given, but actions are said to be continuous"):
        discrete_actions(whole, "continuous", ("a", "b"))


def test_names_are_the_same_everywhere():
    named, other = (
        column(0, 1, integers=True, names=("off", "on")),
        column(0, 1, integers=True, names=("on", "off")),
    )
    plain = column(0, 1, integers=True)
    assert discrete_actions({"east": named, "west": plain}).names == ("off", "on")
    with pytest.raises(FovaError, match="west has the actions on, off, but east has off, on"):
        discrete_actions({"east": named, "west": other})
    with pytest.raises(FovaError, match="east has the actions off, on, but action_names has a, b"):
        discrete_actions({"east": named}, names=("a", "b"))


def test_twelve_names_are_listed_and_the_rest_counted():
    def said(count):
        named = column(0, 1, integers=True, names=tuple(f"a{i}" for i in range(count)))
        with pytest.raises(FovaError) as error:
            discrete_actions({"east": named}, names=("off", "on"))
        return str(error.value)

    assert "east has the actions a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, but action_names" in said(12)
    assert "a10, a11 and 2 more, but action_names has off, on." in said(14)


@pytest.mark.parametrize("wrong", [-1, 0.5])
def test_codes_count_from_0(wrong):
    with pytest.raises(FovaError, match=f"row 1 holds {wrong}. Number the actions 0, 1, 2"):
        discrete_actions({"east": column(0, wrong, 3)}, "discrete")
    with pytest.raises(FovaError, match="nothing to choose"):
        discrete_actions({"east": column(0, 0, integers=True)})


# --- Files ---


@pytest.fixture
def coded() -> Transitions:
    """Made-up data whose actions are the codes 0, 1, 2, 0, 1, 2, ..."""
    arrays = vars(make_transitions(0)).copy()
    codes = np.arange(len(arrays["rewards"]), dtype=np.float32)[:, None] % 3
    arrays |= {"actions": codes, "next_actions": np.roll(codes, -1) * arrays["has_next_action"][:, None]}
    return Transitions(**arrays)


def saved(path, data, **changes):
    np.savez(path, **(npz_arrays(data) | changes))
    return path


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_integer_codes_of_an_npz_file(tmp_path, coded, shape, kind):
    file = saved(tmp_path / "a.npz", coded, actions=coded.actions.astype(kind).reshape(shape))
    read = load(file)
    assert read.integer_actions
    np.testing.assert_array_equal(read.transitions.actions, coded.actions)
    assert Federation.build([ClientSpec(str(file))]).space.action == Discrete.numbered(3)


def test_names_in_an_npz_file_come_back(tmp_path, coded):
    save_npz(coded, tmp_path / "a.npz", action_names=("none", "low", "high"))
    assert load(tmp_path / "a.npz").action_names == ("none", "low", "high")
    federation = Federation.build([ClientSpec(str(tmp_path / "a.npz"))])
    assert federation.space.action.names == ("none", "low", "high")
    with pytest.raises(FovaError, match="action_names: holds int64"):
        load(saved(tmp_path / "b.npz", coded, action_names=np.arange(3)))


def test_a_boolean_is_a_choice_of_two(tmp_path, coded):
    file = saved(tmp_path / "a.npz", coded, actions=coded.actions[:, 0] > 0)
    assert Federation.build([ClientSpec(str(file))]).space.action == Discrete.numbered(2)


def test_codes_and_names_of_a_parquet_file(tmp_path, coded):
    columns = {f"observation_{i}": coded.observations[:, i] for i in range(3)}
    columns |= {"action": coded.actions[:, 0].astype(np.int32), "reward": coded.rewards}
    columns |= {"terminal": coded.terminals > 0, "truncated": coded.episode_ends & (coded.terminals == 0)}
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert Federation.build([ClientSpec(str(tmp_path / "a.parquet"))]).space.action == Discrete.numbered(3)
    named = table.replace_schema_metadata({"action_names": json.dumps(["none", "low", "high"])})
    pyarrow.parquet.write_table(named, tmp_path / "b.parquet")
    assert load(tmp_path / "b.parquet").action_names == ("none", "low", "high")


def test_codes_with_bounds_are_never_trained_as_one_number(tmp_path, coded):
    """Integers with bounds in the file, with bounds of the run, and codes stored as decimal numbers."""
    integers = coded.actions.astype(np.int64)
    bounded = ClientSpec(
        str(saved(tmp_path / "a.npz", coded, actions=integers, action_low=[0.0], action_high=[2.0]))
    )
    plain = ClientSpec(str(saved(tmp_path / "b.npz", coded, actions=integers)))
    decimal = ClientSpec(str(saved(tmp_path / "c.npz", coded)))
    for spec, bounds in ((bounded, None), (plain, (0.0, 2.0)), (decimal, (0.0, 2.0)), (decimal, None)):
        with pytest.raises(FovaError, match=r"--actions discrete.*--actions continuous"):
            Federation.build([spec], bounds=bounds)
        said = Federation.build([spec], bounds=(0.0, 2.0), actions="continuous")
        assert said.space.action == Box.of(1, 0.0, 2.0)
        discrete = Federation.build([spec], actions="discrete", action_names=("none", "low", "high"))
        assert discrete.space.action.names == ("none", "low", "high")


def test_arrays_in_memory_have_the_same_rule(coded):
    with pytest.raises(FovaError, match=r"--actions discrete.*--actions continuous"):
        Federation.of({"east": coded}, bounds=(0.0, 2.0))
    integers = Transitions(**(vars(coded) | {"actions": coded.actions.astype(np.int64)}))
    assert Federation.of({"east": integers}).space.action == Discrete.numbered(3)
    assert Federation.of({"east": coded}, actions="discrete").space.action == Discrete.numbered(3)


# --- Commands ---


def test_the_commands_ask_and_take_the_answer(fova_command, tmp_path, coded):
    file = saved(tmp_path / "ward.npz", coded)
    train = ("train", "--clients", file, "--rounds", 1, "--local-steps", 2, "--hidden", 8, "--batch-size", 8)
    for command in (("data", "validate", file), train):
        code, _, err = fova_command(*command)
        assert code == 2
        assert "--actions discrete" in err
        assert "--actions continuous" in err
    assert fova_command("data", "validate", file, "--actions", "discrete")[0] == 0
    names = ("--action-names", "none", "low", "high")
    code, _, err = fova_command(*train, "--actions", "discrete", *names, "--name", "run")
    assert (code, err) == (0, "")
    config = (tmp_path / "runs" / "run" / "config.toml").read_text()
    assert 'actions = "discrete"' in config
    policy = json.loads((tmp_path / "runs" / "run" / "policy.json").read_text())
    assert policy["space"]["action"] == {"kind": "discrete", "names": ["none", "low", "high"]}
