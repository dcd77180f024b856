"""The generated pages of the reference: commands from their help, settings from the dataclasses that declare them."""

import ast
import contextlib
import inspect
import io
import os
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from fova import algorithms
from fova.commands import main as command_line
from fova.run.config import RunConfig
from fova.settings import LARGEST, Within

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
    return _table(RunConfig)


def algorithm_settings() -> str:
    """The settings of every algorithm, with the values of its presets."""
    return "\n\n".join(f"### {name}\n\n{_table(kind)}" for name, kind in sorted(algorithms.by_name().items()))


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
    hints, meaning = get_type_hints(kind, include_extras=True), _descriptions(kind)
    rows = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for item in fields(kind):
        if item.name not in meaning:
            continue
        text = meaning[item.name] + _range(hints[item.name])
        rows.append(f"| `{item.name}` | {_type(hints[item.name])} | {_default(item)} | {_cell(text)} |")
    return "\n".join(rows)


def _descriptions(kind: type) -> dict[str, str]:
    """The strings below the fields of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        with contextlib.suppress(OSError, TypeError):
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            found.update(_strings_below(body.body if isinstance(body, ast.ClassDef) else ()))
    return found


def _strings_below(body: Iterable[ast.stmt]) -> dict[str, str]:
    found, last = {}, None
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and last:
            found[last] = " ".join(str(statement.value.value).split())
        target = statement.target if isinstance(statement, ast.AnnAssign) else None
        last = target.id if isinstance(target, ast.Name) else None
    return found


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


def _range(hint: Any) -> str:
    limits = [item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Within)]
    if not limits or (limits[0].least <= -LARGEST and limits[0].most >= LARGEST):
        return ""
    (limit,) = limits
    low = f"{'above' if limit.above else 'at least'} {limit.least:g}" if limit.least > -LARGEST else ""
    high = f"{'below' if limit.below else 'at most'} {limit.most:g}" if limit.most < LARGEST else ""
    return f" ({' and '.join(filter(None, (low, high)))})"


def _default(item: Any) -> str:
    if item.default is MISSING or item.default is None or item.default == ():
        return ""
    if isinstance(item.default, bool):
        return "yes" if item.default else "no"
    return f"`{' '.join(map(str, item.default)) if isinstance(item.default, tuple) else item.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
