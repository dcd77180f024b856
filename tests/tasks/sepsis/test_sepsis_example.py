"""The example of the sepsis task: its CSV files hold the task's data, with the codes of the task's actions."""

import importlib.util
from pathlib import Path

import numpy as np

from example_tables import printed_and_made
from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader
from fova.tasks import datasets, registry
from fova.tasks.sepsis import ACTIONS

EXAMPLE = Path(__file__).parents[3] / "examples/sepsis/make_data.py"


def make_data():
    found = importlib.util.spec_from_file_location("make_sepsis_data", EXAMPLE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_files_hold_the_stays_of_the_task(tmp_path):
    example, file = make_data(), tmp_path / "north.csv"
    example.write("expert", file, stays=20, seed=0)
    agreed, sources = TableReader(Columns.of(example.MAPPING)).load({"north": file})
    made = datasets.make_episodes(registry.get("sepsis"), "expert", 500, 0)[:20]
    read = sources["north"].transitions
    assert agreed.choices == ACTIONS  # though not all of them were chosen
    np.testing.assert_array_equal(read.observations, np.concatenate([stay.observations[:-1] for stay in made]))
    np.testing.assert_array_equal(read.actions, np.concatenate([stay.actions for stay in made]))
    np.testing.assert_array_equal(read.rewards, np.concatenate([stay.rewards for stay in made]))
    assert read.terminals.sum() == 20


def test_the_table_on_the_page_is_that_of_the_committed_figures(monkeypatch):
    printed, made = printed_and_made("sepsis", monkeypatch)
    assert printed == made
