"""One federation in several processes: threads stand for them in quick tests, the slow one starts real ones."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from fova.algorithms import configure
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.machine.cluster import Ended, free_port
from fova.progress import Quiet
from fova.run import processes, training
from fova.run.checkpoint import checkpoints, load_checkpoint
from fova.run.config import Config, RunConfig, load_config
from in_threads import in_threads
from patience import PATIENCE
from tiny import make_transitions, save_npz

TINY = configure("fova", hidden=(8,), batch_size=8, actor_lr=1e-3)


def config_of(folder, clients=6, **settings):
    for i in range(clients):
        save_npz(folder / f"ward-{i}.npz", make_transitions(i, episodes=2))
    specs = tuple(ClientSpec(str(folder / f"ward-{i}.npz")) for i in range(clients))
    given = {"rounds": 3, "local_steps": 3, "cohort": 2, "checkpoint_seconds": 0.0, **settings}
    return Config(None, specs, TINY, run=RunConfig(**given))


def final_state(directory):
    """All learners and the server of a run's newest checkpoint, whoever wrote it."""
    config = load_config(Path(directory) / "config.toml")
    loop = training.loop_of(config, processes.RunDirectory(Path(directory)), training.trained_on(config), Quiet())
    state = load_checkpoint(loop.run.checkpoints, loop.fresh_state(), config.fingerprint())
    assert state is not None
    return state


def assert_close_in_its_unit(one, other):
    """Parameters to 1e-5. Adam's moments have the size of gradients, here up to 80: to 1e-5 of their largest."""
    largest = max(1.0, float(np.abs(one).max()))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * largest)


def assert_same_run(one, other):
    """Two runs of the same seed, to rounding."""
    first, second = final_state(one), final_state(other)
    assert first.round == second.round
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), first.server, second.server)
    jax.tree.map(assert_close_in_its_unit, first.learners, second.learners)
    for name in ("clients.json", "config.toml"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    logs = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (one, other)]
    assert [entry["round"] for entry in logs[0]] == [entry["round"] for entry in logs[1]]
    assert [list(entry.get("clients", {})) for entry in logs[0]] == [list(e.get("clients", {})) for e in logs[1]]


def train_in_threads(count, config, directory):
    def work(cluster):
        return processes.start(config, directory, Quiet(), cluster, "fova train --resume", lambda path: None)

    return in_threads(count, work)


def resume_in_threads(count, directory):
    def work(cluster):
        return processes.resume(directory, Quiet(), cluster, "fova train --resume", lambda path: None)

    return in_threads(count, work)


@pytest.mark.parametrize("sampling", ["uniform", "returns"])
def test_a_run_in_processes_is_the_run_of_one(tmp_path, sampling):
    config = config_of(tmp_path, sampling=sampling)
    training.start(config, tmp_path / "one", Quiet())
    results = train_in_threads(2, config, tmp_path / "two")
    assert [result is None for result in results] == [False, True], "process 0 has the result"
    assert_same_run(tmp_path / "one", tmp_path / "two")
    policies = [sorted(path.name for path in (tmp_path / run / "clients").iterdir()) for run in ("one", "two")]
    assert policies[0] == policies[1]
    assert (tmp_path / "two" / "result.json").exists()
    names = [path.name for path in (tmp_path / "two" / "checkpoints").iterdir()]
    assert sum(name.startswith("share-000003") for name in names) == 2, "each process saves its own clients"


@pytest.mark.parametrize("later", [1, 2, 3])
def test_another_number_of_processes_goes_on_with_a_run(tmp_path, later):
    config = config_of(tmp_path)
    training.start(config, tmp_path / "one", Quiet())
    train_in_threads(2, config, tmp_path / "run")
    # as if it had been killed after round 2
    checkpoints(tmp_path / "run" / "checkpoints")[-1].unlink()
    (tmp_path / "run" / "result.json").unlink()
    if later == 1:
        training.resume(tmp_path / "run", Quiet())
    else:
        resume_in_threads(later, tmp_path / "run")
    assert_same_run(tmp_path / "one", tmp_path / "run")


def test_every_process_reads_the_files_of_its_own_clients_only(tmp_path, monkeypatch):
    config = config_of(tmp_path)
    read = []
    load = training.Federation.build.__globals__["sources"].load
    monkeypatch.setattr("fova.federation.clients.sources.load", lambda name: read.append(name) or load(name))
    share = processes.share_of(config, type("Second", (), {"index": 1, "count": 2}))
    federation = training.trained_on(config, only=share.own_names)
    assert list(federation.clients) == ["ward-4", "ward-5"]
    assert [Path(name).name for name in read] == ["ward-4.npz", "ward-5.npz"]


def test_clients_that_share_a_file_keep_their_rows(tmp_path):
    save_npz(tmp_path / "all.npz", make_transitions(0, episodes=8))
    specs = tuple(ClientSpec(str(tmp_path / "all.npz")) for _ in range(4))
    config = Config(None, specs, TINY, run=RunConfig(cohort=1))
    whole = training.trained_on(config).clients
    part = training.trained_on(config, only=["all-2", "all-4"]).clients
    assert list(part) == ["all-2", "all-4"]
    assert {name: data.digest() for name, data in part.items()} == {name: whole[name].digest() for name in part}


def test_a_process_with_other_data_is_refused_when_a_run_is_resumed(tmp_path):
    config = config_of(tmp_path)
    train_in_threads(2, config, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    save_npz(tmp_path / "ward-5.npz", make_transitions(50, episodes=2))
    with pytest.raises(FovaError, match="The data of client 'ward-5' has changed"):
        resume_in_threads(2, tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "local"}, "mode is local, which merges nothing"),
        ({"mode": "centralised"}, "mode is centralised, which merges nothing"),
        ({"select": "judge", "hold_out": 0.1}, "needs all held-out episodes in one process"),
        ({"evaluate_clients": True}, "no process has all of them"),
    ],
)
def test_what_needs_all_clients_in_one_process_is_refused(tmp_path, settings, words):
    with pytest.raises(FovaError, match=words):
        processes.insist_on_dealing_out(config_of(tmp_path, clients=1, **settings))


def test_processes_that_derive_different_actions_are_refused(tmp_path):
    class Space:
        def __init__(self, words):
            self.words = words

        def __repr__(self):
            return self.words

    def work(cluster):
        federation = type("Held", (), {"space": Space(f"{cluster.index + 2} actions"), "recipe": None})
        share = processes.Share(["a", "b"], [range(1), range(1, 2)], cluster)
        with pytest.raises(FovaError, match="processes 0 and 1 have different observations or actions"):
            processes.insist_on_one_space(federation, share)

    in_threads(2, work)


def test_the_others_end_when_one_process_fails():
    def work(cluster):
        if cluster.index == 1:
            with pytest.raises(FovaError, match="no such file"), processes.ending_together(cluster):
                raise FovaError("no such file")
        else:
            with pytest.raises(Ended, match="no such file"), processes.ending_together(cluster):
                cluster.gather("round")

    in_threads(2, work)


# --- Real processes ---

CLIENTS = int(os.environ.get("FOVA_TEST_CLIENTS", "60"))
SETTINGS = (
    *("--rounds", "6", "--local-steps", "4", "--hidden", "8", "--batch-size", "8", "--cohort", "10"),
    *("--checkpoint-seconds", "0", "--plain"),
)
# It dies when it has saved its share of round 3, and before the checkpoint of that round exists.
KILLED_IN_ROUND_THREE = """
import os, signal
from fova.commands.main import main
from fova.run import processes
save = processes.save_share
def save_and_die(directory, state, *more):
    save(directory, state, *more)
    if state.round == 3:
        os.kill(os.getpid(), signal.SIGKILL)
processes.save_share = save_and_die
main()
"""


def fova(folder, *arguments, program=("-m", "fova")):
    command = [sys.executable, *program, "train", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_other_and_the_run_goes_on(tmp_path, victim):
    for i in range(CLIENTS):
        save_npz(tmp_path / f"ward-{i}.npz", make_transitions(i, episodes=2))
    (tmp_path / "wards.toml").write_text("".join(f'[[client]]\ndata = "ward-{i}.npz"\n' for i in range(CLIENTS)))
    start = ("--config", "wards.toml", *SETTINGS, "--name")
    whole = fova(tmp_path, *start, "whole")
    said = whole.communicate()[0]
    assert whole.returncode == 0, said

    address = f"127.0.0.1:{free_port()}"
    programs = [("-m", "fova")] * 2
    programs[victim] = ("-c", KILLED_IN_ROUND_THREE)
    both = [
        fova(tmp_path, *start, "parted", "--processes", f"{i}/2", "--coordinator", address, program=program)
        for i, program in enumerate(programs)
    ]
    said = [process.communicate(timeout=PATIENCE)[0] for process in both]  # a second on an idle machine
    assert both[victim].returncode == -signal.SIGKILL, said
    assert both[1 - victim].returncode not in (0, -signal.SIGKILL), said
    for words in said:
        assert "another one of its federation has ended" in words or "Another process of this federation" in words
        assert "Continue with: fova train --processes 2 --resume" in words
        assert "Check failure stack trace" not in words
    run = tmp_path / "runs" / "parted"
    assert [path.stem for path in checkpoints(run / "checkpoints")] == ["round-000001", "round-000002"]

    more = ("--processes", "2") if victim else ()  # two processes again, or one
    resumed = fova(tmp_path, "--resume", str(run), "--plain", *more)
    said = resumed.communicate()[0]
    assert resumed.returncode == 0, said
    assert_same_run(tmp_path / "runs" / "whole", run)
