"""Help in groups, and hints for flags that do not exist."""

import re
from types import SimpleNamespace

import pytest

from fova.commands import helping
from fova.commands.helping import COMMON, GROUPS, Flag
from fova.errors import FovaError

ORDER = "common options:|federation:|run:|evaluation:|privacy:|network:|algorithm:"


def test_the_common_ones_come_first_and_the_rest_behind_help_all(fova_command):
    code, out, err = fova_command("train", "--help")
    assert (code, err) == (0, "")
    assert re.findall(r"^  --([a-z-]+)", out, re.MULTILINE) == list(COMMON)
    assert "fova train --help-all explains them" in out
    assert {"columns", "missing"} < set(COMMON)
    assert len(out.splitlines()) <= 48
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


# --- The layout ---


def test_a_text_stands_beside_its_flag_and_goes_on_below(monkeypatch):
    monkeypatch.setattr(helping, "_width", lambda: 60)
    text = "Play the policy every so many rounds; --evaluate-every-so-often is too long for its line."
    assert helping._entry(Flag("evaluate", "--evaluate", "NUMBER", text)).splitlines() == [
        "  --evaluate NUMBER       Play the policy every so many",
        "                          rounds; --evaluate-every-so-often",
        "                          is too long for its line.",
    ]


def test_a_long_flag_has_its_text_below(monkeypatch):
    monkeypatch.setattr(helping, "_width", lambda: 60)
    assert helping._entry(Flag("x", "--a-flag-with-a-name-of-its-own", "", "It is long.")).splitlines() == [
        "  --a-flag-with-a-name-of-its-own",
        "                          It is long.",
    ]
    head = "--" + "x" * 21  # with two blanks before it as wide as the column, less one
    assert helping._entry(Flag("x", head, "", "It fits.")) == f"  {head} It fits."
    assert helping._entry(Flag("x", head + "x", "", "It does not.")).splitlines()[0] == f"  {head}x"


def test_on_a_narrow_terminal_texts_stand_below(monkeypatch):
    monkeypatch.setattr(helping, "_width", lambda: 52)
    assert helping._entry(Flag("x", "--x", "", "Short.")).splitlines() == ["  --x", "    Short."]
    monkeypatch.setattr(helping, "_width", lambda: 53)
    assert helping._entry(Flag("x", "--x", "", "Short.")) == "  --x" + 21 * " " + "Short."


def test_a_flag_without_a_text_stands_alone():
    assert helping._entry(Flag("x", "--x", "NUMBER", "")) == "  --x NUMBER"


@pytest.mark.parametrize(("columns", "width"), [(5, 20), (20, 20), (80, 80), (110, 110), (300, 110)])
def test_help_is_as_wide_as_the_terminal_within_reason(monkeypatch, columns, width):
    monkeypatch.setattr(helping.shutil, "get_terminal_size", lambda: SimpleNamespace(columns=columns))
    assert helping._width() == width


@pytest.mark.parametrize(
    ("metavar", "value"),
    [
        ("{None}|STR", "TEXT"),
        ("INT|{None}", "NUMBER"),
        ("[FLOAT [FLOAT ...]]", "NUMBER ..."),
        ("{None,last,judge}", "{last,judge}"),
        ("{a,b}", "{a,b}"),
    ],
)
def test_a_value_is_described_for_people(metavar, value):
    assert helping._value(metavar) == value


@pytest.mark.parametrize(
    ("spellings", "metavar", "text", "flag"),
    [
        (["--plain"], None, "Plain lines. (default: False)", ("plain", "--plain", "", "Plain lines.")),
        (
            ["--judge"],
            None,
            "Judge. (default: True)",
            ("judge", "--judge, --no-judge", "", "Judge. (default: True)"),
        ),
        (["--size"], "INT", "Rows.", ("size", "--size", "NUMBER", "Rows.")),
        (["-o", "--output"], "STR", "File.", ("output", "-o, --output", "TEXT", "File.")),
        (["--task"], "{None}|STR", "Task.", ("task", "--task", "TASK", "Task.")),
    ],
)
def test_how_a_flag_is_spelt(spellings, metavar, text, flag):
    assert helping._flag(spellings, metavar, text) == Flag(*flag)


def test_clients_of_certificates_are_names(fova_command):
    out = fova_command("certificates", "--help")[1]
    assert "  --clients NAME ...      Names of the clients." in out
    assert "  --hosts ADDRESS ..." in out
    assert "  --clients DATA ..." in fova_command("train", "--help")[1]


def test_what_comes_without_a_flag_is_called_by_its_name():
    assert helping._place("runs", "[STR [STR ...]]", "Runs. (required)") == Flag("runs", "", "RUN ...", "Runs.")
    assert helping._place("run_a", "STR", "A run. (default: )") == Flag("run_a", "", "RUN-A", "A run.")


def test_resuming_takes_no_settings():
    given = ["--resume", "runs/x", "--host=here", "--local_steps", "3", "-3"]
    assert helping.insist_on_resuming_only(given, {"host", "local-steps", "port"}) == {"host", "local-steps"}
    with pytest.raises(FovaError, match="leave out --host, --local-steps"):
        helping.insist_on_resuming_only(given, {"port"})


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
