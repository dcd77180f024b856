"""Data whose actions have names, with a task: the names must be those of the task, whatever their order."""

import numpy as np
import pandas
import pytest

from fova.data.npz import save_npz
from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.spaces import Discrete, Space
from fova.tasks.registry import Task
from hospitals import hospital

COLUMNS = {
    "episode": "patient_id",
    "time": "hour",
    "observations": ["hr", "map"],
    "action": "drug",
    "reward": "score",
    "terminal": "died",
}


def no_environment():
    raise AssertionError("no environment is needed")


DRUGS = Task("drugs", no_environment, Space(2, Discrete(("wait", "low", "high"))), time_limit=10)
DOSES = Task("doses", no_environment, Space.unit(2, 1), time_limit=10)


def frame(names, seed=0):
    table = hospital(seed)
    return table.assign(drug=[names[row % len(names)] for row in range(len(table))])


def codes(federation, client="north"):
    return federation.clients[client].actions[:3, 0].tolist()


def of_tables(tables, task=DRUGS, **settings):
    return Federation.of_tables(tables, COLUMNS | settings.pop("columns", {}), task, **settings)


def of_files(folder, tables, task=DRUGS, **settings):
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    specs = [ClientSpec(str(folder / f"{name}.csv"), name=name) for name in tables]
    return Federation.build(specs, task, reader=TableReader(Columns.of(COLUMNS)), **settings)


def test_names_take_the_places_that_they_have_in_the_task(tmp_path):
    tables = {"north": frame(["high", "wait", "low"]), "south": frame(["low", "high"], 1)}  # south never waits
    for federation in (of_tables(tables), of_files(tmp_path, tables)):
        assert federation.space == DRUGS.space
        assert codes(federation) == [2, 0, 1]
        assert codes(federation, "south") == [1, 2, 1]


def test_codes_keep_their_places_even_if_some_never_occur():
    assert codes(of_tables({"north": frame([2, 0])})) == [2, 0, 2]


def test_a_name_that_the_task_does_not_have_is_an_error_in_words(tmp_path):
    tables = {"north": frame(["wait", "hgih"])}
    words = (
        r"drug: it holds 'hgih', which is no action of drugs. Its 3 actions are wait, low, high. Use these names"
    )
    with pytest.raises(FovaError, match=words):
        of_tables(tables)
    with pytest.raises(FovaError, match=words):
        of_files(tmp_path, tables)
    with pytest.raises(FovaError, match="it holds '7', which is no action of drugs"):
        of_tables({"north": frame([0, 7])})


def test_choices_are_refused_where_the_task_has_numbers():
    with pytest.raises(FovaError, match=r"read as a choice among 2 .*doses has 1 action column.*numbers=drug"):
        of_tables({"north": frame([0, 1])}, DOSES)
    as_numbers = of_tables({"north": frame([0, 1])}, DOSES, columns={"numbers": ["drug"]})
    assert codes(as_numbers) == [0, 1, 0]


def test_names_in_a_file_of_arrays_must_be_the_tasks_in_their_order(tmp_path):
    data = of_tables({"north": frame(["high", "wait", "low"])}).clients["north"]
    for number, names in enumerate([("wait", "low", "high"), ("low", "wait", "high")]):
        save_npz(data, tmp_path / f"ward-{number}.npz", action_names=names)
    assert codes(Federation.build([ClientSpec(str(tmp_path / "ward-0.npz"))], DRUGS), "ward-0") == [2, 0, 1]
    with pytest.raises(FovaError, match="has the actions low, wait, high, but drugs has wait, low, high"):
        Federation.build([ClientSpec(str(tmp_path / "ward-1.npz"))], DRUGS)
    with pytest.raises(FovaError, match=r"doses has 1 action column of numbers, but the actions of .* have names"):
        Federation.build([ClientSpec(str(tmp_path / "ward-0.npz"))], DOSES)


def test_what_the_user_says_about_the_actions_must_fit_the_task(tmp_path):
    tables = {"north": frame(["wait", "low"])}
    with pytest.raises(FovaError, match="action_names are given, but drugs has names of its own"):
        of_files(tmp_path, tables, action_names=["a", "b", "c"])
    with pytest.raises(FovaError, match="doses has 1 action column of numbers, but discrete actions are asked for"):
        of_tables({"north": hospital(0)}, DOSES, columns={"action": "dose"}, actions="discrete")


def test_without_a_task_what_the_user_says_counts_for_frames_too():
    tables = {"north": frame([0, 5, 10])}
    with pytest.raises(FovaError, match="has the actions 0, 5, 10, but action_names has a, b, c"):
        of_tables(tables, None, action_names=("a", "b", "c"))
    with pytest.raises(FovaError, match=r"read as a choice, but actions are said to be continuous.*numbers=drug"):
        of_tables(tables, None, actions="continuous", bounds=(0, 10))
    kept = of_tables(tables, None, columns={"numbers": ["drug"]}, bounds=(0, 10))
    np.testing.assert_array_equal(kept.clients["north"].actions[:3, 0], [0, 5, 10])


def test_frames_of_pandas_with_categories_are_choices_too():
    table = frame(["high", "wait", "low"])
    assert codes(of_tables({"north": table.assign(drug=pandas.Categorical(table.drug))})) == [2, 0, 1]
