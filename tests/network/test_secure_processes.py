"""Secure aggregation over loopback: four nodes, TLS and keys; one node is killed after its masks are agreed on."""

import json

import numpy as np
import pytest
from in_process import InProcessGrid
from safetensors.numpy import load_file
from test_processes import NAMES, free_port, place  # noqa: F401  `place` is a fixture
from test_rounds import new_run, settings, train

from fova.network.certificates import make
from fova.network.secure_client import SECRETS
from fova.run.directory import RunDirectory
from tiny import make_transitions, save_npz

pytestmark = pytest.mark.slow

ROUNDS, LOCAL_STEPS = 4, 4
SUMS = {"aggregation": "uniform", "normalise": False, "reward_unit": 1.0}
FLAGS = (
    *("--algorithm", "fed-iql", "--hidden", 8, "--batch-size", 8, "--actor-lr", 1e-3, "--seed", 3),
    *("--rounds", ROUNDS, "--local-steps", LOCAL_STEPS, "--observation", 3, "--action", 2, "--min-clients", 3),
    *("--aggregation", "uniform", "--no-normalise", "--reward-unit", 1, "--secure-aggregation", "--deadline", 600),
)


def rounds_of(run):
    file = run.path / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def has_shared(folder, number):
    """Whether the client in this folder has given out its shares of a round: its masks are part of the sum."""
    for file in folder.rglob(SECRETS):
        try:
            secrets = json.loads(file.read_text())
        except ValueError:
            continue
        return secrets["round"] == number and secrets["own_shares"] is not None and not secrets["survivors"]
    return False


class Attended(InProcessGrid):
    """A grid on which only those clients are there in a round that took part in it."""

    def __init__(self, nodes, taking_part):
        super().__init__(nodes)
        self.taking_part = taking_part

    def get_node_ids(self):
        answered = [m.content["about"]["round"] for way, _, m in self.log if way == "up" and "metrics" in m.content]
        names = self.taking_part[min(max(answered, default=-1) + 1, ROUNDS - 1)]
        return [node for node, about in self.nodes.items() if about["name"] in names]


def plain_run(files, folder, taking_part):
    """The same run without masks, in this process."""
    folder.mkdir()
    nodes = {
        100 + i: {"name": name, "data": str(path), "state": str(folder / name)}
        for i, (name, path) in enumerate(files.items())
    }
    run = new_run(folder, settings(rounds=ROUNDS, local_steps=LOCAL_STEPS, **SUMS), min_clients=3)
    train(Attended(nodes, taking_part), run)
    assert [sorted(line["clients"]) for line in rounds_of(run) if line["round"]] == taking_part
    return run


def test_a_node_that_is_killed_after_masking_does_not_lose_the_round(place):  # noqa: F811
    files = {name: place.folder / f"{name}.npz" for name in NAMES}
    for i, path in enumerate(files.values()):
        save_npz(path, make_transitions(i, episodes=2 + i))
    make(place.folder / "certificates", ["127.0.0.1"], NAMES)
    port = free_port()
    run = RunDirectory(place.folder / "runs" / "wards")
    place.start("server", "server", "--host", "127.0.0.1", "--port", port, "--name", "wards", "--plain", *FLAGS)
    place.wait("server", lambda: "waiting for clients: 0 of 3" in place.said("server"))
    for name in NAMES:
        place.start(
            *(name, "client", "--server", f"127.0.0.1:{port}", "--data", files[name]),
            *("--certificates", f"certificates/{name}"),
        )
    # A late client may miss the first round; from then on all four take part.
    rounds = []
    west = place.folder / "fova-client" / "west"

    def shared():
        rounds.extend(number for number in range(1, ROUNDS) if has_shared(west, number))
        return rounds

    place.wait("shares of west", shared)
    place.kill("west")
    place.wait("result", lambda: (run.path / "result.json").exists())
    taking_part = [sorted(line["clients"]) for line in rounds_of(run) if line["round"]]
    killed = rounds[0]
    assert taking_part[killed:] == [[name for name in NAMES if name != "west"]] * (ROUNDS - killed)
    secure, plain = (load_file(r.policy) for r in (run, plain_run(files, place.folder / "plain", taking_part)))
    assert set(secure) == set(plain)
    for name in plain:
        np.testing.assert_allclose(secure[name], plain[name], atol=2e-6, rtol=1e-4)
