"""Convert command-line arguments to the configuration of a run, for every command that trains."""

import re
from dataclasses import field, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from fova import algorithms
from fova.commands.columns import columns_of
from fova.commands.flags import as_declared, described
from fova.run.config import Config, ConfigFile, RunConfig, read_toml
from fova.settings import fill


def parse_run(
    arguments: list[str], options: type, prog: str, tables: dict[str, type] | None = None
) -> tuple[Config, Any]:
    """The configuration that the arguments describe, and the command's own options.

    Flags override the configuration file, the file overrides the preset, and the preset overrides the defaults.
    `tables` are additional groups of flags: the name of the table in the TOML file -> the dataclass that it fills.
    """
    arguments = [re.sub(r"^--lambda(?==|$)", "--lam", a) for a in arguments]  # `lambda` cannot name a Python field
    early = early_options(arguments, ("config", "algorithm", "preset"))
    file = read_toml(Path(early["config"])) if "config" in early else ConfigFile()
    algorithm = early.get("algorithm", file.algorithm or "fova")
    preset = early.get("preset")
    written = file.settings | ({} if preset is None else algorithms.preset_values(algorithm, preset))
    settings = algorithms.configure(algorithm, file.preset if preset is None else preset, **written)

    groups = {"run": fill(RunConfig, file.run, "of [run]"), "settings": settings}
    groups |= {name: fill(kind, getattr(file, name), f"of [{name}]") for name, kind in (tables or {}).items()}
    shown = {name: described(type(value))(**vars(value)) for name, value in groups.items()}
    flat = tyro.conf.arg(name="")
    command = make_dataclass(
        "Command",
        [(name, Annotated[type(value), flat], field(default=value)) for name, value in shown.items()],
        bases=(described(options),),
        frozen=True,
    )
    command.__doc__ = options.__doc__
    parsed: Any = tyro.cli(command, prog=prog, args=arguments)
    parsed = replace(parsed, **{n: as_declared(type(value), getattr(parsed, n)) for n, value in groups.items()})
    task = file.task if parsed.task is None else parsed.task
    columns = columns_of(parsed.columns, parsed.missing, file.columns)
    return Config(task, file.clients, parsed.settings, algorithm, parsed.run, columns), parsed


def early_options(arguments: list[str], names: tuple[str, ...]) -> dict[str, str]:
    """The options that decide which other options exist. They are read first."""
    found = {}
    for position, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag.removeprefix("--") in names and flag.startswith("--"):
            following = arguments[position + 1] if position + 1 < len(arguments) else ""
            found[flag.removeprefix("--")] = value if equals else following
    return found
