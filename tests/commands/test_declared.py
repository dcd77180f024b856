"""Help that is read from source says what help from the imported settings says."""

from dataclasses import fields
from typing import get_type_hints

import pytest

from fova import algorithms
from fova.commands.declared import declared, declared_algorithms, declared_presets
from fova.network.server_config import ServerConfig
from fova.run.config import RunConfig
from fova.tasks.behaviour import BehaviourConfig


def test_every_algorithm_is_found_with_its_presets():
    found = declared_algorithms()
    assert sorted(found) == sorted(algorithms.by_name())
    for name, where in found.items():
        assert declared_presets(*where) == getattr(algorithms.get(name), "presets", None), name


KINDS = [RunConfig, ServerConfig, BehaviourConfig, *algorithms.by_name().values()]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_fields_are_those_of_the_class(kind):
    read = declared(kind.__module__, kind.__name__)
    assert {f.name: f.default for f in fields(read)} == {f.name: f.default for f in fields(kind)}
    assert [f.name for f in fields(read)] == [f.name for f in fields(kind)]
    hints = get_type_hints(kind)
    assert get_type_hints(read) == {f.name: hints[f.name] for f in fields(kind)}


@pytest.mark.parametrize(
    "command",
    ["train --help", "train --algorithm drpo --help-all", "server --help-all", "data train-behaviour --help"],
)
def test_help_from_source_equals_help_from_the_imported_class(fova_command, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "120")
    read = fova_command(*command.split())
    for module in ("run_arguments", "server", "data.train_behaviour"):
        monkeypatch.setattr(f"fova.commands.{module}.asks_for_help", lambda _: False)
    assert fova_command(*command.split()) == read
    assert "--seed" in read[1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [("--algorithm fovva", "Did you mean 'fova' or 'fedora'?"), ("--preset equation", "Did you mean 'equations'?")],
)
def test_help_for_an_unknown_algorithm_or_preset_names_the_known_ones(fova_command, flags, message):
    code, _, err = fova_command("train", *flags.split(), "--help")
    assert code == 2
    assert message in err
