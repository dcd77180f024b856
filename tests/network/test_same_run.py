"""A run over the network and the same run simulated leave the same files, and their reports say the same."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import fova
from fova.algorithms import configure
from fova.federation.client_specs import ClientSpec
from fova.network import server
from fova.network.server_config import ServerConfig, create_run
from fova.progress import Quiet
from fova.reports.page import write_report
from fova.run.config import Config, RunConfig
from fova.run.directory import RunDirectory
from network.in_process import InProcessGrid
from tiny import make_transitions, save_npz

NAMES = ("east", "north", "south")
ALGORITHM = {"hidden": (8,), "batch_size": 8}
RUN = {"rounds": 4, "local_steps": 3, "seed": 5, "checkpoint_seconds": 0.0}


@pytest.fixture(scope="module", params=["recommended", "good-episodes"])
def runs(tmp_path_factory, request):
    """Directories of the simulated and the networked run. With good episodes rows come by their weights."""
    preset = request.param
    folder = tmp_path_factory.mktemp("same")
    files = {name: folder / f"{name}.npz" for name in NAMES}
    for i, path in enumerate(files.values()):
        data = make_transitions(i, episodes=2 + i)
        save_npz(path, replace(data, rewards=data.rewards - 5.0))  # all below 0, so that they are counted anew
    specs = [ClientSpec(str(path), name=name) for name, path in files.items()]
    fova.train(clients=specs, directory=folder / "simulated", preset=preset, **ALGORITHM, **RUN)
    nodes = {
        100 + i: {"name": name, "data": str(path), "state": str(folder / "clients" / name)}
        for i, (name, path) in enumerate(files.items())
    }
    config = Config(None, (), configure("fova", preset, **ALGORITHM), "fova", RunConfig(**RUN))
    network = ServerConfig(min_clients=3, observation=3, action=2)
    run = create_run(folder / "networked", config, network)
    server.train(InProcessGrid(nodes), run, Quiet(), lambda seconds: None)
    return folder / "simulated", run.path


def files_of(directory):
    return {
        re.sub(r"events\.out\..*", "events", str(path.relative_to(directory)))
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_both_count_rewards_from_the_same_zero(runs):
    simulated, networked = (json.loads((run / "statistics.json").read_text()) for run in runs)
    assert simulated["reward_zero"] == networked["reward_zero"] < -5.0


def test_both_leave_the_same_files(runs):
    simulated, networked = map(files_of, runs)
    assert networked - simulated == {"server.json"}
    # Over a network every client keeps its own policy to itself.
    own = {f"clients/{name}.{ending}" for name in NAMES for ending in ("safetensors", "json")}
    assert simulated - networked == own


def test_both_log_the_same(runs):
    simulated, networked = (RunDirectory.open(path) for path in runs)
    assert [e["round"] for e in simulated.timing()] == [e["round"] for e in networked.timing()] == [1, 2, 3, 4]
    for one, other in zip(simulated.metrics(), networked.metrics(), strict=True):
        assert set(one) == set(other)
        assert one.get("bytes") == other.get("bytes")
        for client, metrics in one.get("clients", {}).items():
            assert set(metrics) == set(other["clients"][client])
            assert "server_weight" in metrics
            for name, value in metrics.items():
                np.testing.assert_allclose(
                    other["clients"][client][name], value, rtol=5e-3, atol=1e-4, err_msg=name
                )


def test_both_know_the_same_of_the_clients(runs):
    simulated, networked = (json.loads((path / "clients.json").read_text()) for path in runs)
    assert list(simulated) == list(networked) == list(NAMES)
    for name, known in networked.items():
        assert known == {key: simulated[name][key] for key in ("rows", "episodes", "behaviour_return")}
    statistics = [json.loads((path / "statistics.json").read_text()) for path in runs]
    assert statistics[0] == statistics[1]


class Words(HTMLParser):
    """The words that a person reads on a page."""

    def __init__(self):
        super().__init__()
        self.words, self._hidden = [], 0

    def handle_starttag(self, tag, attributes):
        self._hidden += tag in ("style", "script", "svg")

    def handle_endtag(self, tag):
        self._hidden -= tag in ("style", "script", "svg")

    def handle_data(self, data):
        if not self._hidden and data.strip():
            self.words.append(" ".join(data.split()))


def words_of(run, page):
    parser = Words()
    parser.feed(write_report([run], page, pictures={}).read_text())
    return parser.words


def test_both_reports_say_the_same(runs, tmp_path):
    simulated, networked = (words_of(run, tmp_path / f"{run.name}.html") for run in runs)
    assert any("across 3 clients (118 logged transitions in all)" in words for words in networked)

    def story(words):
        """All but the run's name and directory, how it is run again, and names of files, which a server lacks."""
        until = words[: words.index("Run it again")]
        lines = [re.sub(r"\(1 × .*npz; ", "(", line) for line in until if line not in ("simulated", "networked")]
        return [re.sub(r"fova judge \S+", "fova judge RUN", line) for line in lines]

    assert len(story(simulated)) > 30
    assert story(networked) == story(simulated)
