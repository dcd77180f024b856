import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest

import fova
from fova.config import load_config
from fova.errors import FovaError
from fova.federation.checkpoint import checkpoints
from fova.runs import RunDirectory
from fova.training import Interrupted, policies_of, stop_signal
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
        "config.toml", "clients.json", "metrics.jsonl", "timing.jsonl", "tensorboard", "checkpoints",
        "policy.safetensors", "policy.json", "result.json", ".lock",
    }  # fmt: skip
    metrics = RunDirectory.open(finished.directory).metrics()
    assert [entry["round"] for entry in metrics] == list(range(7))
    logged = metrics[-1]["clients"]["a"]
    assert {"vote_local", "vote_behaviour", "vote_global", "weight", "q_data", "conservative_gap"} <= set(logged)
    assert {"td_error", "entropy", "policy_distance"} <= set(logged)
    assert list((finished.directory / "tensorboard").glob("events.out.tfevents.*"))
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


@pytest.mark.parametrize("stopped_after", [1, 4])
def test_ctrl_c_saves_and_resume_ends_with_the_same_bytes(finished, tmp_path, stopped_after, monkeypatch):
    directory = tmp_path / "stopped"

    class PressesCtrlC(fova.training.Quiet):
        def round(self, entry):
            if entry["round"] == stopped_after - 1 or stopped_after == 1:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=f"fova train --resume {directory}"):
        fova.train(clients=federation(), directory=directory, progress=PressesCtrlC(), **TINY)
    assert not RunDirectory.open(directory).is_complete()
    fova.resume(directory, federation=federation())
    assert contents(directory) == contents(finished.directory)


def test_the_second_ctrl_c_stops_at_once():
    with stop_signal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wanted
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


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
    real, calls = fova.files.write_atomically, []

    def fails_later(path, content):
        calls.append(path)
        if path.name == "round-000004.safetensors":
            raise OSError(28, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr("fova.federation.checkpoint.write_atomically", fails_later)
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
    assert all("score" in entry["server"] for entry in metrics)
    assert set(metrics[1]["client_play"]) == {"expert-1", "random-1"}
    saved = json.loads((result.directory / "result.json").read_text())
    assert saved["server"]["return"] == result.server.mean_return


# --- The real thing: kill -9, in a process of its own ---


def command(*arguments):
    return [sys.executable, "-m", "fova.cli", "train", *map(str, arguments)]


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
    killed = subprocess.Popen(command(*flags, "--name", "killed"), cwd=tmp_path, stdout=subprocess.DEVNULL)
    directory = tmp_path / "runs" / "killed"
    deadline = time.monotonic() + 120
    while len(checkpoints(directory / "checkpoints")) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    killed.kill()
    killed.wait()
    assert not (directory / "result.json").exists(), "it must have been killed before its end"
    subprocess.run(command("--resume", directory), cwd=tmp_path, check=True, capture_output=True)
    assert contents(directory) == contents(tmp_path / "runs" / "whole")
