"""A client by itself, without a server: what it answers, refuses and keeps."""

import jax
import numpy as np
import pytest
import tomli_w
from flwr.app import ConfigRecord, RecordDict

from fova.algorithms import configure
from fova.data.normalise import Normaliser
from fova.data.tables.columns import Columns
from fova.errors import FovaError
from fova.federation.engine import State
from fova.federation.statistics import Statistics
from fova.network.client import Client, ClientConfig, tellable
from fova.network.intake import Refused
from fova.network.plan import Plan
from fova.run.checkpoint import checkpoints, save_checkpoint
from fova.run.config import RunConfig
from fova.spaces import Space
from tiny import make_transitions, save_npz

SUMS = {"aggregation": "uniform", "normalise": False, "reward_unit": 1.0}
TABLE = {"episode": "p", "time": "h", "observations": "a,b", "action": "d", "reward": "r", "terminal": "t"}


def plan(space=Space.unit(3, 2), secure=False, **run):  # noqa: B008  a constant
    settings = RunConfig(**{"rounds": 1, "local_steps": 2, "seed": 3} | run)
    algorithm = configure("fed-bc", hidden=(4,), batch_size=4)
    return Plan("0" * 32, "fed-bc", algorithm, settings, space, 3, secure=secure)


@pytest.fixture
def config(tmp_path):
    save_npz(tmp_path / "east.npz", make_transitions(0))
    return ClientConfig("east", str(tmp_path / "east.npz"), str(tmp_path / "state"))


def mapping_of(folder, table):
    (folder / "columns.toml").write_text(tomli_w.dumps({"columns": Columns.of(table).to_table()}))
    return ClientConfig("east", "east.csv", str(folder), columns=str(folder / "columns.toml"))


# --- Its table ---


@pytest.mark.parametrize(
    ("own", "asked", "differing"),
    [
        ({}, {"reward": "q"}, "reward"),
        ({"timeout": "cut"}, {}, "timeout"),
        ({}, {"timeout": "cut"}, "timeout"),
        ({"na": "-1", "time": "x"}, {}, "time, na"),
    ],
)
def test_a_mapping_that_differs_from_the_servers_is_named_role_by_role(tmp_path, own, asked, differing):
    client = mapping_of(tmp_path, TABLE | own)
    with pytest.raises(Refused, match=f"they differ in {differing}. Give both the same"):
        client.agreed_mapping(Columns.of(TABLE | asked))


def test_a_client_answers_for_its_own_mapping_only(tmp_path, config):
    assert mapping_of(tmp_path, TABLE).agreed_mapping(Columns.of(TABLE)) == Columns.of(TABLE)
    assert config.mapping() is None
    with pytest.raises(Refused, match="Start this client with the same"):
        config.agreed_mapping(Columns.of(TABLE))


# --- What it insists on ---


def test_a_client_that_insists_on_secure_aggregation_takes_part_in_nothing_else(config):
    wary = ClientConfig(config.name, config.data, config.state, insist_secure_aggregation=True)
    Client(wary, plan(secure=True, **SUMS))
    Client(config, plan())
    with pytest.raises(Refused, match="it insists on secure aggregation, and this run has none"):
        Client(wary, plan())


def test_data_of_another_width_is_refused(config):
    with pytest.raises(Refused, match=r"The data of client 'east' has .* but the server trains on"):
        _ = Client(config, plan(Space.unit(4, 2))).federation


def test_a_client_reports_on_a_policy_only_if_it_is_asked_to_judge_one(config):
    with pytest.raises(Refused, match="its plan judges no policy"):
        Client(config, plan()).figures(RecordDict({"about": ConfigRecord({})}))


# --- What it keeps ---


def test_prepared_data_is_kept_while_the_statistics_stay(config):
    client = Client(config, plan())
    frame = Normaliser(np.zeros(3, np.float32), np.full(3, 2.0, np.float32))
    first = client._data(Statistics(frame, 1.0))
    assert client._data(Statistics(frame, 1.0)) is first
    halved = client._data(Statistics(frame, 2.0))
    assert halved is not first
    rows = np.arange(5)
    own = make_transitions(0)
    np.testing.assert_allclose(first.batch(rows).rewards, own.rewards[:5], rtol=1e-6)
    np.testing.assert_allclose(halved.batch(rows).rewards, own.rewards[:5] / 2.0, rtol=1e-6)
    np.testing.assert_allclose(first.batch(rows).observations, own.observations[:5] / 2.0, rtol=1e-6)


def test_a_client_starts_from_the_plan_where_it_has_no_state_of_its_own(config):
    client = Client(config, plan())
    fresh, _ = client.plan.start()
    assert client._learner(0, fresh) is fresh


def test_a_client_goes_on_from_its_last_round_that_counted(config):
    client = Client(config, plan())
    fresh, _ = client.plan.start()
    for number in (1, 2):
        saved = jax.tree.map(lambda leaf, by=number: np.asarray(leaf)[None] + np.asarray(by, leaf.dtype), fresh)
        save_checkpoint(client.checkpoints, State(number, (), saved), client.plan.training_fingerprint())
    found = client._learner(1, fresh)
    for was, now in zip(jax.tree.leaves(fresh), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(now, np.asarray(was) + np.asarray(1, was.dtype))
    assert [path.stem for path in checkpoints(client.checkpoints)] == ["round-000001"], "round 2 did not count"


def test_the_owner_is_told_if_the_data_is_not_what_it_was(config, tmp_path):
    journal = tmp_path / "state" / "journal.jsonl"
    Client(config, plan())._notice_changed_data()
    Client(config, plan())._notice_changed_data()
    assert "changed since" not in (journal.read_text() if journal.exists() else "")
    save_npz(tmp_path / "east.npz", make_transitions(1))
    Client(config, plan())._notice_changed_data()
    assert "east.npz changed since the last round" in journal.read_text()


# --- What the server hears of an error ---


def test_only_our_own_words_about_an_error_leave_a_client():
    assert tellable(Refused("it insists")) == "it insists"
    assert tellable(FovaError("row 3 is [1.0, 2.0]")).startswith("its data or its saved state cannot be used")
    assert tellable(OSError(28, "No space left on device", "/home/me/secret.npz")) == "No space left on device"
    assert tellable(OSError()) == "OSError"
