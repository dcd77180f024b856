import json
import subprocess
import sys

import numpy as np
import pytest

from tiny import make_transitions, npz_arrays, save_npz

TINY = ("--hidden", 8, "--batch-size", 8, "--rounds", 2, "--local-steps", 2, "--quiet")


def test_help_teaches_by_example(fova_command):
    code, out, _ = fova_command("--help")
    assert code == 0
    assert "fova train --task maze2d-umaze --clients expert expert random random --size 5000" in out
    assert (
        "fova data inspect ward-1.csv ward-2.csv\n    fova train --clients ward-1.csv ward-2.csv --columns" in out
    )
    assert fova_command()[1] == out
    code, out, _ = fova_command("train", "--help-all")
    assert code == 0
    run_flags = "--task --clients --size --algorithm --rounds --local-steps --seed --name --resume"
    algorithm_flags = "--alpha --lambda --beta --conservative --vote-order --actor"
    for flag in (run_flags + " " + algorithm_flags).split():
        assert f"  {flag} " in out, flag
    assert fova_command("--version")[1].startswith("fova ")


def test_train_then_evaluate_then_train_from_its_config(fova_command, tmp_path):
    flags = ("--task", "maze2d-umaze", "--clients", "expert", "random", "--size", 400, "--episodes", 1)
    code, _, err = fova_command("train", *flags, *TINY, "--final-episodes", 1, "--name", "one", "--lambda", 2)
    assert (code, err) == (0, "")
    assert "lambda = 2.0" in (tmp_path / "runs/one/config.toml").read_text()
    code, out, _ = fova_command("evaluate", "runs/one", "--episodes", 1, "--json", "--clients")
    assert code == 0
    assert set(json.loads(out)) == {"server", "expert-1", "random-1"}
    code, out, _ = fova_command("evaluate", "runs/one", "--episodes", 1)
    assert "server" in out
    code, _, err = fova_command("train", "--config", "runs/one/config.toml", "--name", "two", "--quiet")
    assert (code, err) == (0, "")
    same = [(tmp_path / "runs" / name / "metrics.jsonl").read_text() for name in ("one", "two")]
    assert same[0] == same[1]


def test_a_federation_described_in_a_file(fova_command, tmp_path):
    save_npz(tmp_path / "ward.npz", make_transitions(0))
    (tmp_path / "wards.toml").write_text(
        '[algorithm]\npreset = "released"\nhidden = [8]\nbatch_size = 8\n[run]\nlocal_steps = 2\nrounds = 2\n'
        '[[client]]\nname = "north"\ndata = "ward.npz"\nsize = 20\n'
        '[[client]]\nname = "south"\ndata = "ward.npz"\noffset = 20\nsize = 15\n'
    )
    code, out, err = fova_command("train", "--config", "wards.toml", "--name", "wards", "--rounds", 3, "--plain")
    assert (code, err) == (0, "")
    assert "compiling" in out
    assert "round 3/3" in out
    clients = json.loads((tmp_path / "runs/wards/clients.json").read_text())
    assert {name: client["rows"] for name, client in clients.items()} == {"north": 20, "south": 15}
    config = (tmp_path / "runs/wards/config.toml").read_text()
    assert 'conservative = "logsumexp"' in config


def test_tasks_are_listed(fova_command):
    assert "maze2d-umaze" in fova_command("tasks")[1]


def bad_npz(tmp_path, **changes):
    arrays = npz_arrays(make_transitions(0)) | changes
    np.savez(tmp_path / "bad.npz", **{name: array for name, array in arrays.items() if array is not None})


def nan_reward(tmp_path):
    rewards = make_transitions(0).rewards.copy()
    rewards[5] = np.nan
    bad_npz(tmp_path, rewards=rewards)


def loud_action(tmp_path):
    actions = make_transitions(0).actions.copy()
    actions[7, 1] = 1.5
    bad_npz(tmp_path, actions=actions)


def text_column(tmp_path):
    bad_npz(tmp_path, rewards=np.array(["x"] * len(make_transitions(0))))


def no_rows(tmp_path):
    bad_npz(tmp_path, **{name: array[:0] for name, array in npz_arrays(make_transitions(0)).items()})


BAD_DATA = {
    "NaN reward": (nan_reward, ("bad.npz", "rewards", "5")),
    "action out of bounds": (loud_action, ("actions", "7", "1.5", "--action-low")),
    "wrong shape": (lambda path: bad_npz(path, rewards=np.zeros(3, np.float32)), ("bad.npz", "rewards")),
    "text column": (text_column, ("bad.npz", "rewards")),
    "missing field": (lambda path: bad_npz(path, actions=None), ("bad.npz", "actions")),
    "no rows": (no_rows, ("bad.npz",)),
    "empty file": (lambda path: (path / "bad.npz").write_bytes(b""), ("bad.npz",)),
    "not an archive": (lambda path: (path / "bad.npz").write_text("hello"), ("bad.npz",)),
}


@pytest.mark.parametrize("kind", BAD_DATA)
def test_bad_data_is_one_message_and_exit_code_two(fova_command, tmp_path, kind):
    make_bad, words = BAD_DATA[kind]
    make_bad(tmp_path)
    code, _, err = fova_command("train", "--clients", "bad.npz", "--name", "never", *TINY)
    assert code == 2
    assert "Traceback" not in err
    assert all(word in err for word in words), err
    assert len(err.splitlines()) < 15
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("trian",), "'train'"),
        (("train", "--task", "hoper", "--clients", "expert"), "hoper"),
        (("train", "--task", "maze2d-umaze", "--clients", "exper"), "'expert'"),
        (("train", "--task", "maze2d-umaze"), "--clients"),
        (("train", "--clients", "expert"), "--task"),
        (("train", "--clients", "nowhere.npz"), "nowhere.npz"),
        (("train", "--algorithm", "sarsa"), "sarsa"),
        (("train", "--preset", "best"), "recommended"),
        (("train", "--config", "nowhere.toml"), "nowhere.toml"),
        (("train", "--resume", "nowhere"), "nowhere"),
        (("train", "--task", "maze2d-umaze", "--clients", "expert", "--rounds", "0"), "rounds"),
        (("train", "--wrong-flag", "1"), "wrong-flag"),
        (("train", "--resume", "nowhere", "--rounds", "9"), "leave out --rounds"),
        (("train", "--task", "maze2d-umaze", "--clients", "expert", "--size", "-5"), "size"),
        (("train", "--rounds", "many"), "rounds"),
        (("evaluate", "nowhere"), "nowhere"),
        (("evaluate", "nowhere", "--episodes", "0"), "episodes"),
    ],
)
def test_mistakes_end_with_one_clear_message(fova_command, tmp_path, arguments, words):
    code, out, err = fova_command(*arguments)
    assert code == 2
    assert words in err + out
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("task = ", "cannot be read"),
        ("tusk = 'x'", "'task'"),
        ("[run]\nrounds = 'ten'", "a whole number"),
        ("[run]\nround = 3", "'rounds'"),
        ("[[client]]\nsize = 3", "data"),
        ("[[client]]\ndata = 3", "a text"),
        ("[client]\ndata = 'x'", "[[client]]"),
        ("[algorithm]\nalpha = 'x'", "a number"),
        ("algorithm = 3", "must be tables"),
        ("task = 3", "task"),
    ],
)
def test_mistakes_in_a_configuration_file_are_named(fova_command, tmp_path, toml, words):
    (tmp_path / "federation.toml").write_text(toml)
    code, _, err = fova_command("train", "--config", "federation.toml")
    assert code == 2
    assert words in err
    assert "Traceback" not in err


def test_an_operating_system_error_is_told_without_a_traceback(fova_command, monkeypatch, tmp_path):
    save_npz(tmp_path / "ward.npz", make_transitions(0))

    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("fova.run.directory.write_atomically", full)
    code, _, err = fova_command("train", "--clients", "ward.npz", "--name", "full", *TINY)
    assert code == 2
    assert "No space left on device" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "command", [("train",), ("compare",), ("evaluate",), ("data", "inspect"), ("data", "import"), ("demo",)]
)
def test_help_never_says_that_nothing_is_the_default(fova_command, command):
    code, out, _ = fova_command(*command, "--help-all")
    assert code == 0
    assert "None" not in out
    assert out.count("(default: ") >= 2


def test_what_a_file_sets_is_the_default_that_help_shows(fova_command, tmp_path):
    (tmp_path / "run.toml").write_text("[run]\naction_low = [0.25]\naction_high = [7.5]\nrounds = 77\n")
    _, out, _ = fova_command("train", "--config", "run.toml", "--help-all")
    for default in ("(default: 0.25)", "(default: 7.5)", "(default: 77)"):
        assert default in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tasks", ""), "An argument is empty."),
        (("judge", " "), "An argument is empty."),
        (("export", "run", "-o", ""), "-o is empty."),
        (("report", "run", "--output="), "--output is empty."),
        (("server", "--resume="), "--resume is empty."),
        (("data", "inspect", ""), "An argument is empty."),
    ],
)
def test_an_empty_argument_is_refused(fova_command, arguments, words):
    """It is often a variable that was not set, and as a path it would be the current folder."""
    code, _, errors = fova_command(*arguments)
    assert (code, words in errors) == (2, True)


def test_a_deleted_folder_is_named_as_the_reason(tmp_path):
    (tmp_path / "gone").mkdir()
    command = f"cd {tmp_path}/gone && rmdir {tmp_path}/gone && {sys.executable} -m fova"
    ended = subprocess.run(
        ["bash", "-c", f"{command} certificates make --hosts h --clients a"], capture_output=True, text=True
    )
    assert (ended.returncode, "The current folder was deleted" in ended.stderr) == (2, True)
