"""The command that runs a configuration again, to the letter.

Flags are written only where a setting differs from its default, so the command stays short. What flags cannot say
(named clients, offsets, a vocabulary of categories) needs the configuration file.
"""

import os
import shlex
from dataclasses import fields
from typing import Any

from fova import algorithms
from fova.federation.client_specs import ClientSpec
from fova.run.config import Config, RunConfig
from fova.run.directory import RunDirectory
from fova.run.records import Record, read_table
from fova.settings import setting_name


def train_command(config: Config) -> str | None:
    """`fova train` with flags, or None where only a configuration file can say it."""
    sizes = {client.size for client in config.clients}
    plain = all(client == ClientSpec(client.data, client.size) for client in config.clients)
    columns = [] if config.columns is None else config.columns.to_flags()
    settings = _changed(config.run, RunConfig()) | _changed(
        config.algorithm, algorithms.configure(config.algorithm_name)
    )
    if not plain or len(sizes) != 1 or columns is None or not all(map(_fits_a_flag, settings.values())):
        return None
    words = ["--task", config.task] if config.task else []
    words += ["--clients", *(_from_here(client.data) for client in config.clients)]
    if None not in sizes:
        words += ["--size", str(sizes.pop())]
    words += columns
    if config.algorithm_name != "fova":
        words += ["--algorithm", _from_here(config.algorithm_name)]
    for name, value in settings.items():
        words += _flag(setting_name(name).replace("_", "-"), value)
    return f"fova train {shlex.join(words)}"


def _from_here(name: str) -> str:
    """A file as a person here would name it; other names as they are."""
    return os.path.relpath(name) if os.path.isabs(name) else name


def config_command(record: Record) -> str | None:
    """The command that runs the configuration file again; a federation over a network starts with its server.

    None where the data was in memory: the file does not describe it.
    """
    file = ["--config", str(record.directory / "config.toml")]
    if record.over_network:
        return f"fova server {shlex.join([*file, *_server_flags(record)])}"
    return f"fova train {shlex.join(file)}" if record.config.clients else None


def _server_flags(record: Record) -> list[str]:
    """The server's settings, which are not in the configuration file. All are written: defaults may change.

    They are read without `fova.network`, which needs Flower.
    """
    about = read_table(RunDirectory(record.directory), "server.json")
    words = []
    for name, given in about.content.items():
        value = tuple(given) if isinstance(given, list) else given
        unused = name == "judge_rounds" and not about.content.get("judge")
        if name == "run_id" or unused or value is None or value is False or value == ():
            continue
        if not _fits_a_flag(value):
            raise about.wrong(name, given, "must be a number, a text or a list of these")
        words += _flag(name.replace("_", "-"), value)
    return words


def _changed(settings: Any, defaults: Any) -> dict[str, Any]:
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return {name: value for name, value in values.items() if value != getattr(defaults, name)}


def _fits_a_flag(value: Any) -> bool:
    parts = value if isinstance(value, tuple) else (value,)
    return all(isinstance(part, bool | int | float | str) for part in parts)


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]
