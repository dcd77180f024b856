"""From CSV files to a policy by commands alone."""

import json
from dataclasses import replace

import pytest

import fova
import hospitals
from fova.algorithms.bc import FedBc
from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader
from fova.federation.client_specs import ClientSpec
from fova.run.config import Config, load_config
from fova.run.training import build_federation

SMALL = ("--algorithm", "fed-bc", "--rounds", "1", "--local-steps", "2", "--hidden", "8", "--batch-size", "8")
SMALL = (*SMALL, "--quiet")


def columns(*changes):
    """The mapping of the hospitals, with other roles where they are given."""
    roles = dict(text.partition("=")[::2] for text in (*hospitals.COLUMNS, *changes))
    return [f"{role}={value}" for role, value in roles.items()]


def test_a_folder_of_csv_files_becomes_a_policy_and_a_report_in_three_commands(fova_command, tmp_path):
    files = hospitals.write(tmp_path)
    code, said, _ = fova_command("data", "inspect", *files)
    assert code == 0
    (proposal,) = [line for line in said.splitlines() if line.strip().startswith("fova train")]
    assert f"--columns {' '.join(hospitals.COLUMNS)} --action-low 0.01 --action-high 2" in proposal
    code, _, errors = fova_command(*proposal.split()[1:], *SMALL, "--name", "wards")
    assert code == 0, errors
    code, _, _ = fova_command("report", "runs/wards", "-o", "page.html")
    assert code == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000
    policy = fova.load_policy("runs/wards")
    action = policy({"hr": 80, "map": 65, "lactate": 2.5, "age": 60})
    assert 0.01 <= action[0] <= 2.0
    assert policy([{"hr": 80, "map": 65, "lactate": 2.5, "age": 60}] * 3).shape == (3, 1)


def test_choices_are_discrete_actions_with_names_that_all_clients_share(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("north", "south")):
        frame = hospitals.hospital(seed)
        frame["drug"] = frame.dose.map(lambda dose: "none" if dose < 0.8 else "low" if dose < 1.4 else "high")
        frame.drop(columns="dose").to_csv(tmp_path / f"{name}.csv", index=False)
    config = Config(None, (ClientSpec("north.csv"), ClientSpec("south.csv")), FedBc(), "fed-bc")
    federation = build_federation(replace(config, columns=Columns.of(columns("action=drug"))))
    assert federation.space.action.names == ("high", "low", "none")
    first = hospitals.hospital(0).dose[0]
    assert federation.clients["north-1"].actions[0, 0] == (2 if first < 0.8 else 1 if first < 1.4 else 0)


def test_missing_values_and_categories_travel_inside_the_policy(fova_command, tmp_path):
    for seed, name in enumerate(("north", "south")):
        frame = hospitals.hospital(seed).assign(ward="AB"[seed])
        frame.loc[[0, 5], "lactate"] = None
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    given = ("--clients", "north.csv", "south.csv", *hospitals.BOUNDS)
    mapping = ("--columns", *columns("observations=hr,lactate,ward"))
    code, _, errors = fova_command("train", *given, *mapping, *SMALL)
    assert code == 2
    assert "lactate: 2 missing. Say what to do: --missing lactate=..." in errors
    code, _, errors = fova_command("train", *given, *mapping, "--missing", "lactate=mean", *SMALL, "--name", "a")
    assert code == 0, errors
    policy = fova.load_policy("runs/a")
    assert policy.inputs.places() == ["hr", "lactate", "lactate missing", "ward=A", "ward=B", "ward=other"]
    frames = [hospitals.hospital(seed).lactate.drop([0, 5]) for seed in (0, 1)]
    mean = sum(frame.sum() for frame in frames) / sum(map(len, frames))
    assert policy.inputs.inputs[1].mean == pytest.approx(mean, rel=1e-6)
    policy({"hr": 80, "lactate": None, "ward": "C"})
    # The run's own configuration holds the mapping, so that it can be run again.
    assert load_config(tmp_path / "runs/a/config.toml").columns == Columns.of(mapping[1:], ["lactate=mean"])
    code, _, errors = fova_command("train", "--config", "runs/a/config.toml", "--name", "b")
    assert code == 0, errors
    assert fova.load_policy("runs/b").inputs == policy.inputs


def test_under_privacy_the_mapping_must_say_everything(fova_command, tmp_path):
    for name in ("north", "south"):
        hospitals.hospital(0).assign(ward="A").to_csv(tmp_path / f"{name}.csv", index=False)
    private = ("--privacy", "server", "--privacy-clip", "1", "--privacy-noise", "1", "--aggregation", "uniform")
    private = (*private, "--no-normalise", "--reward-unit", "1", *hospitals.BOUNDS)
    given = ("--clients", "north.csv", "south.csv", *private, *SMALL, "--columns")
    code, _, errors = fova_command("train", *given, *columns("observations=hr,ward"), "categories=ward")
    assert code == 2
    assert "ward: under privacy clients tell nothing about their data" in errors
    code, _, errors = fova_command("train", *given, *columns(), "--missing", "hr=mean")
    assert code == 2
    assert "give its mean, as in hr = mean:1.8" in errors
    said = TableReader(Columns.of(columns(), ["hr=mean:80"]), private=True).load({"north": "north.csv"})[0]
    assert said.recipe.inputs[0].mean == 80


def test_a_table_without_a_mapping_is_answered_with_a_proposal(fova_command, tmp_path):
    hospitals.write(tmp_path)
    code, _, errors = fova_command("train", "--clients", "north.csv", *SMALL)
    assert code == 2
    assert f"--columns {' '.join(hospitals.COLUMNS)}" in errors
    code, _, errors = fova_command("data", "validate", "north.csv")
    assert code == 2
    assert "Say what the columns of north.csv mean" in errors
    code, said, _ = fova_command(
        "data", "validate", "north.csv", "--columns", *hospitals.COLUMNS, *hospitals.BOUNDS
    )
    assert code == 0
    assert "ok: north.csv (CSV), 75 rows in 12 episodes" in said


def test_python_takes_frames_and_files_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hospitals.write(tmp_path)
    settings = {"algorithm": "fed-bc", "rounds": 1, "local_steps": 2, "hidden": (8,), "batch_size": 8}
    settings |= {"action_low": (0.0,), "action_high": (2.0,)}
    mapping = dict(text.split("=") for text in hospitals.COLUMNS)
    mixed = fova.train(
        clients={"east": hospitals.hospital(2), "west": "west.csv"}, columns=mapping, directory="a", **settings
    )
    files = fova.train(clients={"east": "east.csv", "west": "west.csv"}, columns=mapping, directory="b", **settings)
    record = {"hr": 80, "map": 65, "lactate": 2.5, "age": 60}
    assert mixed.policy(record) == files.policy(record)
    # A program shows no progress, but what was left out of the data is not kept from it.
    assert any("east" in note and "Left out: the last step of 9 episodes" in note for note in mixed.notes)
    assert json.loads((tmp_path / "a/notes.json").read_text()) == list(mixed.notes)
    assert fova.resume("b", federation=None).notes == files.notes
    with pytest.raises(fova.FovaError, match="Say what the columns of the tables mean"):
        fova.train(clients={"east": hospitals.hospital(2)}, **settings)
