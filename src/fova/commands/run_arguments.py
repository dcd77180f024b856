"""Convert command-line arguments to the configuration of a run, for every command that trains."""

import importlib
import re
from dataclasses import field, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from fova.commands.columns import columns_of
from fova.commands.declared import declared, declared_algorithms, declared_presets
from fova.commands.flags import as_declared, asks_for_help, described, read_flags
from fova.errors import unknown
from fova.settings import fill

if TYPE_CHECKING:
    from fova.run.config import Config

Tables = dict[str, tuple[str, str]]  # the name of a table in the TOML file -> module and name of its dataclass


def parse_run(arguments: list[str], options: type, prog: str, tables: Tables | None = None) -> tuple["Config", Any]:
    """The configuration that the arguments describe, and the command's own options.

    Flags override the configuration file, the file overrides the preset, and the preset overrides the defaults.
    `tables` are additional groups of flags.
    """
    arguments = [re.sub(r"^--lambda(?==|$)", "--lam", a) for a in arguments]  # `lambda` cannot name a Python field
    early = early_options(arguments, ("config", "algorithm", "preset"))
    if asks_for_help(arguments) and "config" not in early and not early.get("algorithm", "").endswith(".py"):
        _help(arguments, early, options, prog, tables or {})
    from fova import algorithms
    from fova.run.config import Config, ConfigFile, RunConfig, read_toml

    file = read_toml(Path(early["config"])) if "config" in early else ConfigFile()
    algorithm = early.get("algorithm", file.algorithm or "fova")
    preset = early.get("preset")
    written = file.settings | ({} if preset is None else algorithms.preset_values(algorithm, preset))
    settings = algorithms.configure(algorithm, file.preset if preset is None else preset, **written)

    groups = {"run": fill(RunConfig, file.run, "of [run]"), "settings": settings}
    for name, (module, kind) in (tables or {}).items():
        groups[name] = fill(getattr(importlib.import_module(module), kind), getattr(file, name), f"of [{name}]")
    parsed: Any = read_flags(_command(options, groups), prog, arguments, sources=_sources(groups))
    parsed = replace(parsed, **{n: as_declared(type(value), getattr(parsed, n)) for n, value in groups.items()})
    task = file.task if parsed.task is None else parsed.task
    columns = columns_of(parsed.columns, parsed.missing, file.columns)
    return Config(task, file.clients, parsed.settings, algorithm, parsed.run, columns), parsed


def _help(arguments: list[str], early: dict[str, str], options: type, prog: str, tables: Tables) -> None:
    """Print the help and leave. The settings are read from source, because importing them takes seconds."""
    known, algorithm = declared_algorithms(), early.get("algorithm", "fova")
    if algorithm not in known:
        raise unknown("algorithm", algorithm, known, "Give an algorithm of your own as the path of its .py file.")
    presets = declared_presets(*known[algorithm])
    preset = early.get("preset", next(iter(presets)))
    if preset not in presets:
        raise unknown(f"preset of {algorithm}", preset, presets)
    groups = {"run": declared("fova.run.config", "RunConfig")()}
    groups |= {"settings": declared(*known[algorithm])(**presets[preset])}
    groups |= {name: declared(*kind)() for name, kind in tables.items()}
    read_flags(_command(options, groups), prog, arguments, sources=_sources(groups))


def _sources(groups: dict[str, Any]) -> dict[str, list[str]]:
    """Which flags are settings of the algorithm, and which of the network."""
    names = {name: [field.name.replace("_", "-") for field in fields(value)] for name, value in groups.items()}
    return {"algorithm": ["lambda", *names["settings"]], "network": names.get("server", [])}


def _command(options: type, groups: dict[str, Any]) -> type:
    """One dataclass of all flags: the command's own options, and the settings of every group."""
    shown = {name: described(type(value))(**vars(value)) for name, value in groups.items()}
    flat = tyro.conf.arg(name="")
    command = make_dataclass(
        "Command",
        [(name, Annotated[type(value), flat], field(default=value)) for name, value in shown.items()],
        bases=(described(options),),
        frozen=True,
    )
    command.__doc__ = options.__doc__
    return command


def early_options(arguments: list[str], names: tuple[str, ...]) -> dict[str, str]:
    """The options that decide which other options exist. They are read first."""
    found = {}
    for position, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag.removeprefix("--") in names and flag.startswith("--"):
            following = arguments[position + 1] if position + 1 < len(arguments) else ""
            found[flag.removeprefix("--")] = value if equals else following
    return found
