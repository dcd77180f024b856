"""A whole federation through Flower's apps and messages, in one process."""

import errno
import io
import json
import pickle
import re
from dataclasses import replace

import httpx
import jax
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from in_process import InProcessGrid

from fova.algorithms import configure
from fova.data.sources import load
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.federation.privacy import secret_key
from fova.federation.statistics import client_statistics
from fova.machine.interrupts import Interrupted
from fova.network import client as flower_client
from fova.network import server as flower_server
from fova.network.engine import FlowerEngine
from fova.network.messages import NUMBERS, WEIGHT
from fova.network.plan import Plan
from fova.network.server_config import ServerConfig, create_run
from fova.policy import load_policy
from fova.progress import Quiet
from fova.run import loop
from fova.run.checkpoint import checkpoints
from fova.run.config import Config, RunConfig
from fova.run.simulated import SimulatedEngine
from fova.spaces import Space
from tiny import make_transitions, save_npz

NAMES = ("east", "north", "south")


class Notes(Quiet):
    def __init__(self):
        self.said = []

    def status(self, message):
        self.said.append(message)

    note = status

    def __contains__(self, words):
        return any(words in note for note in self.said)


@pytest.fixture
def ward_files(tmp_path):
    files = {}
    for i, name in enumerate(NAMES):
        files[name] = tmp_path / f"{name}.npz"
        save_npz(files[name], make_transitions(i, episodes=2 + i))
    return files


@pytest.fixture
def grid(ward_files, tmp_path):
    nodes = {
        100 + i: {"name": name, "data": str(path), "state": str(tmp_path / "clients" / name)}
        for i, (name, path) in enumerate(ward_files.items())
    }
    return InProcessGrid(nodes)


def settings(algorithm="fed-iql", rounds=3, **run):
    fields = {"rounds": rounds, "local_steps": 4, "seed": 3, **run}
    return Config(
        None, (), configure(algorithm, hidden=(8,), batch_size=8, actor_lr=1e-3), algorithm, RunConfig(**fields)
    )


def new_run(tmp_path, config=None, **network):
    network = ServerConfig(**{"min_clients": 3, "observation": 3, "action": 2, **network})
    return create_run(tmp_path / "run", config or settings(), network)


def train(grid, run, notes=None, pause=None):
    return flower_server.train(grid, run, notes or Notes(), pause or (lambda seconds: None)).state


def simulated(files, config, folder=None):
    """The same training in the simulation; the clients' data is what a client reads from its file."""
    federation = Federation.build([ClientSpec(str(path), name=name) for name, path in files.items()])
    engine = SimulatedEngine(config, federation)
    engine.prepare(None)
    state = engine.start()
    for _ in range(config.run.rounds):
        state, report = engine.round(state)
    return state, report


def assert_close(one, other, atol=2e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol, rtol=1e-4), one, other)


def edited(reply, record, name, change):
    """The reply with one array changed."""
    arrays = {key: array.numpy() for key, array in reply.content[record].items()}
    arrays[name] = change(arrays[name])
    reply.content[record] = ArrayRecord({key: Array(array) for key, array in arrays.items()})
    return reply


def in_rounds(change):
    """Leave hellos alone; change answers to rounds."""
    return lambda reply: change(reply) if "parameters" in reply.content else reply


# --- Parity -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "aggregation"), [("fova", "algorithm"), ("fedora", "algorithm"), ("fed-iql", "median")]
)
def test_the_same_seed_gives_the_same_parameters_as_the_simulation(
    grid, ward_files, tmp_path, algorithm, aggregation
):
    config = settings(algorithm, aggregation=aggregation)
    run = new_run(tmp_path, config)
    state = train(grid, run)
    expected, report = simulated(ward_files, config)
    assert state.round == config.run.rounds == expected.round
    assert_close(state.broadcast, expected.broadcast)
    last = run.metrics()[-1]["clients"]
    assert list(last) == sorted(NAMES)
    for client, metrics in report.clients.items():
        assert set(last[client]) == set(metrics)
        for name, value in metrics.items():
            np.testing.assert_allclose(last[client][name], value, rtol=2e-3, atol=1e-4, err_msg=name)


def test_the_run_directory_is_that_of_any_run(grid, tmp_path):
    run = new_run(tmp_path)
    train(grid, run)
    assert run.is_complete()
    assert [entry["round"] for entry in run.metrics()] == [0, 1, 2, 3]
    policy = load_policy(run.path)
    assert policy(np.zeros(3)).shape == (2,)
    assert policy.facts["rounds"] == 3
    assert all(set(entry["clients"]) == set(NAMES) for entry in run.metrics()[1:])


# --- What leaves a client ---------------------------------------------------------------------------------


@pytest.mark.parametrize("normalise", [True, False])
def test_nothing_but_parameters_weight_metrics_and_sums_leaves_a_client(grid, ward_files, tmp_path, normalise):
    config = settings(normalise=normalise)
    train(grid, new_run(tmp_path, config))
    up = [message.content for direction, _, message in grid.log if direction == "up"]
    assert len(up) == 3 * (1 + config.run.rounds)
    parameter_shapes = {
        name: array.shape
        for content in up
        if "parameters" in content
        for name, array in content.array_records["parameters"].items()
    }
    assert all(name.startswith(("actor/", "critic/", "extra/")) for name in parameter_shapes)
    for content in up:
        if "parameters" in content:
            assert set(content) == {"about", "parameters", "metrics"}
            assert set(content["about"]) == {"version", "run", "client", "round", "fingerprint"}
            assert all(isinstance(value, float) for value in content["metrics"].values()), "no lists of values"
            assert {WEIGHT, "rows", "value"} < set(content["metrics"])
        else:
            assert set(content) == {"about", "statistics"}
            assert set(content["about"]) == {"version", "run", "client"}
            shapes = {name: tuple(array.shape) for name, array in content["statistics"].items()}
            columns = {"total": (3,), "squares": (3,)} if normalise else {}
            assert shapes == dict.fromkeys(NUMBERS, ()) | columns


def test_no_row_of_data_is_in_any_byte_that_leaves_a_client(grid, ward_files, tmp_path):
    train(grid, new_run(tmp_path))
    everything = b"".join(grid.bytes)
    for path in ward_files.values():
        data = load(path).transitions
        for values in (data.observations, data.actions, data.next_observations, data.rewards[:, None]):
            for row in values:
                for kind in (np.float32, np.float64):
                    assert row.astype(kind).tobytes() not in everything
    total = load(ward_files["east"]).transitions.observations.astype(np.float64).sum(axis=0)
    assert total.tobytes() in everything, "the search finds what is there"


# --- Envelopes ---


@pytest.mark.slow
def test_smaller_submissions_are_smaller_and_nearly_the_same(grid, ward_files, tmp_path):
    config = settings(rounds=1)
    expected, _ = simulated(ward_files, config)
    run = new_run(tmp_path, settings(rounds=1, compress="int8"))
    state = train(grid, run)
    plain = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(state.broadcast))
    assert run.metrics()[1]["bytes_per_client"]["up"] < 0.5 * plain
    assert_close(state.broadcast, expected.broadcast, atol=2e-3)


def test_private_clients_send_no_metric_and_no_weight(grid, tmp_path):
    private = {"privacy": "client", "privacy_clip": 0.1, "privacy_noise": 1.0, "aggregation": "uniform"}
    run = new_run(tmp_path, settings(rounds=1, normalise=False, **private))
    train(grid, run)
    sent = [m.content for direction, _, m in grid.log if direction == "up" and "parameters" in m.content]
    assert [dict(content["metrics"]) for content in sent] == [{WEIGHT: 0.0}] * 3
    one, other = (
        np.concatenate([array.numpy().ravel() for array in content.array_records["parameters"].values()])
        for content in sent[:2]
    )
    # Two updates of length 0.1 at most lie within 0.2; independent noise has a length of about 0.08 sqrt(numbers).
    assert len(one) > 100
    assert np.linalg.norm(one - other) > 0.4, "noise is drawn by each client for itself"


# --- Bad submissions --------------------------------------------------------------------------------------


def with_about(**changes):
    def change(reply):
        reply.content["about"] = ConfigRecord({**reply.content["about"], **changes})
        return reply

    return in_rounds(change)


def with_array(name, change):
    return in_rounds(lambda reply: edited(reply, "parameters", name, change))


def with_stranger(reply):
    reply.content["diary"] = ConfigRecord({"row": "secret"})
    return reply


def with_more_metrics(reply):
    reply.content["metrics"]["first_reward"] = 0.25
    return reply


def with_bytes(content):
    """An array whose bytes are these, whatever they are."""

    def change(reply):
        reply.content["parameters"][LAST] = Array("float32", (2,), "numpy.ndarray", content)
        return reply

    return in_rounds(change)


def archive():
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(2, np.float32))
    return stream.getvalue()


def header(shape, kind="'<f4'"):
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def with_metric(value):
    def change(reply):
        reply.content["metrics"] = MetricRecord({**reply.content["metrics"], "value": value})
        return reply

    return in_rounds(change)


def with_metrics(metrics):
    def change(reply):
        reply.content["metrics"] = MetricRecord(metrics)
        return reply

    return in_rounds(change)


def swapped(reply):
    reply.content["parameters"], reply.content["metrics"] = reply.content["metrics"], reply.content["parameters"]
    return reply


def with_many_records(reply):
    for i in range(1000):
        reply.content[f"record {i}"] = ConfigRecord({})
    return reply


def unreadable(reply):
    """Flower itself cannot put this message together."""

    class Broken(ArrayRecord):
        def deflate(self):
            return super().deflate().replace(b"keys", b"kexs")

    reply.content["parameters"] = Broken({LAST: Array(np.zeros(2, np.float32))})
    return reply


LAST = "actor/net/last/bias"
BAD = {
    "nan": (with_array(LAST, lambda a: a * np.nan), "not finite"),
    "inf": (with_array(LAST, lambda a: a + np.inf), "not finite"),
    "shape": (with_array(LAST, lambda a: np.zeros(99, np.float32)), r"float32\[99\]"),
    "kind": (with_array(LAST, lambda a: a.astype(np.float64)), "float64"),
    "missing": (in_rounds(lambda reply: (reply.content["parameters"].pop(LAST), reply)[1]), LAST),
    "stale": (with_about(round=-1), "round -1"),
    "other run": (with_about(run="0" * 32), "stale"),
    "other version": (with_about(version="0.0.1"), "0.0.1"),
    "other plan": (with_about(fingerprint="?"), "plan"),
    "other name": (with_about(client="north"), "another client's name"),
    "more records": (in_rounds(with_stranger), "diary"),
    "more metrics": (in_rounds(with_more_metrics), "first_reward"),
    "archive": (with_bytes(archive()), "is no NumPy array"),
    "broken archive": (with_bytes(archive()[:40]), "is no NumPy array"),
    "petabytes": (with_bytes(header("(1125899906842624,)")), r"float32\[1125899906842624\]"),
    "pickle": (with_bytes(header("(2,)", "'|O'") + pickle.dumps([1, 2])), "object"),
    "truncated": (with_bytes(header("(2,)") + b"1234"), "4 bytes of numbers"),
    "megabytes": (with_bytes(bytes(2**20)), "1,048,576 bytes, but"),
    "no bytes": (with_bytes(b""), "is no NumPy array"),
    "list as metric": (with_metric([1.0, 2.0]), r"\[1.0, 2.0\], but must be a number"),
    "nan metric": (with_metric(float("nan")), "not finite"),
    "many metrics": (with_metrics({f"m{i}": 0.0 for i in range(100_000)}), "its metrics are 1000"),
    "control characters": (with_about(client="x\n\x1b[31m" + "y" * 10_000), r"cannot be the name of a client"),
    "path as name": (with_about(client="../../east"), r"cannot be the name of a client"),
    "number as name": (with_about(client=7), r"cannot be the name of a client"),
    "refusal of a book": (with_about(refused="no \x00" * 100_000), r"^refused: no \\x00no"),
    "records swapped": (in_rounds(swapped), "has no parameters"),
    "many records": (in_rounds(with_many_records), "but about, metrics, parameters are expected"),
    "chunks of chunks": (in_rounds(unreadable), "its message cannot be read"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_submission_is_rejected_and_counted_and_the_round_goes_on(grid, ward_files, tmp_path, kind):
    tamper, reason = BAD[kind]
    grid.tamper[100] = tamper
    run = new_run(tmp_path, settings(rounds=1), min_clients=2)
    state = train(grid, run)
    _, entry = run.metrics()
    assert entry["rejected"] == ["east"]
    assert re.search(reason, entry["rejected_because"]["east"])
    sent = [
        message.content.array_records["parameters"][LAST].numpy()
        for direction, node, message in grid.log
        if direction == "up" and node != 100 and "parameters" in message.content
    ]
    np.testing.assert_allclose(state.broadcast.actor.net.last.bias, np.mean(sent, axis=0), atol=1e-6)


def test_a_member_that_offends_again_and_again_is_out_of_the_run_and_stays_out(grid, tmp_path):
    grid.tamper[100] = BAD["archive"][0]
    run, notes = new_run(tmp_path, settings(rounds=4), min_clients=2, eject_after=2), Notes()
    train(grid, run, notes)
    assert [entry.get("rejected") for entry in run.metrics()[1:]] == [["east"], ["east"], None, None]
    assert "east is out of the run after 2 offences, the last: " + LAST in notes
    file = run.path / "config.toml"
    file.write_text(file.read_text().replace("rounds = 4", "rounds = 5"))
    grid.log.clear()
    train(grid, run, notes)
    assert "not admitted, node 100: it is out of this run after 2 offences" in notes
    assert not any("broadcast" in message.content for _, node, message in grid.log if node == 100)


def test_what_a_member_said_counts_no_longer_once_it_is_out(tmp_path):
    config, network = settings(rounds=1), ServerConfig(min_clients=2, eject_after=1, observation=3, action=2)
    engine = FlowerEngine(InProcessGrid({}), flower_server.make_plan(config, network, "0" * 32), network, Quiet())
    told = {name: client_statistics(make_transitions(i)) for i, name in enumerate(("north", "south"))}
    engine.told = dict(told)
    alone = engine._log_weights(["north", "south"])
    engine.told["east"] = replace(told["north"], reward_sum=1e6)
    beside_a_liar = engine._log_weights(["north", "south"])
    assert alone.max() > beside_a_liar.max()
    engine.record.offend("east")
    np.testing.assert_array_equal(engine._log_weights(["north", "south"]), alone)


def test_a_refusal_in_words_is_no_offence(grid, tmp_path):
    grid.tamper[100] = with_about(refused="no space left")
    run, notes = new_run(tmp_path, settings(rounds=3), min_clients=2, eject_after=1), Notes()
    train(grid, run, notes)
    assert [entry["rejected"] for entry in run.metrics()[1:]] == [["east"]] * 3
    assert "out of the run" not in notes


def test_a_member_that_never_answers_costs_fewer_and_fewer_deadlines(grid, tmp_path):
    class Silences(Notes):
        def round(self, entry):
            grid.silent.add(101)

    run = new_run(tmp_path, settings(rounds=9), min_clients=2)
    train(grid, run, Silences())
    missed = [entry["round"] for entry in run.metrics() if entry.get("missing")]
    assert missed == [2, 4, 7], "asked in round 2, then after 1 round, then after 2, then after 4"


def test_a_hello_that_flower_cannot_read_leaves_the_server_running(grid, tmp_path):
    def broken(reply):
        reply.content["statistics"] = unreadable(reply).content.pop("parameters")
        return reply

    grid.tamper[100] = broken
    run, notes = new_run(tmp_path, settings(rounds=1), min_clients=2), Notes()
    train(grid, run, notes)
    assert "not admitted, node 100: its message cannot be read" in notes
    assert set(run.metrics()[1]["clients"]) == {"north", "south"}


def test_impossible_statistics_are_refused_by_name_and_not_stored(grid, tmp_path):
    def enormous(reply):
        if "statistics" in reply.content:
            edited(reply, "statistics", "reward_squares", lambda a: np.full_like(a, 1.7e308))
        return reply

    grid.tamper[100], grid.registered = enormous, {100: "east"}
    run, notes = new_run(tmp_path, settings("fova", rounds=1), min_clients=2), Notes()
    train(grid, run, notes)
    assert "not admitted, east: its statistics hold reward_squares of 1.7e+308, which no data has" in notes
    assert set(run.read_json("statistics.json")["log_weights"]) == {"north", "south"}


def test_a_superlink_that_does_not_answer_is_asked_again(grid, tmp_path):
    failures = [httpx.ConnectError("refused"), httpx.ReadTimeout("stopped")]
    calls = {name: getattr(grid, name) for name in ("get_node_ids", "push_messages", "pull_messages")}
    for name, call in calls.items():
        left = list(failures)

        def flaky(*arguments, call=call, left=left):
            if left:
                raise left.pop()
            return call(*arguments)

        setattr(grid, name, flaky)
    run, notes = new_run(tmp_path, settings(rounds=1)), Notes()
    train(grid, run, notes)
    assert len(run.metrics()[1]["clients"]) == 3
    assert "the SuperLink does not answer (stopped); asking again" in notes


def test_data_that_changes_between_rounds_is_told_to_its_owner(grid, ward_files, tmp_path):
    class Swaps(Notes):
        def round(self, entry):
            if entry["round"] == 1:
                save_npz(ward_files["east"], make_transitions(7, episodes=4))

    train(grid, new_run(tmp_path), Swaps())
    journals = {name: (tmp_path / "clients" / name / "journal.jsonl").read_text() for name in NAMES}
    assert journals["east"].count("east.npz changed since the last round") == 1
    assert "changed" not in journals["north"]


def test_a_replayed_answer_counts_once_and_an_old_one_not_at_all(grid, tmp_path):
    kept = []

    def replay(reply):
        kept.append(reply)
        return [kept[0], reply, reply] if len(kept) > 1 else [reply, reply]

    grid.tamper[101] = in_rounds(replay)
    run = new_run(tmp_path, settings(rounds=2), min_clients=2)
    train(grid, run)
    _, first, second = run.metrics()
    assert set(first["clients"]) == set(NAMES)
    assert second["rejected"] == ["north"], "its first answer to round 2 was the one to round 1"
    assert "round 0" in second["rejected_because"]["north"]


def test_when_nobody_sends_anything_usable_the_run_ends_with_the_reasons(grid, tmp_path):
    for node in grid.nodes:
        grid.tamper[node] = BAD["nan"][0]
    with pytest.raises(FovaError, match=r"failed 3 times(.|\n)*north: its numbers are not finite"):
        train(grid, new_run(tmp_path))


# --- Clients that do not fit ------------------------------------------------------------------------------


def test_a_client_of_another_version_is_refused_with_both_named(grid, tmp_path, monkeypatch):
    run = new_run(tmp_path, settings(rounds=1), min_clients=2)
    notes = Notes()
    real = flower_client.messages.hello_answer

    def older(plan, client, sums):
        content = real(plan, client, sums)
        if client == "south":
            content["about"]["version"] = "0.0.9"
        return content

    monkeypatch.setattr(flower_client.messages, "hello_answer", older)
    train(grid, run, notes)
    assert "it runs fova 0.0.9, but the server fova " in notes
    assert set(run.metrics()[1]["clients"]) == {"east", "north"}


def test_a_client_refuses_a_server_of_another_version(grid, tmp_path, monkeypatch):
    run = new_run(tmp_path)
    run_id, network = flower_server.read_server(run)
    plan = flower_server.make_plan(settings(), network, run_id)
    server = FlowerEngine(grid, plan, network, notes := Notes(), lambda seconds: None)
    monkeypatch.setattr(flower_client.messages, "__version__", "9.9.9")
    monkeypatch.setattr("fova.network.plan.__version__", "9.9.9")
    server.plan = server.plan.__class__(**server.plan.__dict__ | {"version": "0.0.1"})
    monkeypatch.setattr(
        flower_client.messages,
        "hello",
        lambda plan, real=flower_client.messages.hello: versioned(real(plan), "0.0.1"),
    )
    assert server._present() == {}
    assert "The server runs fova 0.0.1, but this client has fova 9.9.9" in notes


def versioned(content, version):
    content["about"]["version"] = version
    return content


def test_a_client_with_other_dimensions_is_told_before_any_training(grid, tmp_path):
    save_npz(tmp_path / "wide.npz", make_transitions(9))
    run = new_run(tmp_path, min_clients=3, observation=5)
    notes = Notes()

    class Enough(Exception):
        pass

    def stop(seconds):
        raise Enough

    with pytest.raises(Enough):
        train(grid, run, notes, stop)
    assert "has 3 observation columns and 2 action columns, but the server trains on 5 observation" in notes
    assert not any("parameters" in message.content for _, _, message in grid.log)
    journal = (tmp_path / "clients" / "east" / "journal.jsonl").read_text()
    assert "3 observation columns and 2 action columns" in journal, "the client's own people read it, too"


def test_what_is_wrong_with_a_row_stays_with_the_client(grid, ward_files, tmp_path):
    data = make_transitions(0)
    data.actions[5, 1] = 1.734
    save_npz(ward_files["east"], data)
    run, notes = new_run(tmp_path, settings(rounds=1), min_clients=2), Notes()
    train(grid, run, notes)
    assert "its own journal says why" in notes
    assert not any("1.734" in note or "row 5" in note for note in notes.said)
    assert "row 5 holds 1.734" in (tmp_path / "clients" / "east" / "journal.jsonl").read_text()


def test_two_clients_of_one_name_and_a_name_of_somebody_elses_key_are_refused(grid, ward_files, tmp_path):
    grid.nodes[200] = dict(grid.nodes[100])
    grid.registered = {101: "west"}
    run, notes = new_run(tmp_path, settings(rounds=1), min_clients=2), Notes()
    train(grid, run, notes)
    assert "another client is called 'east'" in notes
    assert "calls itself 'north', but its key is registered for 'west'" in notes
    assert set(run.metrics()[1]["clients"]) == {"east", "south"}


def test_a_late_joiner_takes_part_from_the_next_round(grid, tmp_path):
    late = grid.nodes.pop(102)
    run = new_run(tmp_path, min_clients=2)

    class Arrival(Notes):
        def round(self, entry):
            grid.nodes[102] = late

    train(grid, run, Arrival())
    assert [len(entry["clients"]) for entry in run.metrics()[1:]] == [2, 3, 3]


def test_a_newcomer_that_never_says_who_it_is_holds_nobody_up(grid, tmp_path):
    grid.silent.add(102)
    run, notes = new_run(tmp_path, min_clients=2), Notes()
    train(grid, run, notes)
    assert "not admitted, node 102: it does not say who it is" in notes
    asked = [node for direction, node, _ in grid.log if direction == "down" and node == 102]
    assert len(asked) == 1, "not again in every round"


def test_the_server_waits_for_enough_clients(grid, tmp_path):
    late = grid.nodes.pop(102)
    run, notes, pauses = new_run(tmp_path, settings(rounds=1)), Notes(), []
    train(grid, run, notes, lambda seconds: (pauses.append(seconds), grid.nodes.update({102: late})))
    assert "waiting for clients: 2 of 3" in notes
    assert pauses[0] == 3.0
    assert len(run.metrics()[1]["clients"]) == 3


# --- Faults -----------------------------------------------------------------------------------------------


def test_a_client_that_never_answers_is_left_out_and_its_lost_round_is_forgotten(grid, ward_files, tmp_path):
    """As in a simulation, where a client that did not take part stays as it was."""
    run = new_run(tmp_path, settings(rounds=4), min_clients=2)
    state = tmp_path / "clients" / "north" / run.read_json("server.json")["run_id"]

    class Sleepy(Notes):
        def round(self, entry):
            if entry["round"] == 1:
                grid.silent.add(101)  # it will train round 2, and nobody will hear of it
            if entry["round"] == 2:
                grid.silent.clear()
                numbers = [path.stem for path in checkpoints(state)]
                assert numbers == ["round-000001", "round-000002"]

    train(grid, run, Sleepy())
    assert run.metrics()[2]["missing"] == ["north"]
    assert [path.stem for path in checkpoints(state)] == ["round-000001", "round-000004"], "it sat out round 3"
    assert ["north" in entry["clients"] for entry in run.metrics()[1:]] == [True, False, False, True]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", ["before the checkpoint", "after the checkpoint"])
def test_a_killed_server_resumes_with_the_same_result_and_counts_no_round_twice(
    grid, ward_files, tmp_path, monkeypatch, moment
):
    config = settings(rounds=4)
    run = new_run(tmp_path, config)
    save = loop.save_checkpoint

    def killed(directory, state, *more):
        if state.round == 3:
            if moment == "after the checkpoint":
                save(directory, state, *more)
            raise Killed
        return save(directory, state, *more)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "save_checkpoint", killed)
        with pytest.raises(Killed):
            train(grid, run)
    state = train(grid, run)
    assert [entry["round"] for entry in run.metrics()] == [0, 1, 2, 3, 4]
    expected, _ = simulated(ward_files, config)
    assert_close(state.broadcast, expected.broadcast)


def test_a_run_can_be_made_longer_and_ends_like_one_that_was_long_from_the_start(grid, ward_files, tmp_path):
    run = new_run(tmp_path, settings(rounds=2))
    train(grid, run)
    file = run.path / "config.toml"
    file.write_text(file.read_text().replace("rounds = 2", "rounds = 4"))
    state = train(grid, run)
    expected, _ = simulated(ward_files, settings(rounds=4))
    assert_close(state.broadcast, expected.broadcast)


def test_a_private_run_remembers_who_counted_although_its_log_names_nobody(grid, tmp_path, monkeypatch):
    private = {"privacy": "client", "privacy_clip": 0.1, "privacy_noise": 1.0, "aggregation": "uniform"}
    run = new_run(tmp_path, settings(rounds=3, normalise=False, **private))
    save, asked = loop.save_checkpoint, []

    def killed(directory, state, *more):
        save(directory, state, *more)
        if state.round == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(loop, "save_checkpoint", killed)
        with pytest.raises(Killed):
            train(grid, run)
    assert all(entry.get("clients", {}) == {} for entry in run.metrics())
    grid.log.clear()
    train(grid, run)
    asked = [m.content["about"]["counted"] for way, _, m in grid.log if way == "down" and "broadcast" in m.content]
    assert asked == [2, 2, 2], "each client goes on from its own state after round 2"


def test_a_wish_to_stop_is_heard_while_the_server_waits_for_clients(grid, tmp_path):
    grid.nodes.clear()
    run, waits = new_run(tmp_path), []

    def pause(seconds):
        waits.append(seconds)
        (run.path / flower_server.STOP_REQUEST).touch()

    with pytest.raises(Interrupted, match="before a round was saved"):
        train(grid, run, pause=pause)
    assert len(waits) == 1
    assert not (run.path / flower_server.STOP_REQUEST).exists()


def test_a_wish_to_stop_is_heard_after_the_round_and_the_run_goes_on_later(grid, ward_files, tmp_path):
    run = new_run(tmp_path)

    class Asks(Notes):
        def round(self, entry):
            if entry["round"] == 2:
                (run.path / flower_server.STOP_REQUEST).touch()

    with pytest.raises(Interrupted, match=r"round 2 of 3(.|\n)*fova server --resume"):
        train(grid, run, Asks())
    state = train(grid, run)
    expected, _ = simulated(ward_files, settings())
    assert_close(state.broadcast, expected.broadcast)


def test_a_killed_client_goes_on_from_its_disk(grid, ward_files, tmp_path, monkeypatch):
    """Killed after training and before its answer is out: Flower reports an error, the rest goes on."""
    run = new_run(tmp_path, settings(rounds=3), min_clients=2)
    answer = flower_client.messages.round_answer

    def killed(plan, number, client, sent):
        if (number, client) == (1, "south"):
            raise MemoryError("killed")
        return answer(plan, number, client, sent)

    monkeypatch.setattr(flower_client.messages, "round_answer", killed)
    train(grid, run)
    assert [sorted(entry["clients"]) for entry in run.metrics()[1:]] == [[*NAMES], ["east", "north"], [*NAMES]]


def no_space(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_at_a_client_leaves_it_out_and_named(grid, tmp_path, monkeypatch):
    run = new_run(tmp_path, settings(rounds=2), min_clients=2)
    save = flower_client.save_checkpoint

    def full(directory, state, *more):
        if directory.parent.name == "east" and state.round == 1:
            no_space()
        return save(directory, state, *more)

    monkeypatch.setattr(flower_client, "save_checkpoint", full)
    train(grid, run)
    _, first, second = run.metrics()
    assert "No space left" in first["rejected_because"]["east"]
    assert set(second["clients"]) == set(NAMES)


def test_a_full_disk_at_the_server_stops_it_and_it_goes_on_later(grid, ward_files, tmp_path, monkeypatch):
    config = settings(rounds=3)
    run = new_run(tmp_path, config)
    with monkeypatch.context() as patch:
        patch.setattr("fova.run.checkpoint.write_atomically", no_space)
        patch.setattr(flower_client, "save_checkpoint", lambda *arguments: None)
        with pytest.raises(OSError, match="No space"):
            train(grid, run)
    state = train(grid, run)
    expected, _ = simulated(ward_files, config)
    assert_close(state.broadcast, expected.broadcast)


# --- Settings ---------------------------------------------------------------------------------------------


def test_settings_without_meaning_are_refused_before_a_directory_is_made(tmp_path):
    for network, words in (
        ({"min_clients": 0}, "min_clients"),
        ({"deadline": 0.0}, "deadline"),
        ({"observation": None}, "--observation"),
    ):
        with pytest.raises(FovaError, match=words):
            new_run(tmp_path, **network)
    for config, words in (
        (settings(mode="local"), "federated"),
        (settings("fedora", local_steps=3), "multiple of 2"),
    ):
        with pytest.raises(FovaError, match=words):
            new_run(tmp_path, config)
    assert not (tmp_path / "run").exists()


def test_a_node_that_is_no_fova_client_says_what_is_missing(tmp_path):
    with pytest.raises(FovaError, match="name, data and state"):
        flower_client.ClientConfig.of({"partition-id": 3})


def test_secret_keys_are_secret():
    keys = {json.dumps(jax.random.key_data(secret_key()).tolist()) for _ in range(4)}
    assert len(keys) == 4


def test_a_client_keeps_the_same_episodes_aside_as_a_simulation(tmp_path):
    save_npz(tmp_path / "east.npz", make_transitions(0, episodes=10))
    config = flower_client.ClientConfig("east", str(tmp_path / "east.npz"), str(tmp_path / "state"))
    run = RunConfig(rounds=1, local_steps=2, hold_out=0.2, seed=3)
    plan = Plan("0" * 32, "fed-bc", configure("fed-bc", hidden=(8,), batch_size=8), run, Space.unit(3, 2), 1)
    client = flower_client.Client(config, plan)
    simulated = config.load().holding_out(0.2, seed=3)
    assert client.federation.clients["east"].digest() == simulated.clients["east"].digest()
    assert client.federation.held_out["east"].digest() == simulated.held_out["east"].digest()
    told = client.hello().array_records["statistics"]["rows"].numpy()
    assert told == len(simulated.clients["east"])
