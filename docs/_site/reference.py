"""The generated pages of the reference: commands from their help, settings from the dataclasses that declare them.

Nothing here is committed as text, so the pages cannot fall behind the program.
"""

import contextlib
import io
import os
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, get_args, get_origin

from fova.commands import main as command_line
from fova.commands.declared import declared, declared_algorithms
from fova.settings import LARGEST, Within, setting_name

GENERATED = re.compile(r"<!-- generated: (?P<name>[\w-]+) -->")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
SUBCOMMANDS = re.compile(r"^\s+fova (?P<command>\w+) (?P<name>[a-z-]+)\b", re.MULTILINE)
WIDTH = "100"


def fill(uri: str, markdown: str) -> str:
    """A page with its generated parts in place of the comments that stand for them."""
    return GENERATED.sub(lambda found: PAGES[uri][found["name"]](), markdown)


def commands() -> str:
    """The help of every command."""
    parts = [_block(_printed(["--help"]))]
    for name in command_line.COMMANDS:
        text = _help(name)
        parts.append(f"## fova {name}\n\n{_block(text)}")
        for sub in _subcommands(name, text):
            parts.append(f"### fova {name} {sub}\n\n{_block(_help(name, sub))}")
    return "\n\n".join(parts)


def run_settings() -> str:
    return _table(declared("fova.run.config", "RunConfig"))


def algorithm_settings() -> str:
    """The settings of every algorithm."""
    known = sorted(declared_algorithms().items())
    return "\n\n".join(f"### {name}\n\n{_table(declared(*place))}" for name, place in known)


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "reference/commands.md": {"commands": commands},
    "reference/settings.md": {"run": run_settings, "algorithms": algorithm_settings},
}


def _help(*command: str) -> str:
    """The whole help of a command: that of --help-all where it exists."""
    return _printed([*command, "--help-all"]) or _printed([*command, "--help"])


def _subcommands(name: str, text: str) -> list[str]:
    names = dict.fromkeys(found["name"] for found in SUBCOMMANDS.finditer(text) if found["command"] == name)
    return [sub for sub in names if _printed([name, sub, "--help"])]


def _printed(arguments: list[str]) -> str:
    """What a command prints, or nothing if it fails."""
    os.environ["COLUMNS"], os.environ["NO_COLOR"] = WIDTH, "1"
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        try:
            command_line._dispatch(arguments)
        except SystemExit as stop:
            if stop.code:
                return ""
        except Exception:  # noqa: BLE001 - an option that a command does not have
            return ""
    return ESCAPES.sub("", output.getvalue()).strip("\n")


def _block(text: str) -> str:
    return f"```text\n{text}\n```"


def _table(kind: type) -> str:
    """The fields of a dataclass: name, type, default, range and meaning."""
    rows = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for item in fields(kind):
        notes = getattr(item.type, "__metadata__", ())
        help_ = next((note.help for note in notes if getattr(note, "help", None)), "")
        text = " ".join(help_.split()) + _range(notes)
        rows.append(f"| `{setting_name(item.name)}` | {_type(item.type)} | {_default(item)} | {_cell(text)} |")
    return "\n".join(rows)


def _type(hint: Any) -> str:
    """A type as a person would write it."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if hint is type(None):
        return "none"
    if get_origin(hint) in (tuple, list):
        return f"list of {_type(get_args(hint)[0])}"
    if get_args(hint):
        return " or ".join(map(_type, get_args(hint)))
    return {"int": "whole number", "float": "number", "str": "text", "bool": "yes or no"}.get(
        getattr(hint, "__name__", ""), str(hint)
    )


def _range(notes: tuple[Any, ...]) -> str:
    limits = [item for item in notes if isinstance(item, Within)]
    if not limits or (limits[0].least <= -LARGEST and limits[0].most >= LARGEST):
        return ""
    limit = limits[0]
    low = f"{'above' if limit.above else 'at least'} {_figure(limit.least)}" if limit.least > -LARGEST else ""
    high = f"{'below' if limit.below else 'at most'} {_figure(limit.most)}" if limit.most < LARGEST else ""
    return f" ({' and '.join(filter(None, (low, high)))})"


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:g}"


def _default(item: Any) -> str:
    if item.default is MISSING or item.default is None or item.default == ():
        return ""
    if isinstance(item.default, bool):
        return "yes" if item.default else "no"
    return f"`{' '.join(map(str, item.default)) if isinstance(item.default, tuple) else item.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
