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
from fova.run.records import Record
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


def config_command(record: Record) -> str:
    """The command that runs the configuration file again; a federation over a network starts with its server."""
    command = "server" if record.over_network else "train"
    return f"fova {command} --config {shlex.quote(str(record.directory / 'config.toml'))}"


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
