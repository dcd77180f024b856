import builtins
import hashlib
import json
import runpy
import shutil
import sys
import warnings

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Dict
from hand_made import assert_same, episode, episodes, write_minari
from minari.data_collector import EpisodeBuffer
from minari.serialization import serialize_space

from fova.data import minari_store
from fova.data.minari_store import looks_like_id, to_minari
from fova.data.sources import load
from fova.data.transitions import Episode, from_episodes
from fova.errors import FovaError
from fova.spaces import Box, Discrete


def digest(folder):
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]


# --- Reading -----------------------------------------------------------------------------------------------


def test_parts_of_an_observation_are_laid_end_to_end():
    space = Dict({name: spaces.Box(-np.inf, np.inf, (1,), np.float32) for name in ("goal", "position")})
    buffers = [
        EpisodeBuffer(
            observations={"goal": one.observations[:, :1], "position": one.observations[:, 1:]},
            actions=one.actions,
            rewards=one.rewards,
            terminations=[False] * (len(one) - 1) + [one.terminated],
            truncations=[False] * (len(one) - 1) + [not one.terminated],
        )
        for one in episodes()
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari asks for an author, a description and so on
        minari.create_dataset_from_buffers(
            "hand/parts-v0", buffers, observation_space=space, action_space=spaces.Box(-1, 1, (2,), np.float32)
        )
    source = load("hand/parts-v0")
    assert_same(source.transitions, from_episodes(episodes()))
    assert source.notes == ("Observations are these parts, laid end to end: goal, position.",)


def test_episodes_without_a_step_are_counted():
    folder = write_minari("hand/made-v0")
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as store:
        for name, values in store["episode_2"].items():
            values.resize(1 if name == "observations" else 0, axis=0)
    source = load(folder)
    first, second, _, fourth = episodes()
    assert_same(source.transitions, from_episodes([first, second, fourth]))
    assert source.notes == ("Left out: 1 episode without a single step.",)


@pytest.mark.parametrize("data_format", ["hdf5", "arrow", "parquet"])
def test_all_formats_of_minari_are_read_and_measured_before(data_format, monkeypatch):
    measured = []
    monkeypatch.setattr(
        minari_store, "refuse_too_large", lambda file, size, numbers: measured.append((size, numbers))
    )
    source = load(write_minari("hand/made-v0", data_format))
    assert_same(source.transitions, from_episodes(episodes()))
    # 7 steps and 4 final observations. A row of a table has 2 observations and 2 actions in single precision.
    # HDF5 has 11 x 2 observations, 7 x 2 actions, 7 rewards, all in single precision, and 7 x 2 flags of a byte.
    in_hdf5 = (4 * (22 + 14 + 7) + 14, 22 + 14 + 7 + 14)
    assert measured == [in_hdf5 if data_format == "hdf5" else (4 * 4 * 11, 4 * 11)]


def test_unbounded_actions_declare_nothing():
    source = load(write_minari("hand/free-v0", action_space=spaces.Box(-np.inf, np.inf, (2,), np.float32)))
    assert source.action_low is None


def test_a_task_that_ends_within_an_episode_is_cut_there():
    ends_early = {"terminations": np.array([True, False, False]), "truncations": np.array([False, False, True])}
    data = load(write_minari("hand/early-v0", changes=ends_early)).transitions
    assert data.terminals[:3].tolist() == [1, 0, 0]
    assert data.has_next_action[:3].tolist() == [0, 1, 0]
    assert data.next_observations[:3, 0].tolist() == [1, 2, 3]


def test_a_dataset_that_is_not_here_is_not_fetched_unless_asked_for(monkeypatch):
    fetched = []
    monkeypatch.setattr(minari, "download_dataset", lambda name: fetched.append(name) or write_minari(name))
    with pytest.raises(FovaError, match=r"nor a Minari dataset .*download=True"):
        load("hand/made-v0")
    assert fetched == []
    assert_same(load("hand/made-v0", download=True).transitions, from_episodes(episodes()))
    load("hand/made-v0", download=True)
    assert fetched == ["hand/made-v0"]


def test_a_failed_download_is_one_clear_error(monkeypatch):
    def no_network(_):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(minari, "download_dataset", no_network)
    with pytest.raises(FovaError, match=r"hand/made-v0: .*no route to host.*connection"):
        load("hand/made-v0", download=True)


def test_no_environment_is_built_from_metadata(monkeypatch):
    folder = write_minari("hand/made-v0")
    file = folder / "data" / "metadata.json"
    metadata = json.loads(file.read_text())
    del metadata["observation_space"]
    metadata["env_spec"] = gymnasium.spec("CartPole-v1").to_json()
    file.write_text(json.dumps(metadata))
    monkeypatch.setattr(gymnasium, "make", lambda *_, **__: pytest.fail("an environment was built"))
    with pytest.raises(FovaError, match="observation_space: is missing in metadata"):
        load(folder)


def test_without_minari_the_message_says_how_to_install_it(monkeypatch):
    folder = write_minari("hand/made-v0")
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.split(".")[0] == "minari":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FovaError, match=r"pip install 'fova\[minari\]'"):
        load(folder)


# --- Writing -----------------------------------------------------------------------------------------------


def test_minari_reads_what_was_written():
    to_minari(episodes(), "hand/made-v0", Box.of(2, -1.0, [1.0, 2.0]), {"seed": 7, "description": "by hand"})
    dataset = minari.load_dataset("hand/made-v0")
    assert dataset.total_episodes == 4
    assert dataset.total_steps == 7
    assert dataset.action_space.high.tolist() == [1, 2]
    assert dataset.storage.metadata["seed"] == 7
    for one, theirs in zip(episodes(), dataset, strict=True):
        np.testing.assert_array_equal(one.observations, theirs.observations)
        np.testing.assert_array_equal(one.actions, theirs.actions)
        np.testing.assert_array_equal(one.rewards, theirs.rewards)
        assert bool(theirs.terminations[-1]) == one.terminated
        assert bool(theirs.truncations[-1]) != one.terminated
    assert "hand/made-v0" in minari.list_local_datasets()


def test_what_was_written_comes_back_as_it_was():
    data = from_episodes(episodes())
    folder = to_minari(data, "hand/made-v0", Box.of(2, -1.0, 1.0))
    assert_same(load(folder).transitions, data)
    assert_same(load("hand/made-v0").transitions, data)


def with_codes(*codes):
    observations = np.arange(len(codes) + 1, dtype=np.float32)[:, None]
    return Episode(observations, np.float32(codes)[:, None], np.float32(codes), terminated=True)


def edit_metadata(folder, field, value):
    file = folder / "data" / "metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))


def test_discrete_actions_and_their_names_come_back():
    data = from_episodes([with_codes(0, 2, 1), with_codes(2, 2)])
    folder = to_minari(data, "hand/coded-v0", Discrete(("none", "low", "high")))
    dataset = minari.load_dataset("hand/coded-v0")
    assert dataset.action_space == spaces.Discrete(3)
    assert [list(one.actions) for one in dataset] == [[0, 2, 1], [2, 2]]
    read = load(folder)
    assert_same(read.transitions, data)
    assert read.action_names == ("none", "low", "high")
    assert (read.action_low, read.action_high) == (None, None)


def test_discrete_codes_of_minari_need_not_start_at_0():
    folder = to_minari([with_codes(0, 2, 1)], "hand/coded-v0", Discrete.numbered(3))
    edit_metadata(folder, "action_names", None)
    edit_metadata(folder, "action_space", serialize_space(spaces.Discrete(3, start=-1)))
    with h5py.File(folder / "data" / "main_data.hdf5", "r+") as store:
        store["episode_0/actions"][...] -= 1
    read = load(folder)
    assert read.action_names == ("-1", "0", "1")
    np.testing.assert_array_equal(read.transitions.actions, [[0], [2], [1]])


def test_names_that_are_not_as_many_as_the_actions_are_refused():
    folder = to_minari([with_codes(0, 2, 1)], "hand/coded-v0", Discrete.numbered(3))
    edit_metadata(folder, "action_names", ["a", "b"])
    with pytest.raises(FovaError, match=r"action_names: is \['a', 'b'\] .* must be a list of 3 names"):
        load(folder)


@pytest.mark.parametrize(
    "space", [spaces.MultiDiscrete([2, 3]), spaces.Tuple((spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,))))]
)
def test_several_discrete_actions_at_once_and_mixed_spaces_are_refused(space):
    folder = to_minari([with_codes(0, 1, 1)], "hand/coded-v0", Discrete.numbered(2))
    edit_metadata(folder, "action_space", serialize_space(space))
    with pytest.raises(FovaError, match=r"action_space: is .* one discrete action is needed"):
        load(folder)


def test_the_environment_can_be_recovered_from_what_was_written():
    to_minari(episodes(), "hand/made-v0", Box.of(2, -1.0, 1.0), env_spec=gymnasium.spec("Pendulum-v1"))
    assert minari.load_dataset("hand/made-v0").env_spec.id == "Pendulum-v1"


def test_the_same_data_gives_the_same_bytes():
    folder = to_minari(episodes(), "hand/made-v0", Box.of(2, -1.0, 1.0), {"seed": 1})
    first = digest(folder)
    shutil.rmtree(folder)
    assert digest(to_minari(episodes(), "hand/made-v0", Box.of(2, -1.0, 1.0), {"seed": 1})) == first


def test_nothing_is_ever_overwritten():
    folder = to_minari(episodes(), "hand/made-v0", Box.of(2, -1.0, 1.0))
    before = digest(folder)
    with pytest.raises(FovaError, match="already"):
        to_minari(episodes()[:1], "hand/made-v0", Box.of(2, -1.0, 1.0))
    assert digest(folder) == before


def test_a_write_that_fails_leaves_nothing(minari_datasets):
    def breaks_down():
        yield episode(0)
        raise RuntimeError("the simulator crashed")

    with pytest.raises(RuntimeError, match="the simulator crashed"):
        to_minari(breaks_down(), "hand/made-v0", Box.of(2, -1.0, 1.0))
    assert list(minari_datasets.iterdir()) == []


@pytest.mark.parametrize("name", ["made", "hand/made", "../made-v0", "hand made-v0", "", "h/made-v0"])
def test_an_id_that_minari_could_not_find_again_is_refused(name, minari_datasets):
    with pytest.raises(FovaError, match=r"is not a Minari id|Malformed"):
        to_minari(episodes(), name, Box.of(2, -1.0, 1.0))
    assert list(minari_datasets.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hopper/expert-v0", True),
        ("a/b/c_d-v12", True),
        ("made-v0", True),
        ("made-v", False),
        ("logs/a.npz", False),
    ],
)
def test_which_names_can_be_ids(name, expected):
    assert looks_like_id(name) is expected


def test_the_module_needs_no_minari_to_be_imported(monkeypatch):
    for name in ("minari", "gymnasium"):
        monkeypatch.setitem(sys.modules, name, None)
    runpy.run_path(minari_store.__file__)


def test_nothing_to_write_is_an_error(minari_datasets):
    with pytest.raises(FovaError, match="no episode"):
        to_minari([], "hand/made-v0", Box.of(2, -1.0, 1.0))
    assert list(minari_datasets.iterdir()) == []
