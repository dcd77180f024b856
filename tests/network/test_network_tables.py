"""Clients with tables over a network: they agree on one recipe before the first round, as in a simulation."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tomli_w

import fova
import hospitals
from fova.algorithms import configure
from fova.data.tables.columns import Columns
from fova.network import server
from fova.network.client import ClientConfig, tell_about_columns
from fova.network.messages import Refused
from fova.network.server_config import ServerConfig, create_run
from fova.progress import Quiet
from fova.run.config import Config, RunConfig
from network.in_process import InProcessGrid

NAMES = ("north", "south")
ALGORITHM = {"hidden": (8,), "batch_size": 8}
RUN = {"rounds": 1, "local_steps": 2, "action_low": (0.0,), "action_high": (2.0,)}
COLUMNS = dict(text.split("=") for text in hospitals.COLUMNS)
COLUMNS |= {"observations": "hr,lactate,ward", "missing": {"lactate": "mean"}}


class Heard(Quiet):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def make_nodes(folder, columns=None):
    """Two clients, each with a CSV file and the mapping; {node id: node configuration}."""
    nodes = {}
    for seed, name in enumerate(NAMES):
        frame = hospitals.hospital(seed).assign(ward="AB"[seed])
        frame.loc[[0, 5], "lactate"] = None
        frame.to_csv(folder / f"{name}.csv", index=False)
        mapping = (columns or {}).get(name, COLUMNS)
        (folder / f"{name}.toml").write_text(tomli_w.dumps({"columns": Columns.of(mapping).to_table()}))
        files = {"data": str(folder / f"{name}.csv"), "columns": str(folder / f"{name}.toml")}
        nodes[100 + seed] = {"name": name, "state": str(folder / "state" / name), **files}
    return nodes


def make_run(folder, **settings):
    config = Config(
        None, (), configure("fed-bc", **ALGORITHM), "fed-bc", RunConfig(**RUN | settings), Columns.of(COLUMNS)
    )
    return create_run(folder / "networked", config, ServerConfig(min_clients=2))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The simulated and the networked run, and the grid."""
    folder = tmp_path_factory.mktemp("tables")
    grid = InProcessGrid(make_nodes(folder))
    run = make_run(folder)
    server.train(grid, run, Quiet(), lambda seconds: None)
    files = {name: folder / f"{name}.csv" for name in NAMES}
    settings = ALGORITHM | RUN | {"algorithm": "fed-bc", "columns": COLUMNS}
    simulated = fova.train(clients=files, directory=folder / "simulated", progress=False, **settings)
    return simulated.directory, run.path, grid


def test_both_agree_on_the_same_recipe_and_statistics(trained):
    simulated, networked, _ = trained
    policies = [fova.load_policy(path) for path in (simulated, networked)]
    assert policies[0].inputs == policies[1].inputs
    assert policies[1].inputs.places() == ["hr", "lactate", "lactate missing", "ward=A", "ward=B", "ward=other"]
    one, other = (json.loads((path / "statistics.json").read_text()) for path in (simulated, networked))
    assert one == other
    record = {"hr": 80, "lactate": None, "ward": "C"}
    np.testing.assert_allclose(policies[0](record), policies[1](record), rtol=1e-3)


def test_a_client_tells_values_of_categories_and_sums_but_no_rows(trained):
    told = [
        dict(message.content.config_records["about"])
        for direction, _, message in trained[2].log
        if direction == "up" and "survey" in message.content.config_records["about"]
    ]
    assert len(told) == 2
    survey = json.loads(told[0]["survey"])["inputs"]
    assert survey["ward"] == {"kind": "category", "values": ["A"], "count": 0, "total": 0.0}
    known = hospitals.hospital(0).lactate.drop([0, 5])
    assert survey["lactate"]["count"] == len(known)
    assert survey["lactate"]["total"] == pytest.approx(known.sum(), rel=1e-6)
    assert survey["hr"] == {"kind": "number", "values": [], "count": 0, "total": 0.0}


def test_a_client_answers_only_for_the_mapping_that_it_was_started_with(tmp_path):
    nodes = make_nodes(tmp_path, {"south": COLUMNS | {"observations": "hr,lactate"}})
    run, heard = make_run(tmp_path), Heard()

    def give_up(seconds):
        raise TimeoutError

    with pytest.raises(TimeoutError):
        server.train(InProcessGrid(nodes), run, heard, give_up)
    assert any("they differ in observations" in note for note in heard.notes)


def test_actions_that_are_numbers_need_bounds_at_the_server(tmp_path):
    run = make_run(tmp_path, action_low=(), action_high=())
    with pytest.raises(fova.FovaError, match="The server sees no data: give it --action-low and --action-high"):
        server.train(InProcessGrid(make_nodes(tmp_path)), run, Quiet(), lambda seconds: None)


def test_under_privacy_the_server_needs_a_mapping_that_says_everything(tmp_path):
    private = {"privacy": "client", "privacy_clip": 1.0, "privacy_noise": 1.0, "aggregation": "uniform"}
    with pytest.raises(fova.FovaError, match="under privacy clients tell nothing"):
        make_run(tmp_path, **private, normalise=False, reward_unit=1.0)


def test_a_client_that_insists_on_privacy_tells_nothing_about_its_columns(tmp_path):
    config = ClientConfig.of(make_nodes(tmp_path)[100])
    assert tell_about_columns(config, "0" * 32, Columns.of(COLUMNS))
    wary = replace(config, insist_privacy="clip=1,noise=2,epsilon=8")
    with pytest.raises(Refused, match="insists on privacy"):
        tell_about_columns(wary, "0" * 32, Columns.of(COLUMNS))
