"""Whole runs with secure aggregation through Flower's apps and messages, in one process."""

import json
import stat

import numpy as np
import pytest
from in_process import InProcessGrid
from test_rounds import Notes, assert_close, new_run, settings, train

from fova.algorithms import configure
from fova.algorithms.base import Submission
from fova.errors import FovaError
from fova.network.masking import FixedPoint
from fova.network.secure_client import SECRETS
from fova.network.secure_payload import PRECISION, Payload
from fova.network.secure_rules import AGGREGATIONS, insist_on_sums
from fova.run.config import RunConfig
from tiny import make_transitions, save_npz

NAMES = ("east", "north", "south", "west")
SUMS = {"aggregation": "uniform", "normalise": False, "reward_unit": 1.0}


@pytest.fixture
def nodes(tmp_path):
    for i, name in enumerate(NAMES):
        save_npz(tmp_path / f"{name}.npz", make_transitions(i, episodes=2 + i))
    return {
        100 + i: {"name": name, "data": str(tmp_path / f"{name}.npz"), "state": str(tmp_path / "clients" / name)}
        for i, name in enumerate(NAMES)
    }


def trained(nodes, folder, secure, silent_in=None, notes=None, **run):
    """The last state of a run, its directory and its grid. North's update of round `silent_in` does not arrive."""
    folder.mkdir()
    grid = InProcessGrid(nodes)
    asked = []

    def drop(reply):
        if "masked" not in reply.content and "parameters" not in reply.content:
            return reply
        asked.append(reply)
        return [] if len(asked) == silent_in else reply

    grid.tamper[101] = drop
    nodes = {node: about | {"state": str(folder / about["name"])} for node, about in nodes.items()}
    grid.nodes = nodes
    directory = new_run(folder, settings(**SUMS | run), min_clients=3, secure_aggregation=secure)
    return train(grid, directory, notes), directory, grid


def rounds_of(directory):
    return [json.loads(line) for line in (directory.path / "metrics.jsonl").read_text().splitlines()]


# --- The numbers of one submission ---


def submission(value, rows):
    return Submission({"w": np.array([value, -value], np.float32)}, 0.0, {"rows": rows, "loss": 2 * value})


def test_the_mean_of_packed_submissions_by_hand():
    broadcast = {"w": np.array([1.0, 1.0], np.float32)}
    for aggregation, expected, loss, weight in (
        # updates (1, -3), (3, -5), (7, -9); sizes 1, 2, 5
        ("uniform", (1 + 11 / 3, 1 - 17 / 3), 2 * (2 + 4 + 8) / 3, 3.0),
        ("size", (1 + 42 / 8, 1 - 58 / 8), 2 * (2 + 8 + 40) / 8, 8.0),
    ):
        payload = Payload(submission(0.0, 0.0), aggregation)
        assert payload.length == 2 + 2 + 1
        sent = [submission(2.0, 1.0), submission(4.0, 2.0), submission(8.0, 5.0)]
        total = np.sum([payload.encode(one, broadcast, 3) for one in sent], axis=0, dtype=np.uint64)
        mean = payload.mean(total, broadcast, 3)
        np.testing.assert_allclose(mean.parameters["w"], expected, rtol=1e-6)
        assert mean.parameters["w"].dtype == np.float32
        assert mean.metrics["loss"] == pytest.approx(loss, abs=1e-6)
        assert mean.weight == weight


def test_the_error_of_a_mean_is_what_the_page_says():
    assert Payload(submission(0.0, 0.0), "uniform").error(4, 4.0) == 2.0**-37
    assert Payload(submission(0.0, 0.0), "size").error(4, 4000.0) == 2.0**-21 / 1000
    assert tuple(PRECISION) == AGGREGATIONS


def test_a_sum_that_honest_clients_cannot_have_is_refused():
    payload, broadcast = Payload(submission(0.0, 0.0), "uniform"), {"w": np.zeros(2, np.float32)}
    total = 3 * payload.encode(submission(1.0, 1.0), broadcast, 3)
    payload.mean(total, broadcast, 3)
    total[-1] += np.uint64(1)
    with pytest.raises(FovaError, match="sent rubbish under its masks"):
        payload.mean(total, broadcast, 3)


def test_a_huge_metric_does_not_stop_a_round():
    payload = Payload(submission(0.0, 0.0), "uniform")
    sent = Submission({"w": np.zeros(2, np.float32)}, 0.0, {"rows": 1.0, "loss": 1e30})
    assert FixedPoint(36).decode(payload.encode(sent, {"w": np.zeros(2)}, 4))[2] == 1e6


# --- Whole runs ---


@pytest.mark.parametrize("aggregation", ["uniform", "size"])
def test_a_run_ends_with_the_parameters_of_the_plain_run(nodes, tmp_path, aggregation):
    plain, _, _ = trained(nodes, tmp_path / "plain", False, aggregation=aggregation)
    secure, directory, _ = trained(nodes, tmp_path / "secure", True, aggregation=aggregation)
    assert_close(plain.broadcast, secure.broadcast, atol=2e-6)
    last = rounds_of(directory)[-1]
    assert last["clients"] == {name: {} for name in NAMES}
    assert {"rows", "policy_distance"} <= set(last["clients_mean"])
    assert last["bytes_per_client"]["up"] == 8 * Payload(*sized(directory)).length


def sized(directory):
    from fova.network.server_config import make_plan, read_server
    from fova.run.config import load_config

    run_id, network = read_server(directory)
    plan = make_plan(load_config(directory.path / "config.toml"), network, run_id)
    return plan.submission_like(), plan.run.aggregation


def test_a_client_that_drops_out_after_masking_does_not_lose_the_round(nodes, tmp_path):
    plain, _, _ = trained(nodes, tmp_path / "plain", False, silent_in=2)
    notes = Notes()
    secure, directory, grid = trained(nodes, tmp_path / "secure", True, silent_in=2, notes=notes)
    assert_close(plain.broadcast, secure.broadcast, atol=2e-6)
    assert [sorted(line["clients"]) for line in rounds_of(directory)[1:]] == [
        list(NAMES),
        ["east", "south", "west"],
        ["east", "south", "west"],  # north sits out the round after
    ]
    assert "tried again" not in notes
    assert sum("masked" in message.content for way, _, message in grid.log if way == "up") == 4 + 3 + 3


def test_what_the_server_receives_is_noise(nodes, tmp_path):
    _, _, grid = trained(nodes, tmp_path / "secure", True, rounds=1)
    received = [m.content for way, _, m in grid.log if way == "up"]
    assert all("parameters" not in content and "metrics" not in content for content in received)
    masked = [c.array_records["masked"]["numbers"].numpy() for c in received if "masked" in c.array_records]
    assert len(masked) == 4
    for vector in (*masked, masked[0] + masked[1], masked[0] + masked[1] + masked[2]):
        bits = np.unpackbits(vector.view(np.uint8)).mean()
        assert abs(bits - 0.5) < 6 * 0.5 / np.sqrt(64 * len(vector))
        assert np.abs(vector.view(np.int64)).min() > 2**36  # not one number is as small as an update in fixed point


def test_secrets_are_for_the_client_alone(nodes, tmp_path):
    _, _, grid = trained(nodes, tmp_path / "secure", True, rounds=1)
    (file,) = (tmp_path / "secure" / "east").rglob(SECRETS)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secrets = json.loads(file.read_text())
    for name in ("mask_key", "seal_key", "own_seed"):
        secret = bytes.fromhex(secrets[name].removeprefix("bytes:"))
        assert not any(secret in content for content in grid.bytes)


def test_privacy_at_the_client_goes_together_with_it(nodes, tmp_path):
    private = {"privacy": "client", "privacy_clip": 0.1, "privacy_noise": 4.0}
    state, directory, _ = trained(nodes, tmp_path / "secure", True, rounds=2, **private)
    assert state.round == 2
    last = rounds_of(directory)[-1]
    assert last["clients"] == {}
    assert "clients_mean" not in last
    assert last["privacy"]["epsilon"] > 0


def test_a_client_that_sends_something_else_is_left_out(nodes, tmp_path):
    def plainly(reply):
        if "masked" in reply.content:
            del reply.content["masked"]
        return reply

    folder = tmp_path / "run"
    folder.mkdir()
    grid = InProcessGrid(nodes)
    grid.tamper[102] = plainly
    directory = new_run(folder, settings(rounds=1, **SUMS), min_clients=3, secure_aggregation=True)
    train(grid, directory)
    last = rounds_of(directory)[-1]
    assert sorted(last["clients"]) == ["east", "north", "west"]
    assert "does not hold about and masked" in last["rejected_because"]["south"]


def test_a_client_may_insist_on_it(nodes, tmp_path):
    insisting = {
        node: about | {"insist_secure_aggregation": about["name"] == "east"} for node, about in nodes.items()
    }
    notes = Notes()
    _, directory, _ = trained(insisting, tmp_path / "plain", False, notes=notes, rounds=1)
    assert sorted(rounds_of(directory)[-1]["clients"]) == ["north", "south", "west"]
    assert "it insists on secure aggregation, and this run has none" in notes
    _, directory, _ = trained(insisting, tmp_path / "secure", True, rounds=1)
    assert sorted(rounds_of(directory)[-1]["clients"]) == list(NAMES)


def test_too_few_answers_are_an_attempt_and_no_end(nodes, tmp_path):
    """Two clients fall silent in the first attempt: the sum cannot be unmasked, and the round is tried again."""
    folder = tmp_path / "run"
    folder.mkdir()
    grid, notes, dropped = InProcessGrid(nodes), Notes(), []

    def once(reply):
        if "masked" in reply.content and len(dropped) < 2:
            dropped.append(reply)
            return []
        return reply

    grid.tamper = {102: once, 103: once}
    directory = new_run(folder, settings(rounds=1, **SUMS), min_clients=3, secure_aggregation=True)
    state = train(grid, directory, notes)
    assert state.round == 1
    assert "round 1 is tried again: 2 clients sent an update, but 3 are needed" in notes


def test_a_round_is_not_unmasked_for_other_clients(nodes, tmp_path):
    """A server that forgets a round and repeats it without one client would learn the difference."""
    _, directory, grid = trained(nodes, tmp_path / "secure", True, rounds=1)
    for file in (directory.path / "checkpoints").glob("*"):
        file.unlink()
    (directory.path / "result.json").unlink(missing_ok=True)
    grid.nodes = {node: about for node, about in grid.nodes.items() if about["name"] != "west"}
    notes = Notes()
    train(grid, directory, notes)
    assert (
        "east counts, but does not help to unmask the sum: refused: round 1 was unmasked for east, north," in notes
    )
    assert "round 1 is skipped: 0 clients helped to unmask the sum, but 3 are needed" in notes
    assert rounds_of(directory)[-1]["clients"] == {}


# --- What cannot be combined with it ---


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"aggregation": "median"},
            "with secure aggregation the server sees only a sum",
        ),
        ({"aggregation": "krum"}, "Krum"),
        ({"aggregation": "trimmed-mean"}, "--aggregation uniform"),
        ({"aggregation": "value"}, "weights by values"),
        ({"aggregation": "returns"}, "returns need single ones"),
        ({"aggregation": "algorithm"}, "aggregation is algorithm"),
        ({"largest_share": 0.3}, "can limit nobody's share"),
        ({"privacy": "server", "privacy_clip": 1.0, "privacy_noise": 1.0}, "privacy is server, which clips single"),
        ({"compress": "int8"}, "cannot be compressed"),
        ({"normalise": True}, "--no-normalise"),
    ],
)
def test_what_needs_single_updates_is_refused_in_words(tmp_path, changes, words):
    with pytest.raises(FovaError, match=words):
        new_run(tmp_path, settings(**SUMS | changes), secure_aggregation=True)


def test_a_unit_of_reward_that_clients_would_have_to_tell_is_refused(tmp_path):
    config = settings("fova", aggregation="uniform", normalise=False)
    with pytest.raises(FovaError, match="--reward-unit 1"):
        new_run(tmp_path, config, secure_aggregation=True)


def test_two_clients_are_too_few(tmp_path):
    with pytest.raises(FovaError, match="min_clients is 2, but secure aggregation needs 3"):
        new_run(tmp_path, settings(**SUMS), min_clients=2, secure_aggregation=True)


def test_an_algorithm_that_needs_single_submissions_is_refused():
    class Picky:
        mergeable = False

    with pytest.raises(FovaError, match="Picky combines the submissions of single clients"):
        insist_on_sums(RunConfig(**SUMS), Picky(), 3)
    insist_on_sums(RunConfig(**SUMS), configure("fed-iql"), 3)
