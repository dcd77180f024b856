"""Help and wrong flags: the common flags first, the others in groups, and hints for what people type from habit.

Help is laid out here because a run has a hundred flags. `--help` shows the common ones and names the groups;
`--help-all` shows everything.
"""

import re
import shutil
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from fova.errors import FovaError
from fova.settings import setting_name

HELP = ("-h", "--help", "--help-all")
SHORT = {"-o": "--output"}  # short names of flags
WIDEST = 110
FLAG_COLUMN = 26

COMMON = (
    "task", "clients", "columns", "missing", "size", "config", "algorithm", "rounds", "local-steps", "seed", "name",
    "resume",
)  # fmt: skip
GROUPS = {
    "federation": (
        "task clients size columns missing config mode aggregation largest-share average-rounds participation "
        "cohort sampling normalise reward-scale reward-unit action-low action-high actions action-names "
        "data-sequence"
    ),
    "run": "name resume rounds local-steps seed dry-run processes coordinator checkpoint-seconds track quiet plain",
    "evaluation": (
        "hold-out select evaluate-every episodes evaluate-clients evaluate-in-background final-episodes "
        "final-clients"
    ),
    "privacy": "privacy privacy-clip privacy-noise privacy-delta privacy-epsilon secure-aggregation",
    "network": "compress insecure prepare",
    "algorithm": "algorithm preset",
}
# Values that say more than their type.
VALUES = {
    "task": "TASK", "clients": "DATA ...", "columns": "WHAT=COLUMN ...", "missing": "COLUMN=HOW ...",
    "config": "FILE", "algorithm": "NAME", "algorithms": "NAME ...", "preset": "NAME", "name": "NAME",
    "resume": "RUN", "aggregation": "RULE", "action-names": "NAME ...", "data-sequence": "DATA ...",
    "certificates": "FOLDER", "host": "ADDRESS",
}  # fmt: skip
VALUES_OF = {"fova certificates make": {"clients": "NAME ...", "hosts": "ADDRESS ..."}}  # of one command
# What people type from habit, and the flags of ours that mean it.
HABITS = {
    "epochs n-epochs num-epochs max-epochs steps num-steps n-steps iterations max-steps num-rounds n-rounds "
    "communication-rounds": "rounds local-steps",
    "local-epochs local-iterations local-updates": "local-steps",
    "learning-rate lr": "actor-lr critic-lr",
    "batch bs minibatch": "batch-size",
    "gamma": "discount",
    "polyak soft-update": "tau",
    "hidden-size hidden-dim hidden-dims hidden-layers layers width units": "hidden",
    "env env-id env-name environment dataset": "task",
    "data files data-path dataset-path file input": "clients",
    "num-clients n-clients nodes": "clients",
    "samples transitions rows n-samples": "size",
    "algo method agent": "algorithm",
    "output out output-dir out-dir logdir log-dir save-dir run-name exp-name experiment": "name output",
    "wandb mlflow logger use-wandb": "track",
    "load checkpoint restore continue": "resume",
    "random-seed": "seed seeds",
    "eval-every eval-freq eval-interval eval-frequency": "evaluate-every",
    "eval-episodes n-eval-episodes num-eval-episodes": "episodes final-episodes",
    "workers num-workers n-jobs parallel processes": "jobs",
    "verbose silent": "quiet plain",
    "aggregator strategy": "aggregation",
    "dp epsilon noise differential-privacy": "privacy privacy-noise privacy-epsilon",
    "fraction fraction-fit client-fraction": "participation",
    "validation-split val-split test-split test-size": "hold-out",
}  # fmt: skip
GPU = "gpus gpu cuda device devices num-gpus use-gpu"
GPU_WORDS = "JAX uses a GPU if it finds one; the variable CUDA_VISIBLE_DEVICES chooses which. See docs/gpu.md."


class Flag(NamedTuple):
    """One flag as help shows it."""

    name: str  # without its hyphens
    spelling: str
    value: str
    text: str

    @property
    def head(self) -> str:
        return f"{self.spelling} {self.value}".strip()


# --- Help ---


def wants_help(arguments: Sequence[str]) -> bool:
    return any(argument in HELP for argument in arguments)


Sources = Mapping[str, Sequence[str]]  # group of flags -> names


def help_text(
    command: type, prog: str, whole: bool, config: Sequence[Any] = (), sources: Sources | None = None
) -> str:
    """The help of a command. `sources` says which names are settings of the algorithm or of the network."""
    positional, flags = _read(command, prog, config)
    usage = " ".join(["usage:", prog, *(flag.value for flag in positional), "[options]"])
    parts = [usage, *_paragraphs(command.__doc__ or "")]
    if positional:
        parts.append("\n".join(_entry(flag) for flag in positional))
    if sources is None:
        parts.append(_section("options", flags))
        return "\n\n".join(parts) + "\n"
    common = [flag for name in COMMON for flag in flags if flag.name == name]
    parts.append(_section("common options", common))
    grouped = _grouped([flag for flag in flags if flag not in common], sources)
    if whole:
        parts += [_section(name, members) for name, members in grouped.items()]
    else:
        listed = ", ".join(f"{name} ({len(members)})" for name, members in grouped.items())
        parts.append(f"more options: {listed}\n  {prog} --help-all explains them")
    return "\n\n".join(parts) + "\n"


def _grouped(flags: Sequence[Flag], sources: Sources) -> dict[str, list[Flag]]:
    """The flags by group. A name that no group has goes where its source says, else to the run."""
    where = {name: group for group, names in sources.items() for name in names}
    where |= {name: group for group, names in GROUPS.items() for name in names.split()}
    grouped: dict[str, list[Flag]] = {group: [] for group in GROUPS}
    for flag in flags:
        grouped[where.get(flag.name, "run")].append(flag)
    return {group: members for group, members in grouped.items() if members}


def _read(command: type, prog: str, config: Sequence[Any]) -> tuple[list[Flag], list[Flag]]:
    """What comes without a flag, and the flags of a command."""
    import tyro

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        parser = tyro.extras.get_parser(command, prog=prog, config=tuple(config))
    positional, flags = [], []
    for action in parser._actions:
        text = " ".join((action.help or "").split())
        if not action.option_strings:
            positional.append(_place(action.dest, str(action.metavar), text))
        elif "--help" not in action.option_strings:
            flag = _flag(list(action.option_strings), action.metavar, text)
            flags.append(flag._replace(value=VALUES_OF.get(prog, {}).get(flag.name, flag.value)))
    return positional, flags


def _place(name: str, metavar: str, text: str) -> Flag:
    """What comes without a flag, called by its name: RUN ... for runs."""
    many = "..." in metavar
    word = name.removesuffix("s" if many else "").replace("_", "-").upper()
    return Flag(name, "", f"{word} ..." if many else word, re.sub(r" ?\((required|default: )\)$", "", text))


def _flag(spellings: list[str], metavar: Any, text: str) -> Flag:
    long = [spelling for spelling in spellings if spelling.startswith("--")]
    name = setting_name(long[0].removeprefix("--"))
    if metavar is None:  # on or off
        off = text.endswith("(default: False)")
        spelling = f"--{name}" if off else f"--{name}, --no-{name}"
        return Flag(name, spelling, "", text.removesuffix("(default: False)").rstrip())
    short = [spelling for spelling in spellings if not spelling.startswith("--")]
    return Flag(name, ", ".join([*short, f"--{name}"]), VALUES.get(name, _value(str(metavar))), text)


def _value(metavar: str) -> str:
    """`{None}|STR` as TEXT, `[FLOAT [FLOAT ...]]` as NUMBER ..."""
    words = re.sub(r"\{None\}\||\|\{None\}|(?<=\{)None,", "", metavar).strip("[]").split(" [")[0]
    words = re.sub(r"\bSTR\b", "TEXT", re.sub(r"\b(INT|FLOAT)\b", "NUMBER", words))
    return f"{words} ..." if "..." in metavar else words


def _section(title: str, flags: Sequence[Flag]) -> str:
    return "\n".join([f"{title}:", *(_entry(flag) for flag in flags)])


def _entry(flag: Flag) -> str:
    """A flag and its text beside it, or below it where the flag is long."""
    width = _width()
    column = FLAG_COLUMN if width > 2 * FLAG_COLUMN else 4
    lines = textwrap.wrap(flag.text, max(12, width - column), break_on_hyphens=False) or [""]
    head = f"  {flag.head}"
    first = f"{head:<{column}}{lines[0]}" if len(head) < column else f"{head}\n{' ' * column}{lines[0]}"
    return "\n".join([first.rstrip(), *(" " * column + line for line in lines[1:])])


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in textwrap.dedent(text).strip().split("\n\n"):
        words = " ".join(paragraph.split())
        yield "\n".join(textwrap.wrap(words, _width(), break_on_hyphens=False, break_long_words=False))


def _width() -> int:
    return max(20, min(WIDEST, shutil.get_terminal_size().columns))


# --- Wrong flags ---


def check_flags(arguments: Sequence[str], command: type, prog: str) -> None:
    """Refuse a flag that the command does not have, and say which one is meant; refuse a flag that comes twice."""
    known = set(map(setting_name, flag_names(command)))
    seen: dict[str, str] = {}
    for argument in arguments:
        argument = SHORT.get(argument, argument)
        given = setting_name(argument.partition("=")[0].removeprefix("--").replace("_", "-"))
        if not re.match(r"--[A-Za-z]", argument) or given.startswith("tyro-"):
            continue
        if given not in known:
            raise _no_flag(given, known, prog)
        option = given.removeprefix("no-") if given.removeprefix("no-") in known else given
        if option in seen:
            raise FovaError(
                f"--{seen[option]} and then --{given} are given, but only the last would count. Give one of them, "
                "once, with all its values behind it."
            )
        seen[option] = given


def insist_on_resuming_only(arguments: Sequence[str], allowed: set[str]) -> set[str]:
    """The flags beside --resume, without their hyphens in front. Refuses those that are not allowed there."""
    flags = (argument.partition("=")[0] for argument in arguments if re.match(r"--[A-Za-z]", argument))
    given = {setting_name(flag.removeprefix("--").replace("_", "-")) for flag in flags} - {"resume"}
    if others := given - allowed:
        listed = ", ".join(f"--{name}" for name in sorted(others))
        raise FovaError(f"--resume takes its settings from the run; leave out {listed}.")
    return given


def flag_names(command: type) -> Iterator[str]:
    """The names of all flags of a dataclass of options, with those of its groups."""
    for option in fields(command):
        if is_dataclass(option.default) and not isinstance(option.default, type):
            yield from flag_names(type(option.default))
        else:
            name = option.name.replace("_", "-")
            yield name
            if isinstance(option.default, bool):
                yield f"no-{name}"


def _no_flag(given: str, known: set[str], prog: str) -> FovaError:
    more = f"All flags: {prog} --help-all"
    if given in GPU.split():
        return FovaError(f"{prog} has no flag --{given}. {GPU_WORDS}\n{more}")
    for habits, ours in HABITS.items():
        meant = [f"--{name}" for name in ours.split() if name in known]
        if given in habits.split() and meant:
            return FovaError(f"{prog} has no flag --{given}. Use {' or '.join(meant)}.\n{more}")
    near = get_close_matches(given, known, n=3, cutoff=0.6)
    guess = f" Did you mean {' or '.join(f'--{name}' for name in near)}?" if near else ""
    return FovaError(f"{prog} has no flag --{given}.{guess}\n{more}")
