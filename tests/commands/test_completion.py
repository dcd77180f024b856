"""Completion scripts, in the shells that this machine has."""

import re
import shutil
import subprocess

import pytest

from fova.commands import completion
from fova.commands.main import COMMANDS


def test_every_flag_of_help_is_completed(fova_command):
    for command in ("train", "compare", "report", "watch"):
        shown = re.findall(r"^  (?:-o, )?--([a-z-]+)", fova_command(command, "--help-all")[1], re.MULTILINE)
        assert {f"--{name}" for name in shown} <= set(completion.flags_of(command)), command


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("fova wat", ["watch"]),
        ("fova train --local", ["--local-steps"]),
        ("fova train --lam", ["--lambda"]),
        ("fova data ins", ["inspect"]),
        ("fova completion f", ["fish"]),
    ],
)
def test_bash_completes(typed, expected):
    if shutil.which("bash") is None:
        pytest.skip("no bash on this machine")
    words = " ".join(f"'{word}'" for word in typed.split())
    last = len(typed.split()) - 1
    program = (
        f"{completion.bash()}\nCOMP_WORDS=({words}); COMP_CWORD={last}; _fova; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected
    assert done.stderr == ""


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_scripts_are_valid_and_name_every_command(fova_command, shell):
    code, out, err = fova_command("completion", shell)
    assert (code, err) == (0, "")
    assert all(re.search(rf"\b{name}\b", out) for name in COMMANDS)
    if shutil.which(shell):
        option = "--no-execute" if shell == "fish" else "-n"
        subprocess.run([shell, option], input=out, text=True, check=True, capture_output=True)


def test_another_shell_is_refused(fova_command):
    assert fova_command("completion", "cmd")[0] == 2
