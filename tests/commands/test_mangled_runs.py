"""Run directories that were edited or damaged, through the command line: one message that names the file."""

import os
import shutil

import pytest

import fova
from made_runs import interrupt, make_network_run, make_run
from tiny import make_transitions, save_npz

DEEP = "[" * 100_000
NOT_UTF_8 = b"\xff\xfe\xe9"


def refused(result, *words):
    code, _, err = result
    assert code == 2
    for text in words:
        assert str(text) in err
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs on a file that were stopped after their last round, before they were complete."""
    folder = tmp_path_factory.mktemp("trained")
    save_npz(folder / "ward.npz", make_transitions(0))
    client, small = [str(folder / "ward.npz")], {"hidden": (8,), "batch_size": 8, "rounds": 4, "local_steps": 2}
    for seed, name in enumerate(("stopped", "other")):
        fova.train(None, client, algorithm="fed-bc", directory=folder / name, seed=seed, **small)
        interrupt(folder / name, after=4)
    return folder


@pytest.fixture
def stopped(trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path / "stopped"


def spoil(path, content):
    """Put something else in the place of a file; None is a folder."""
    path.unlink(missing_ok=True)
    if content is None:
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content)


# --- Edited configurations and foreign checkpoints ---


@pytest.mark.parametrize(
    ("old", "new"),
    [("seed = 0", "seed = 1"), ("actor_lr = 0.0003", "actor_lr = 0.01"), ("local_steps = 2", "local_steps = 4")],
)
def test_a_run_keeps_its_settings(fova_command, stopped, old, new):
    text = (stopped / "config.toml").read_text()
    assert old in text
    (stopped / "config.toml").write_text(text.replace(old, new))
    checkpoint = stopped / "checkpoints/round-000004.safetensors"
    refused(fova_command("train", "--resume", "stopped"), checkpoint.relative_to(stopped.parent), "config.toml")


def test_a_run_cannot_become_shorter_than_it_is(fova_command, stopped):
    text = (stopped / "config.toml").read_text()
    (stopped / "config.toml").write_text(text.replace("rounds = 4", "rounds = 3"))
    refused(fova_command("train", "--resume", "stopped"), "has 4 finished rounds", "Ask for at least 4")


def test_a_checkpoint_of_another_run_is_refused(fova_command, stopped, tmp_path):
    shutil.copy(tmp_path / "other/checkpoints/round-000004.safetensors", stopped / "checkpoints")
    words = ("round-000004.safetensors", "belongs to another configuration")
    refused(fova_command("train", "--resume", "stopped"), *words)
    refused(fova_command("evaluate", "stopped", "--clients", "--task", "maze2d-umaze"), *words)


# --- Damaged files ---


@pytest.mark.parametrize(
    "name", ["clients.json", "statistics.json", "metrics.jsonl", "timing.jsonl", "config.toml"]
)
@pytest.mark.parametrize(
    "content", [None, "[1, 2]\n[3]\n", "null\nnull\n", "{}\n{}\n", NOT_UTF_8, f"{DEEP}\n{DEEP}\n1\n"]
)
def test_a_run_with_a_damaged_file_is_not_resumed(fova_command, stopped, name, content):
    if name == "clients.json" and content == "{}\n{}\n":
        content = '{"expert-1": {"rows": "many"}}'
    spoil(stopped / name, content)
    refused(fova_command("train", "--resume", "stopped", "--quiet"), f"stopped/{name}" if content else "stopped")


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_a_run_whose_log_is_out_of_order_is_not_resumed(fova_command, stopped, name):
    lines = (stopped / name).read_text().splitlines(keepends=True)
    for odd in (lines + lines, lines[::-1]):
        (stopped / name).write_text("".join(odd))
        refused(fova_command("train", "--resume", "stopped", "--quiet"), f"stopped/{name} has rounds out of order")


@pytest.mark.parametrize(("kept", "lacks"), [((), 1), ((0, 1, 2, 4), 3), ((0, 2, 3, 4), 1)])
def test_a_run_whose_log_lacks_rounds_is_not_resumed(fova_command, stopped, kept, lacks):
    lines = (stopped / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 5  # and one before the first round
    (stopped / "metrics.jsonl").write_text("".join(lines[number] for number in kept))
    words = f"stopped/metrics.jsonl lacks round {lacks}, though the run has finished 4"
    refused(fova_command("train", "--resume", "stopped", "--quiet"), words)


@pytest.mark.parametrize(
    "name", ["clients.json", "statistics.json", "metrics.jsonl", "checkpoints/round-000005.safetensors"]
)
def test_a_pipe_in_a_run_is_not_opened(fova_command, stopped, name):
    (stopped / name).unlink(missing_ok=True)
    os.mkfifo(stopped / name)
    refused(fova_command("train", "--resume", "stopped", "--quiet"), f"stopped/{name}", "Not a regular file")


def test_a_pipe_beside_a_policy_is_not_opened(fova_command, tmp_path):
    run = make_run(tmp_path / "run")
    (run / "policy.json").unlink()
    os.mkfifo(run / "policy.json")
    refused(fova_command("evaluate", "run", "--episodes", 1), "Not a regular file")


@pytest.mark.parametrize("content", ["", "[]", NOT_UTF_8, None])
@pytest.mark.parametrize("name", ["clients.json", "statistics.json"])
def test_clients_own_policies_need_whole_files(fova_command, stopped, name, content):
    spoil(stopped / name, content)
    result = fova_command("evaluate", "stopped", "--clients", "--task", "maze2d-umaze", "--episodes", 1)
    refused(result, f"stopped/{name}")


@pytest.mark.parametrize("command", ["report", "plot"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("result.json", content) for content in ("", "[]", '{"server": {}}', NOT_UTF_8, DEEP)),
        # a last line that is cut short is what a crash leaves, and no damage
        *(("timing.jsonl", content) for content in ("[]\n", '{"server": {}}\n', NOT_UTF_8)),
    ],
)
def test_a_run_with_a_damaged_file_is_not_shown(fova_command, tmp_path, command, name, content):
    run = make_run(tmp_path / "run")
    spoil(run / name, content)
    refused(fova_command(command, "run", "-o", {"report": "out.html", "plot": "out"}[command]), f"run/{name}")


def test_what_a_kill_left_half_written_is_gone_after_resuming(fova_command, stopped):
    left = [
        stopped / ".policy.json.999999999.part",
        stopped / "checkpoints/.round-000004.safetensors.999999999.part",
    ]
    for path in left:
        path.write_bytes(b"half")
    assert fova_command("train", "--resume", "stopped", "--quiet")[0] == 0
    assert not any(path.exists() for path in left)


# --- A federation over a network ---


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "there must be a table"),
        ("{}", "run_id is missing"),
        ('{"run_id": 5}', "run_id is 5, but must be a text"),
        ('{"run_id": "a", "port": 0}', "port is 0, but must be at least 1 and at most 65,535."),
        ('{"run_id": "a", "deadline": NaN}', "deadline is nan"),
        ('{"run_id": "a", "ports": 0}', "ports"),
        (NOT_UTF_8, "cannot be read"),
        (None, "cannot be read"),
        (DEEP, "cannot be read"),
    ],
)
def test_a_server_with_damaged_settings_is_not_resumed(fova_command, tmp_path, content, words):
    pytest.importorskip("flwr")
    run = make_network_run(tmp_path / "run")
    spoil(run / "server.json", content)
    named = "" if "port is" in words or "deadline" in words else "run/server.json"
    refused(fova_command("server", "--resume", "run", "--insecure"), words, named)


def test_a_policy_with_a_damaged_description_is_not_played(fova_command, tmp_path):
    run = make_run(tmp_path / "run")
    spoil(run / "policy.json", DEEP)
    refused(fova_command("evaluate", "run", "--episodes", 1), "run/policy.safetensors cannot be read")
