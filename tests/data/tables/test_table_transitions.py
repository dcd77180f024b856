"""From a table to transitions, with numbers worked out by hand."""

import gzip

import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader
from fova.errors import FovaError

ROWS = {
    "who": ["ann", "ann", "ann", "bob", "bob"],
    "hour": [0, 1, 2, 5, 6],
    "hr": [80.0, 81.0, 82.0, 90.0, 91.0],
    "age": [30, 30, 30, 60, 60],
    "dose": [0.5, 0.25, 0.75, 1.5, 0.1],
    "pay": [1.0, 2.0, 3.0, 4.0, 5.0],
    "died": [0, 0, 1, 0, 0],
}
COLUMNS = {
    "episode": "who",
    "time": "hour",
    "observations": ["hr", "age"],
    "action": "dose",
    "reward": "pay",
    "terminal": "died",
}


def loaded(table, **changes):
    columns = Columns.of(COLUMNS | changes)
    agreed, sources = TableReader(columns).load({"table": table})
    return agreed, sources["table"]


def test_the_rows_become_the_transitions_worked_out_by_hand():
    _, source = loaded(ROWS)
    data = source.transitions
    # Bob's last row has no next observation and is left out; ann's last row ended, so its own stands in.
    assert data.observations.tolist() == [[80, 30], [81, 30], [82, 30], [90, 60]]
    assert data.next_observations.tolist() == [[81, 30], [82, 30], [82, 30], [91, 60]]
    assert data.actions.tolist() == [[0.5], [0.25], [0.75], [1.5]]
    assert data.next_actions.tolist() == [[0.25], [0.75], [0.0], [0.0]]
    assert data.rewards.tolist() == [1, 2, 3, 4]
    assert data.terminals.tolist() == [0, 0, 1, 0]
    assert data.has_next_action.tolist() == [1, 1, 0, 0]
    assert data.episode_ends.tolist() == [False, False, True, True]
    assert source.observation_columns == ("hr", "age")
    assert any("Left out: the last step of 1 episode" in note for note in source.notes)


def csv(path, delimiter=","):
    pandas.DataFrame(ROWS).to_csv(path, index=False, sep=delimiter)
    return path


def gzipped(path, delimiter=","):
    path.write_bytes(gzip.compress(pandas.DataFrame(ROWS).to_csv(index=False, sep=delimiter).encode()))
    return path


def parquet(path):
    pyarrow.parquet.write_table(pyarrow.table(ROWS), path)
    return path


FORMS = {
    "csv": lambda folder: csv(folder / "a.csv"),
    "csv with semicolons": lambda folder: csv(folder / "a.csv", ";"),
    "tsv": lambda folder: csv(folder / "a.tsv", "\t"),
    "csv.gz": lambda folder: gzipped(folder / "a.csv.gz"),
    "tsv.gz": lambda folder: gzipped(folder / "a.tsv.gz", "\t"),
    "parquet": lambda folder: parquet(folder / "a.parquet"),
    "pandas": lambda folder: pandas.DataFrame(ROWS),
    "pandas with the keys as index": lambda folder: pandas.DataFrame(ROWS).set_index(["who", "hour"]),
    "polars": lambda folder: polars.DataFrame(ROWS),
    "arrow": lambda folder: pyarrow.table(ROWS),
    "shuffled": lambda folder: pandas.DataFrame(ROWS).iloc[[4, 2, 0, 3, 1]],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_gives_the_same_bytes(form, tmp_path):
    _, source = loaded(FORMS[form](tmp_path))
    _, plain = loaded(ROWS)
    if form == "shuffled":  # bob's rows come first, so his episode does
        assert sorted(source.transitions.rewards.tolist()) == plain.transitions.rewards.tolist()
        assert source.transitions.next_observations[0].tolist() == [91, 60]
        assert "The rows were not in order and were sorted by who and hour." in source.notes
    else:
        assert source.transitions.digest() == plain.transitions.digest()


# --- Endings -----------------------------------------------------------------------------------------------


def test_terminal_none_cuts_every_episode_off_and_last_ends_every_one():
    assert loaded(ROWS, terminal="none")[1].transitions.terminals.tolist() == [0, 0, 0]
    assert loaded(ROWS, terminal="last")[1].transitions.terminals.tolist() == [0, 0, 1, 0, 1]


def test_an_outcome_in_every_row_is_recognised_and_can_be_declared():
    outcome = ROWS | {"died": [1, 1, 1, 0, 0]}
    with pytest.raises(FovaError, match=r"is 1 in every row of those episodes.*terminal=last:died"):
        loaded(outcome)
    assert loaded(outcome, terminal="last:died")[1].transitions.terminals.tolist() == [0, 0, 1, 0]


def test_an_end_in_the_middle_of_an_episode_is_refused():
    with pytest.raises(
        FovaError, match=r"died: row 1 of episode 'ann' is marked as the end, but the episode continues"
    ):
        loaded(ROWS | {"died": [0, 1, 0, 0, 0]})


def test_without_a_terminal_the_choices_are_explained():
    with pytest.raises(FovaError, match=r"terminal=none: every episode\s.*cut off") as refused:
        Columns.of({name: value for name, value in COLUMNS.items() if name != "terminal"})
    assert "terminal=last: every episode really ended" in str(refused.value)


def test_one_long_record_needs_marks_where_it_is_cut():
    with pytest.raises(FovaError, match="no ending is marked in 5 rows"):
        loaded(ROWS, episode="none", terminal="none")
    cut = ROWS | {"cut": [0, 0, 1, 0, 1]}
    assert loaded(cut, episode="none", terminal="none", timeout="cut")[
        1
    ].transitions.episode_lengths().tolist() == [2, 1]


# --- Columns -----------------------------------------------------------------------------------------------


def test_patterns_take_all_matching_columns_in_natural_order():
    wide = ROWS | {f"lab_{i}": [float(i)] * 5 for i in (10, 2, 1)}
    _, source = loaded(wide, observations=["hr", "lab_*"])
    assert source.observation_columns == ("hr", "lab_1", "lab_2", "lab_10")
    _, source = loaded(ROWS, observations="*")
    assert source.observation_columns == ("age", "hr")  # no key, no action, nothing that comes after it


def test_a_misspelt_column_gets_a_suggestion():
    with pytest.raises(
        FovaError, match=r"(?s)There is no column in table for reward called 'payy'.*Did you mean 'pay'"
    ):
        loaded(ROWS, reward="payy")


def test_a_column_of_costs_counts_negatively():
    assert loaded(ROWS, reward="-pay")[1].transitions.rewards.tolist() == [-1, -2, -3, -4]
    named = {**ROWS, "-pay": [5.0] * len(ROWS["pay"])}  # a column of that very name is meant
    assert loaded(named, reward="-pay")[1].transitions.rewards.tolist() == [5, 5, 5, 5]
    assert Columns.of({**COLUMNS, "reward": "-pay"}).to_table()["reward"] == "-pay"
    with pytest.raises(FovaError, match="There is no column in table for reward called 'payy'"):
        loaded(ROWS, reward="-payy")
    with pytest.raises(FovaError, match="time and reward are both"):
        loaded(ROWS, reward=f"-{COLUMNS['time']}")


def test_a_mapping_survives_a_configuration_file(tmp_path):
    import tomli_w

    from fova.run.config import read_toml

    columns = Columns.of(
        COLUMNS
        | {"categories": {"age": ["30", "60"]}, "numbers": ["dose"], "missing": {"hr": "mean:80"}, "na": "-999"}
    )
    (tmp_path / "a.toml").write_text(tomli_w.dumps({"columns": columns.to_table()}))
    assert Columns.of(read_toml(tmp_path / "a.toml").columns) == columns


def test_leading_zeros_in_episode_names_count_in_csv(tmp_path):
    rows = ROWS | {"who": ["007", "007", "007", "7", "7"], "hour": [0, 1, 2, 1, 2]}
    pandas.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    assert loaded(tmp_path / "a.csv")[1].transitions.episode_lengths().tolist() == [3, 1]


# --- Actions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "names", "codes"),
    [
        ([2, 10, 2, 2, 10], ("2", "10"), [0, 1, 0, 0]),
        (["stop", "go", "go", "stop", "go"], ("go", "stop"), [1, 0, 0, 1]),
        ([True, False, False, True, True], ("false", "true"), [1, 0, 0, 1]),
    ],
)
def test_whole_numbers_and_text_are_choices_with_names(values, names, codes):
    agreed, source = loaded(ROWS | {"dose": values})
    assert agreed.choices == names == source.action_names
    assert source.transitions.actions[:, 0].tolist() == codes


def test_whole_numbers_are_quantities_only_if_the_user_says_so():
    whole = ROWS | {"dose": [0, 1, 2, 1, 0]}
    agreed, source = loaded(whole, numbers="dose")
    assert agreed.choices is None
    assert source.transitions.actions[:, 0].tolist() == [0, 1, 2, 1]
    with pytest.raises(FovaError, match=r"dose: holds only whole numbers \(3 different ones\).*categories=dose"):
        loaded(whole | {"dose": [0.0, 1.0, 2.0, 1.0, 0.0]})


def test_several_choices_at_once_are_refused():
    with pytest.raises(FovaError, match="Several choices at once are not supported"):
        loaded(ROWS | {"drug": ["a", "b", "a", "b", "a"]}, action=["dose", "drug"])
