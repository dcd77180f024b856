import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import tomllib

import numpy as np
import pytest

import fova
from fova.errors import FovaError
from fova.federation.simulation import Simulation
from fova.machine.interrupts import Interrupted
from fova.progress import Quiet
from fova.run import loop
from fova.run.checkpoint import checkpoints
from fova.run.config import load_config
from fova.run.directory import RunDirectory
from fova.run.training import policies_of
from patience import PATIENCE
from tiny import make_transitions, save_npz

TINY = {"hidden": (8,), "batch_size": 8, "rounds": 6, "local_steps": 2, "checkpoint_seconds": 0.0}


def federation():
    return fova.Federation.of({name: make_transitions(i) for i, name in enumerate("ab")})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "finished"
    return fova.train(clients=federation(), directory=directory, **TINY)


def contents(directory):
    """All that must not depend on when a run was stopped."""
    return {
        "parameters": checkpoints(directory / "checkpoints")[-1].read_bytes(),
        "policy": (directory / "policy.safetensors").read_bytes(),
        "metrics": (directory / "metrics.jsonl").read_text(),
        "result": (directory / "result.json").read_text(),
    }


def test_a_run_leaves_what_it_promises(finished):
    names = {path.name for path in finished.directory.iterdir()}
    assert names == {
        "config.toml", "clients.json", "statistics.json", "metrics.jsonl", "timing.jsonl", "tensorboard",
        "checkpoints", "clients", "policy.safetensors", "policy.json", "result.json", ".lock",
    }  # fmt: skip
    metrics = RunDirectory.open(finished.directory).metrics()
    assert [entry["round"] for entry in metrics] == list(range(7))
    logged = metrics[-1]["clients"]["a"]
    assert {"vote_local", "vote_behaviour", "vote_global", "weight", "q_data", "conservative_gap"} <= set(logged)
    assert {"td_error", "entropy", "policy_distance"} <= set(logged)
    assert list((finished.directory / "tensorboard").rglob("events.out.tfevents.*"))
    np.testing.assert_array_equal(fova.load_policy(finished.directory)(np.zeros(3)), finished.policy(np.zeros(3)))


def test_the_configuration_can_be_read_back(finished):
    path = finished.directory / "config.toml"
    tables = tomllib.loads(path.read_text())
    assert tables["run"]["rounds"] == 6
    assert tables["algorithm"]["hidden"] == [8]
    config = load_config(path)
    assert config.run.rounds == 6
    assert config.algorithm.hidden == (8,)


def test_the_same_seed_twice_gives_the_same_bytes(finished, tmp_path):
    fova.train(clients=federation(), directory=tmp_path / "again", **TINY)
    assert contents(tmp_path / "again") == contents(finished.directory)


@pytest.mark.parametrize(("stopped_after", "by"), [(2, signal.SIGINT), (5, signal.SIGTERM)])
@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1e6])
def test_a_signal_saves_and_resume_ends_with_the_same_bytes(
    finished, tmp_path, stopped_after, by, checkpoint_seconds
):
    directory = tmp_path / "stopped"

    class SendsSignal(Quiet):
        def round(self, entry):
            if entry["round"] == stopped_after:
                os.kill(os.getpid(), by)

    settings = TINY | {"checkpoint_seconds": checkpoint_seconds}
    with pytest.raises(Interrupted, match=f"round {stopped_after} of 6(.|\n)*fova train --resume {directory}"):
        fova.train(clients=federation(), directory=directory, progress=SendsSignal(), **settings)
    assert not RunDirectory.open(directory).is_complete()
    fova.resume(directory, federation=federation())
    assert contents(directory) == contents(finished.directory)


class Presses(Quiet):
    """Presses Ctrl-C when it is told certain words."""

    def __init__(self, words, times=1):
        self.words, self.times, self.notes, self.finished = words, times, [], False

    def status(self, message):
        if self.words in message:
            for _ in range(self.times):
                signal.raise_signal(signal.SIGINT)

    def note(self, message):
        self.notes.append(message)

    def finish(self):
        self.finished = True


def test_ctrl_c_before_the_first_round_starts_no_run(tmp_path):
    progress = Presses("setting up")
    with pytest.raises(Interrupted, match="no run was started"):
        fova.train(clients=federation(), directory=tmp_path / "never", progress=progress, **TINY)
    assert not (tmp_path / "never").exists()
    assert progress.finished


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_two_signals_stop_with_the_last_checkpoint_kept(finished, tmp_path, by):
    directory = tmp_path / "stopped"

    class Impatient(Quiet):
        def round(self, entry):
            if entry["round"] == 3:
                for _ in range(2):
                    signal.raise_signal(by)

    with pytest.raises(Interrupted, match="up to round 3 of 6"):
        fova.train(clients=federation(), directory=directory, progress=Impatient(), **TINY)
    fova.resume(directory, federation=federation())
    assert contents(directory) == contents(finished.directory)


def test_ctrl_c_in_the_final_evaluation_leaves_a_finished_policy(tmp_path):
    directory = tmp_path / "maze"
    settings = TINY | {"rounds": 1, "evaluate_every": 0, "final_episodes": 1}
    with pytest.raises(Interrupted, match=f"all rounds are trained(.|\n)*fova evaluate {directory}"):
        fova.train("maze2d-umaze", ["random"], 300, directory=directory, progress=Presses("playing"), **settings)
    assert (directory / "policy.safetensors").exists()
    assert fova.resume(directory).server is not None


def test_what_was_logged_after_the_checkpoint_is_forgotten_on_resume(finished, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(finished.directory, directory)
    checkpoints(directory / "checkpoints")[-1].unlink()  # round 6 is gone: round 5 is the newest
    with (directory / "metrics.jsonl").open("a") as file:
        file.write('{"round": 7, "clients": {}')  # a line cut short by a crash
    fova.resume(directory, federation=federation())
    assert contents(directory) == contents(finished.directory)


def test_a_finished_run_resumes_to_itself(finished):
    before = contents(finished.directory)
    fova.resume(finished.directory, federation=federation())
    assert contents(finished.directory) == before


def test_a_policy_lost_in_a_crash_after_the_last_checkpoint_is_written_on_resume(finished, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(finished.directory, directory)
    for name in ("policy.safetensors", "policy.json", "result.json"):
        (directory / name).unlink()
    fova.resume(directory, federation=federation())
    assert contents(directory) == contents(finished.directory)


def test_two_processes_cannot_train_the_same_run(finished):
    with RunDirectory.open(finished.directory).lock(), pytest.raises(FovaError, match="Another process"):
        fova.resume(finished.directory, federation=federation())


def test_a_mistake_leaves_no_directory_and_an_empty_one_is_free(tmp_path):
    with pytest.raises(FovaError, match="multiple of 2"):
        fova.train(clients=federation(), directory=tmp_path / "x", algorithm="fed-td3bc", local_steps=3)
    assert not (tmp_path / "x").exists()
    (tmp_path / "empty").mkdir()
    fova.train(clients=federation(), directory=tmp_path / "empty", **TINY)


def test_policies_of_all_clients_can_be_had_again(finished):
    policies = policies_of(finished.directory, federation())
    assert list(policies) == ["server", "a", "b"]
    np.testing.assert_array_equal(policies["server"](np.zeros(3)), finished.policy(np.zeros(3)))
    assert not np.array_equal(policies["a"](np.ones(3)), policies["b"](np.ones(3)))


def test_an_existing_directory_is_never_overwritten(finished):
    with pytest.raises(FovaError, match="already exists"):
        fova.train(clients=federation(), directory=finished.directory, **TINY)


def test_a_full_disk_loses_nothing(finished, tmp_path, monkeypatch):
    directory = tmp_path / "full"
    real, calls = fova.machine.files.write_atomically, []

    def fails_later(path, content):
        calls.append(path)
        if path.name == "round-000004.safetensors":
            raise OSError(28, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr("fova.run.checkpoint.write_atomically", fails_later)
    with pytest.raises(OSError, match="No space left"):
        fova.train(clients=federation(), directory=directory, **TINY)
    monkeypatch.undo()
    fova.resume(directory, federation=federation())
    assert contents(directory) == contents(finished.directory)


def test_unknown_settings_are_refused_before_anything_is_written(tmp_path):
    wrong = [{"alhpa": 1.0}, {"rounds": 0}, {"rounds": "ten"}, {"batch_size": 0}, {"hidden": (0,)}]
    wrong += [{"participation": 2.0}, {"final_episodes": 0}, {"algorithm": "fed-td3bc", "policy_delay": 0}]
    for settings in wrong:
        with pytest.raises(FovaError):
            fova.train(clients=federation(), directory=tmp_path / "never", **settings)
    assert not (tmp_path / "never").exists()


def test_training_in_a_maze_is_evaluated(tmp_path):
    settings = TINY | {
        "rounds": 2,
        "evaluate_every": 1,
        "episodes": 1,
        "final_episodes": 2,
        "evaluate_clients": True,
    }
    result = fova.train("maze2d-umaze", ["expert", "random"], size=400, directory=tmp_path / "maze", **settings)
    assert list(result.clients) == ["expert-1", "random-1"]
    assert result.server.lengths.tolist() == [300, 300]
    metrics = RunDirectory.open(result.directory).metrics()
    assert ["score" in entry.get("server", {}) for entry in metrics] == [
        True,
        True,
        False,
    ]  # at the end: result.json
    assert set(metrics[1]["client_play"]) == {"expert-1", "random-1"}
    saved = json.loads((result.directory / "result.json").read_text())
    assert saved["server"]["return"] == result.server.mean_return


# --- Evaluation in the background ---

MAZE = TINY | {"evaluate_every": 2, "episodes": 1, "final_episodes": 1, "evaluate_clients": True}
MAZE |= {"checkpoint_seconds": 1e6}  # a checkpoint waits for the evaluation


def in_maze(directory, **settings):
    return fova.train("maze2d-umaze", ["expert", "random"], 400, directory=directory, **MAZE | settings)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A run that was evaluated in the ordinary way."""
    return in_maze(tmp_path_factory.mktemp("runs") / "played").directory


@pytest.fixture
def slow(monkeypatch):
    """Playing lasts until the next round has been trained. Gives what is to be done when a round begins."""
    real_round, real_play = Simulation.round, loop.play
    trained = [threading.Event() for _ in range(7)]
    before = {}

    def round_(self, state):
        before.get(state.round + 1, lambda: None)()
        state, report = real_round(self, state)
        trained[state.round].set()
        return state, report

    def play(policies, task, episodes, seed):
        rounds = next(iter(policies.values())).facts["rounds"]
        if rounds < 6:
            assert trained[rounds + 1].wait(timeout=PATIENCE), "training must go on meanwhile"
        return real_play(policies, task, episodes, seed)

    monkeypatch.setattr(Simulation, "round", round_)
    monkeypatch.setattr(loop, "play", play)
    return before


def logged_rounds(directory):
    return [entry["round"] for entry in RunDirectory.open(directory).metrics()]


@pytest.mark.usefixtures("slow")
def test_evaluation_in_the_background_gives_the_same_bytes(played, tmp_path):
    shown = []

    class Shown(Quiet):
        def round(self, entry):
            shown.append(entry)

    result = in_maze(tmp_path / "run", evaluate_in_background=True, progress=Shown())
    assert contents(result.directory) == contents(played)
    run = RunDirectory.open(result.directory)
    assert shown == run.metrics()[1:]
    assert [line["round"] for line in run.timing()] == list(range(1, 7))


@pytest.mark.usefixtures("slow")
def test_what_is_played_in_the_background_does_not_change_with_training(tmp_path, monkeypatch):
    """Clients that train alone write into the arrays that their policies come from."""
    in_maze(tmp_path / "background", evaluate_in_background=True, mode="local")
    monkeypatch.undo()
    in_maze(tmp_path / "ordinary", mode="local")
    both = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("background", "ordinary")]
    assert both[0] == both[1]


def test_a_run_stopped_or_killed_with_an_evaluation_in_the_background_resumes(played, tmp_path, slow):
    directory, killed = tmp_path / "stopped", tmp_path / "killed"
    slow[3] = lambda: signal.raise_signal(signal.SIGINT)  # round 2 is being played
    with pytest.raises(Interrupted, match="round 3 of 6"):
        in_maze(directory, evaluate_in_background=True)
    assert logged_rounds(directory) == [0, 1, 2, 3]
    slow[3] = lambda: None
    slow[5] = lambda: shutil.copytree(directory, killed)  # round 4 is being played: this is what a kill would leave
    fova.resume(directory)
    assert contents(directory) == contents(played)
    assert logged_rounds(killed) == [0, 1, 2, 3]
    slow.clear()
    fova.resume(killed)
    assert contents(killed) == contents(played)


def test_an_error_in_the_background_ends_the_run_and_resume_goes_on(played, tmp_path, monkeypatch):
    directory, real = tmp_path / "run", loop.play

    def play(policies, task, episodes, seed):
        if policies["server"].facts["rounds"] == 4:
            raise ArithmeticError("in the simulator")
        return real(policies, task, episodes, seed)

    monkeypatch.setattr(loop, "play", play)
    with pytest.raises(ArithmeticError, match="in the simulator"):
        in_maze(directory, evaluate_in_background=True)
    assert logged_rounds(directory) == [0, 1, 2, 3]
    monkeypatch.undo()
    fova.resume(directory)
    assert contents(directory) == contents(played)


def test_rounds_before_an_error_in_training_are_logged_although_one_is_being_played(tmp_path, slow):
    def diverge():
        raise FovaError("diverged")

    slow[4] = diverge
    with pytest.raises(FovaError, match="diverged"):
        in_maze(tmp_path / "run", evaluate_in_background=True)
    assert logged_rounds(tmp_path / "run") == [0, 1, 2, 3]


def test_ctrl_c_twice_does_not_wait_for_the_background(tmp_path, monkeypatch):
    released = threading.Event()

    class Impatient(Presses):
        def note(self, message):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop, "play", lambda *_: released.wait(timeout=PATIENCE))
    with pytest.raises(Interrupted, match="before a round was saved"):
        in_maze(tmp_path / "run", evaluate_in_background=True, progress=Impatient("compiling"))
    assert not released.is_set()
    released.set()


# --- The same data, wherever it is looked for ---


def test_changed_data_is_noticed_on_resume(tmp_path, logs):
    directory = tmp_path / "run"
    fova.train(clients=list(map(str, logs)), directory=directory, **TINY)
    (directory / "result.json").unlink()
    save_npz(logs[1], make_transitions(7))  # as many rows, other values
    for go_on in (fova.resume, policies_of):
        with pytest.raises(
            FovaError, match=rf"'ward-1' has changed(.|\n)*other values(.|\n)*{directory}/config.toml"
        ):
            go_on(directory)
    save_npz(logs[1], make_transitions(1, episodes=5))
    with pytest.raises(FovaError, match="54 rows then, 70 now"):
        fova.resume(directory)
    save_npz(logs[1], make_transitions(1))
    fova.resume(directory)


def test_other_clients_are_noticed_on_resume(finished):
    others = fova.Federation.of({name: make_transitions(i) for i, name in enumerate("ac")})
    with pytest.raises(FovaError, match="the clients a, b, but now they are a, c"):
        fova.resume(finished.directory, federation=others)


def test_a_run_of_an_older_version_has_no_fingerprints(finished, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(finished.directory, directory)
    run = RunDirectory.open(directory)
    described = run.read_json("clients.json")
    run.write_json("clients.json", {n: {k: v for k, v in c.items() if k != "digest"} for n, c in described.items()})
    fova.resume(directory, federation=federation())


def test_a_run_is_resumed_from_any_directory(tmp_path, logs, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    result = fova.train(clients=["ward-0.npz", "ward-1.npz"], directory="runs/one", **TINY)
    assert str(tmp_path) not in (tmp_path / "runs/one/config.toml").read_text()  # moves along with its data
    (result.directory / "result.json").unlink()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert list(fova.resume("../runs/one").clients) == []
    assert list(policies_of(tmp_path / "runs/one")) == ["server", "ward-0", "ward-1"]


# --- The real thing: kill -9, in a process of its own ---


def command(*arguments):
    return [sys.executable, "-m", "fova", "train", *map(str, arguments)]


# At a moment that does not depend on the machine; test_kills.py kills at random ones.
KILLED_AFTER_THREE_ROUNDS = """
import os, signal
from fova.commands.main import main
from fova.run import loop
save = loop.save_checkpoint
def save_and_die(directory, state, *more):
    save(directory, state, *more)
    if state.round == 3:
        os.kill(os.getpid(), signal.SIGKILL)
loop.save_checkpoint = save_and_die
main()
"""


@pytest.fixture
def logs(tmp_path):
    files = []
    for i in range(2):
        save_npz(tmp_path / f"ward-{i}.npz", make_transitions(i))
        files.append(tmp_path / f"ward-{i}.npz")
    return files


def test_kill_nine_then_resume_is_byte_identical(tmp_path, logs):
    flags = ["--clients", *logs, "--hidden", 8, "--batch-size", 8, "--rounds", 40, "--local-steps", 2]
    flags += ["--checkpoint-seconds", 0, "--plain"]
    subprocess.run(command(*flags, "--name", "whole"), cwd=tmp_path, check=True, capture_output=True)
    killed = [sys.executable, "-c", KILLED_AFTER_THREE_ROUNDS, *command(*flags, "--name", "killed")[3:]]
    ended = subprocess.run(killed, cwd=tmp_path, stdout=subprocess.DEVNULL, check=False)
    assert ended.returncode == -signal.SIGKILL
    directory = tmp_path / "runs" / "killed"
    assert len(checkpoints(directory / "checkpoints")) == 2
    assert not (directory / "result.json").exists()
    subprocess.run(command("--resume", directory), cwd=tmp_path, check=True, capture_output=True)
    assert contents(directory) == contents(tmp_path / "runs" / "whole")


def test_episodes_kept_aside_never_reach_training_nor_its_statistics(tmp_path):
    whole = federation()
    settings = TINY | {"rounds": 2, "hold_out": 0.25}
    fova.train(clients=whole, directory=tmp_path / "held", **settings)
    training = fova.Federation.of(whole.holding_out(0.25, seed=0).clients)
    fova.train(clients=training, directory=tmp_path / "alone", **settings | {"hold_out": 0.0})
    for name in ("statistics.json", "metrics.jsonl", "policy.safetensors"):
        assert (tmp_path / "held" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    described = json.loads((tmp_path / "held/clients.json").read_text())
    for name, aside in whole.holding_out(0.25, seed=0).held_out.items():
        assert described[name]["held_out"]["digest"] == aside.digest()
        assert described[name]["held_out"]["episodes"] == 1
        assert described[name]["rows"] == len(training.clients[name])


def test_a_run_is_resumed_with_the_same_episodes_kept_aside(tmp_path):
    settings = TINY | {"rounds": 2, "hold_out": 0.25}
    fova.train(clients=federation(), directory=tmp_path / "held", **settings)
    assert set(policies_of(tmp_path / "held", federation())) == {"server", "a", "b"}
    described = json.loads((tmp_path / "held/clients.json").read_text())
    described["a"]["held_out"]["digest"] = "other"
    (tmp_path / "held/clients.json").write_text(json.dumps(described))
    with pytest.raises(FovaError, match="data of client 'a' has changed"):
        policies_of(tmp_path / "held", federation())


def test_a_mapping_and_a_federation_keep_the_same_episodes_aside(tmp_path):
    """Episodes are chosen once: a second choice would drop the first ones, and the run could not be resumed."""
    settings = TINY | {"rounds": 2, "hold_out": 0.25}
    clients = {name: make_transitions(i, episodes=12) for i, name in enumerate("ab")}
    federation = fova.Federation.of(clients)
    fova.train(clients=clients, directory=tmp_path / "mapping", **settings)
    fova.train(clients=federation, directory=tmp_path / "federation", **settings)
    described = [(tmp_path / name / "clients.json").read_text() for name in ("mapping", "federation")]
    assert described[0] == described[1]
    found = json.loads(described[0])["a"]
    assert (found["episodes"], found["held_out"]["episodes"]) == (9, 3)
    assert set(policies_of(tmp_path / "mapping", federation)) == {"server", "a", "b"}
    with pytest.raises(FovaError, match="keeps episodes aside already"):
        fova.train(clients=federation.holding_out(0.25), directory=tmp_path / "twice", **settings)
