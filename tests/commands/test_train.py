import shutil
import sys
from pathlib import Path

import pytest

from fova import algorithms
from fova.algorithms.base import Algorithm
from fova.errors import FovaError
from tiny import make_transitions, save_npz

TINY = ("--hidden", 8, "--batch-size", 8, "--rounds", 2, "--local-steps", 2)
EXAMPLE = Path(__file__).parents[2] / "examples/fed_awac.py"


# --- Resuming ---


def test_a_finished_run_says_so_and_is_not_trained_again(fova_command, tmp_path, monkeypatch):
    save_npz(tmp_path / "ward.npz", make_transitions(0))
    assert fova_command("train", "--clients", "ward.npz", "--name", "done", *TINY, "--quiet")[0] == 0
    monkeypatch.setattr("fova.run.training.resume", lambda *_: pytest.fail("the run was trained again"))
    code, out, err = fova_command("train", "--resume", "runs/done")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "runs/done: this run is already finished.",
        "policy   runs/done/policy.safetensors",
        "result   runs/done/result.json",
        "to read  fova report runs/done",
    ]
    (tmp_path / "runs/done/report.html").write_text("")
    assert "report   runs/done/report.html" in fova_command("train", "--resume=runs/done")[1]
    assert fova_command("train", "--resume", "runs/done", "--quiet") == (0, "", "")


def test_an_existing_run_and_a_corrupt_checkpoint(fova_command, tmp_path):
    save_npz(tmp_path / "ward.npz", make_transitions(0))
    flags = ("train", "--clients", "ward.npz", "--name", "taken", *TINY, "--quiet")
    assert fova_command(*flags)[0] == 0
    code, _, err = fova_command(*flags)
    assert code == 2
    assert "fova train --resume runs/taken" in err
    (tmp_path / "runs/taken/result.json").unlink()  # as if it had been interrupted
    newest = sorted((tmp_path / "runs/taken/checkpoints").iterdir())[-1]
    newest.write_bytes(b"rubbish")
    code, _, err = fova_command("train", "--resume", "runs/taken")
    assert code == 2
    assert newest.name in err
    assert newest.read_bytes() == b"rubbish", "nothing is deleted or overwritten"


# --- Names with square brackets ---


def test_square_brackets_in_names_and_paths_are_no_markup(fova_command, tmp_path):
    (tmp_path / "[red]").mkdir()
    save_npz(tmp_path / "[red]/[ward].npz", make_transitions(0))
    code, out, err = fova_command("train", "--clients", "[red]/[ward].npz", "--name", "[/bold]", *TINY, "--plain")
    assert (code, err) == (0, "")
    assert "policy   runs/[/bold]/policy.safetensors" in out
    assert "to read  fova report runs/[/bold]" in out
    code, _, err = fova_command("train", "--clients", "[/red].npz")
    assert code == 2
    assert "[/red].npz" in err
    assert "\\" not in err
    code, out, _ = fova_command("data", "validate", "[red]/[ward].npz")
    assert out.startswith("ok: [red]/[ward].npz")


def test_square_brackets_in_clients_names_are_no_markup(fova_command, tmp_path):
    (tmp_path / "maze.toml").write_text(
        'task = "maze2d-umaze"\n[run]\nepisodes = 1\nfinal_episodes = 1\n'
        '[[client]]\nname = "[/north]"\ndata = "random"\nsize = 300\n'
        '[[client]]\nname = "[bold]"\ndata = "random"\nsize = 300\n'
    )
    code, out, err = fova_command("train", "--config", "maze.toml", "--name", "x", *TINY, "--plain")
    assert (code, err) == (0, "")
    assert "[/north]" in out
    assert "[bold]" in out
    code, out, err = fova_command("evaluate", "runs/x", "--clients", "--episodes", 1)
    assert (code, err) == (0, "")
    assert "[/north]" in out
    assert "[bold]" in out


# --- Algorithms in users' files ---


def test_help_and_misspelt_flags_of_an_own_algorithm(fova_command, tmp_path):
    shutil.copy(EXAMPLE, tmp_path / "mine.py")
    code, out, err = fova_command("train", "--algorithm", "mine.py", "--help-all")
    assert (code, err) == (0, "")
    assert "Temperature of the weights exp(advantage / temperature)" in " ".join(out.split())
    code, out, err = fova_command("train", "--algorithm", "mine.py", "--temprature", 3)
    assert code == 2
    assert "has no flag --temprature. Did you mean --temperature" in err
    assert "Traceback" not in out + err


def test_two_files_of_one_name_are_two_modules(tmp_path):
    kinds = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        shutil.copy(EXAMPLE, tmp_path / folder / "mine.py")
        kinds.append(algorithms.get(str(tmp_path / folder / "mine.py")))
    assert kinds[0] is not kinds[1]
    for kind in kinds:
        assert vars(sys.modules[kind.__module__])["FedAwac"] is kind


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\ndef f(:\n    pass\n", "Line 2: SyntaxError: "),
        ("import os\n\nimport nosuchmodule\n", "Line 3: ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("def f():\n    return [][0]\n\nf()\n", "Line 2: IndexError: list index out of range"),
        ("raise SystemExit('no')\n", "Line 1: SystemExit: no"),
        ("import math\n", "holds 0 algorithms"),
    ],
)
def test_errors_in_an_own_file_are_named_with_their_line(fova_command, tmp_path, text, words):
    (tmp_path / "mine.py").write_text(text)
    code, out, err = fova_command("train", "--algorithm", "mine.py", "--help")
    assert (code, out) == (2, "")
    assert str(tmp_path / "mine.py") in err
    assert words in err
    assert "Traceback" not in err


def write_class(path, lines, decorator="@dataclass(frozen=True)", base=""):
    path.write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\n"
        "from fova.algorithms.base import ActorCritic\n"
        f'{decorator}\nclass Mine{base}:\n    name: ClassVar[str] = "mine"\n' + lines
    )
    return str(path)


def test_a_class_that_lacks_functions_is_refused(tmp_path):
    path = write_class(tmp_path / "mine.py", "    batch_size: int\n    def init(self, key, space): ...\n")
    with pytest.raises(FovaError, match=r"Mine in .*mine.py lacks ") as refused:
        algorithms.get(path)
    lacks = str(refused.value).split(" lacks ")[1].split(". ")[0].split(", ")
    functions = {name for name in vars(Algorithm) if not name.startswith("_")}
    assert {"receive", "step", "submit", "aggregate"} <= set(lacks)
    assert functions - {"init"} <= set(lacks)
    assert not {"init", "batch_size"} & set(lacks)
    with pytest.raises(FovaError, match="lacks step"):
        algorithms.get(write_class(tmp_path / "stepless.py", "", base="(ActorCritic)"))


@pytest.mark.parametrize("decorator", ["", "@dataclass"])
def test_a_class_that_is_no_frozen_dataclass_is_refused(tmp_path, decorator):
    base = "" if decorator else "(ActorCritic)"
    with pytest.raises(FovaError, match=r"@dataclass\(frozen=True\)"):
        algorithms.get(write_class(tmp_path / "mine.py", "    def step(self): ...\n", decorator, base))
