"""The example of the insulin task: its CSV files hold the task's data, and fova reads them as such."""

import importlib.util
from pathlib import Path

import numpy as np

from example_tables import printed_and_made
from fova.commands.insulin_demo import CLINICS
from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader
from fova.tasks import datasets, registry

EXAMPLE = Path(__file__).parents[3] / "examples/insulin/make_data.py"


def make_data():
    found = importlib.util.spec_from_file_location("make_data", EXAMPLE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_files_hold_the_days_of_the_task(tmp_path):
    example, clinic = make_data(), CLINICS[2]
    file = tmp_path / "east.csv"
    example.write(clinic, file, days=2, seed=0)
    _, sources = TableReader(Columns.of(example.MAPPING)).load({"east": file})
    made = datasets.make_episodes(registry.get("glucose"), clinic.quality, 192, 0)[:2]
    read = sources["east"].transitions
    # The last row of a day that goes on has no next observation in a table, so it is no transition.
    np.testing.assert_array_equal(read.observations, np.concatenate([day.observations[:-2] for day in made]))
    np.testing.assert_array_equal(read.next_observations, np.concatenate([day.observations[1:-1] for day in made]))
    np.testing.assert_array_equal(read.actions, np.concatenate([day.actions[:-1] for day in made]))
    np.testing.assert_array_equal(read.rewards, np.concatenate([day.rewards[:-1] for day in made]))
    assert file.read_text().splitlines()[1].startswith("child#001,0,0,")


def test_the_table_on_the_page_is_that_of_the_committed_figures(monkeypatch):
    printed, made = printed_and_made("insulin", monkeypatch)
    assert printed == made
