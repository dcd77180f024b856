"""Help in groups, and hints for flags that do not exist."""

import re

import pytest

from fova.commands.helping import COMMON, GROUPS

ORDER = "common options:|federation:|run:|evaluation:|privacy:|network:|algorithm:"


def test_the_common_ten_come_first_and_the_rest_behind_help_all(fova_command):
    code, out, err = fova_command("train", "--help")
    assert (code, err) == (0, "")
    assert re.findall(r"^  --([a-z-]+)", out, re.MULTILINE) == list(COMMON)
    assert "fova train --help-all explains them" in out
    assert len(out.splitlines()) <= 40
    code, out, err = fova_command("train", "--help-all")
    assert (code, err) == (0, "")
    titles = re.findall(r"^[a-z ]+:$", out, re.MULTILINE)
    assert titles == ORDER.split("|")


def test_every_flag_has_one_entry_and_the_groups_name_only_flags_that_exist(fova_command):
    out = fova_command("server", "--help-all")[1] + fova_command("train", "--help-all")[1]
    flags = set(re.findall(r"^  --([a-z-]+)", out, re.MULTILINE))
    assert {name for names in GROUPS.values() for name in names.split()} - flags == set()
    train = re.findall(r"^  --([a-z-]+)", fova_command("train", "--help-all")[1], re.MULTILINE)
    assert len(train) == len(set(train)) > 60


def test_types_are_for_people(fova_command):
    out = fova_command("train", "--help-all")[1]
    assert "None" not in out
    assert "STR" not in out
    assert "  --config FILE " in out
    assert "  --mode {federated,local,centralised}\n" in out
    assert "  --quiet " in out
    assert "  --normalise, --no-normalise\n" in out
    assert "  RUN ..." in fova_command("report", "--help")[1]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--epochs", "Use --rounds or --local-steps."),
        ("--learning-rate=3", "Use --actor-lr or --critic-lr."),
        ("--lr", "Use --actor-lr or --critic-lr."),
        ("--batch", "Use --batch-size."),
        ("--gamma", "Use --discount."),
        ("--gpus", "JAX uses a GPU if it finds one"),
        ("--env", "Use --task."),
        ("--eval_freq", "Use --evaluate-every."),
        ("--roundz", "Did you mean --rounds?"),
        ("--xyzzy", "fova train has no flag --xyzzy.\nAll flags"),
    ],
)
def test_a_flag_from_habit_is_answered_with_ours(fova_command, flag, words):
    code, out, err = fova_command("train", flag, "3")
    assert (code, out) == (2, "")
    assert words in err
    assert "All flags: fova train --help-all" in err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--clients", "expert", "--clients", "random"), "--clients and then --clients"),
        (("--rounds", "1", "--rounds=2"), "--rounds and then --rounds"),
        (("--lambda", "1", "--lam", "2"), "--lambda and then --lambda"),
        (("--local-steps", "1", "--local_steps", "1"), "--local-steps and then --local-steps"),
        (("--normalise", "--no-normalise"), "--normalise and then --no-normalise"),
    ],
)
def test_a_flag_that_comes_twice_is_refused(fova_command, flags, words):
    code, out, err = fova_command("train", "--task", "maze2d-umaze", *flags)
    assert (code, out) == (2, "")
    assert f"{words} are given, but only the last would count" in err


@pytest.mark.parametrize("command", ["report", "plot", "export"])
def test_a_short_flag_that_comes_twice_is_refused(fova_command, command):
    for flags in (("-o", "a.html", "-o", "b.html"), ("--output", "a.html", "-o", "b.html")):
        code, out, err = fova_command(command, "run", *flags)
        assert (code, out) == (2, "")
        assert "--output and then --output are given" in err


def test_a_habit_is_answered_only_with_flags_that_the_command_has(fova_command):
    code, _, err = fova_command("tasks", "--epochs", "3")
    assert code == 2
    assert "--rounds" not in err
    code, _, err = fova_command("plot", "runs", "--out", "here")
    assert "Use --output." in err
