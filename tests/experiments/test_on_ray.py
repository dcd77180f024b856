"""A real Ray cluster of two node processes on loopback, one of which dies."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fova.errors import FovaError
from fova.experiments import ray_task
from fova.experiments.on_ray import run_all_on_ray
from fova.experiments.training_process import CLAIMS
from fova.machine.interrupts import in_thread
from fova.version import __version__
from patience import PATIENCE

FLAGS = ("compare", "--task", "maze2d-umaze", "--clients", "expert", "random", "--size", 200, "--rounds", 150,
         "--local-steps", 2, "--hidden", 8, "--batch-size", 8, "--final-episodes", 1, "--evaluate-every", 0,
         "--algorithms", "fed-bc", "fed-td3bc", "--seeds", 4, "--plain")  # fmt: skip


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # on a busy machine the default of 15 starves the workers
    pytest.importorskip("ray", reason='pip install "fova[ray]"')
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield started
    started.shutdown()


def descendants(process):
    """All processes below one, from /proc."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    found, new = set(), {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def training(processes):
    """The run directories that some of the processes train."""
    found = []
    for process in processes:
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "fova.experiments.worker" in words:
            found.append(Path(words[words.index("fova.experiments.worker") + 1]))
    return found


def kill_in_the_middle(node):
    """Kill a node and everything on it with -9, when a run on it has taken some rounds. The run's name."""
    raylet = node.all_processes["raylet"][0].process.pid
    began = time.monotonic()
    while True:
        assert time.monotonic() - began < PATIENCE
        below = descendants(raylet)
        for path in training(below):
            if (path / "metrics.jsonl").exists() and not (path / "result.json").exists():
                for process in (raylet, *below):
                    os.kill(process, signal.SIGKILL)
                return path.name, (path / "metrics.jsonl").read_text().count("\n")
        time.sleep(0.02)


@pytest.mark.slow
def test_a_node_is_killed_and_the_tables_are_those_of_a_local_run(cluster, fova_command, tmp_path):
    node = cluster.add_node(num_cpus=1)
    killed = in_thread(lambda: kill_in_the_middle(node))
    code, out, err = fova_command(*FLAGS, "--name", "cluster", "--on", "ray", "--address", cluster.address)
    assert (code, err) == (0, "")
    name, rounds = killed.result(timeout=0)
    print(f"{name} had taken {rounds} rounds")
    assert f"{name}: under way on " in out
    code, here, err = fova_command(*FLAGS, "--name", "local")
    assert (code, err) == (0, "")

    def table(text):
        return [line for line in text.splitlines() if line.startswith(("│", "┃", "┏", "┡", "└"))]

    assert table(out) == table(here) != []
    runs = [path.parent.name for path in (tmp_path / "runs/local").glob("*/result.json")]
    assert len(runs) == 8
    for run in runs:
        for file in ("metrics.jsonl", "result.json", "policy.safetensors"):
            ours, theirs = (tmp_path / "runs" / place / run / file for place in ("cluster", "local"))
            assert ours.read_bytes() == theirs.read_bytes(), f"{run}/{file}"
    assert [path.name for path in (tmp_path / "runs/cluster/claims").iterdir()] == []


def driver(directory, *more):
    """The command in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "fova",
        *map(str, (*FLAGS, "--seeds", 1, "--name", "driven", *more)),
    ]
    return subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until_rounds(directory, least):
    """Wait until an unfinished run has taken so many rounds."""
    began = time.monotonic()
    while True:
        assert time.monotonic() - began < PATIENCE
        for path in directory.glob("*/metrics.jsonl"):
            if path.read_text().count("\n") >= least and not (path.parent / "result.json").exists():
                return path.parent
        time.sleep(0.02)


@pytest.mark.slow
def test_the_driver_is_stopped_then_killed_and_nothing_is_lost(cluster, tmp_path):
    runs = tmp_path / "runs/driven"
    more = ("--rounds", 300, "--on", "ray", "--address", cluster.address)
    first = driver(tmp_path, *more)
    stopped = until_rounds(runs, 5)
    first.send_signal(signal.SIGTERM)
    _, err = first.communicate(timeout=PATIENCE)
    assert first.returncode == 130, err
    assert "the others are saved" in err
    rounds = json.loads((stopped / "metrics.jsonl").read_text().splitlines()[-1])["round"]
    assert list((stopped / "checkpoints").glob(f"*{rounds}*")), "the round that was under way is saved"
    second = driver(tmp_path, *more)
    killed = until_rounds(runs, rounds + 5)
    second.kill()
    second.communicate()
    third = driver(tmp_path, *more)
    out, err = third.communicate(timeout=PATIENCE)
    assert (third.returncode, err) == (0, "")
    assert f"{killed.name}: under way" in out
    assert len(list(runs.glob("*/result.json"))) == 2
    for path in runs.glob("*/metrics.jsonl"):
        logged = [json.loads(line)["round"] for line in path.read_text().splitlines()]
        assert [number for number in logged if number] == list(range(1, 301))


def test_a_cluster_that_does_not_answer(tmp_path, monkeypatch, fova_command):
    monkeypatch.setattr("fova.experiments.on_ray._package", lambda: Silent)
    code, _, err = fova_command(*FLAGS, "--on", "ray", "--address", "ray://head:10001")
    assert code == 2
    assert "No Ray cluster answers at ray://head:10001: nobody is there" in err
    assert "ray start --head" in err
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens there
        address = f"127.0.0.1:{free.getsockname()[1]}"
        code, _, err = fova_command(*FLAGS, "--on", "ray", "--address", address)
    assert code == 2
    assert f"No Ray cluster answers at {address}: [Errno" in err


class Silent:
    """Ray, if no cluster is there."""

    @staticmethod
    def is_initialized():
        return False

    @staticmethod
    def init(**_):
        raise ConnectionError("nobody is there")


def test_ray_is_asked_for_when_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FovaError, match=r'pip install "fova\[ray\]"'):
        run_all_on_ray([], tmp_path, None, None)


def test_a_machine_that_cannot_train_says_why(tmp_path):
    told = ray_task.train_run("run", "", str(tmp_path), ".mark", __version__)
    assert told["event"] == "failed"
    assert f"does not see {tmp_path}" in told["text"]
    assert list(tmp_path.iterdir()) == [], "it makes no folder of its own"
    told = ray_task.train_run("run", "", str(tmp_path), ".mark", "0.0.0")
    assert "but the command is of fova 0.0.0" in told["text"]


def test_a_run_that_is_finished_or_trained_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_task, "PATIENCE", 0.01)
    claims = ray_task.Claims(tmp_path / CLAIMS)
    (tmp_path / CLAIMS / ".mark").touch()
    claim = claims.take("run")
    assert ray_task.train_run("run", "", str(tmp_path), ".mark", __version__) is None
    claim.release()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/result.json").write_text("{}")
    assert ray_task.train_run("run", "", str(tmp_path), ".mark", __version__) == {
        "event": "finished",
        "server": None,
    }
