"""Tables of every form as Arrow columns: endings, types, frames, and what is refused."""

from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

from fova.data.tables import arrow
from fova.data.tables.arrow import ending, insist_on_table, is_table_file, known_endings, open_table
from fova.errors import FovaError


def refusal(call, *arguments):
    with pytest.raises(FovaError) as refused:
        call(*arguments)
    return str(refused.value)


# --- Names of files ---


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.csv", ".csv"),
        ("a.CSV", ".csv"),
        ("a.b.tsv", ".tsv"),
        ("a.csv.gz", ".csv.gz"),
        ("a.b.csv.gz", ".csv.gz"),
        ("a.gz", ".gz"),
        ("a", ""),
    ],
)
def test_the_ending_of_a_name(name, expected):
    assert ending(Path(name)) == expected


def test_which_files_are_tables():
    for name in ("a.csv", "a.tsv", "a.csv.gz", "a.tsv.gz", "a.parquet"):
        assert is_table_file(Path(name))
    assert not is_table_file(Path("a.npz"))


def test_only_tables_that_exist_are_taken(tmp_path):
    file = tmp_path / "north.csv"
    assert "There is no file" in refusal(insist_on_table, file)
    file.write_text("hr\n80\n")
    assert insist_on_table(file) == file
    assert "north.npz is none by its ending. Tables end in .csv, .tsv, .csv.gz" in refusal(
        insist_on_table, Path("north.npz")
    )
    assert known_endings(Path("north.xlsx")).endswith("Save the sheet as CSV.")
    assert known_endings(Path("north.dat")).endswith("Rename it if it is a table.")


# --- Opening ---


def test_files_say_their_format(tmp_path):
    (tmp_path / "a.csv").write_text("hr,ward\n80,A\n81,B\n")
    (tmp_path / "a.tsv").write_text("hr\tward\n80\tA\n")
    stored = pyarrow.table({"hr": [80.0, 81.0, 82.0], "ward": ["A", "B", "A"]})
    pyarrow.parquet.write_table(stored, tmp_path / "a.parquet")
    opened = {ending: open_table(tmp_path / f"a.{ending}") for ending in ("csv", "tsv", "parquet")}
    assert {ending: table.format for ending, table in opened.items()} == {
        "csv": "CSV",
        "tsv": "TSV",
        "parquet": "Parquet",
    }
    assert [table.rows for table in opened.values()] == [2, 1, 3]
    for table in opened.values():
        assert table.names == ["hr", "ward"]
        assert set(table.kinds) == {"hr", "ward"}
        assert table.column("hr").to_pylist()[0] == 80
    assert opened["parquet"].column("ward").to_pylist() == ["A", "B", "A"]
    assert opened["parquet"].name == str(tmp_path / "a.parquet")
    assert open_table(str(tmp_path / "a.csv")).rows == 2


def test_texts_of_a_parquet_file_are_read_as_codes_with_names(tmp_path):
    """Each distinct text is read once; numbers stay numbers."""
    columns = {"ward": ["A", "B", "A"], "hr": [1.5, 2.5, 1.5], "raw": [b"A", b"B", b"A"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    table = open_table(tmp_path / "a.parquet")
    assert pyarrow.types.is_dictionary(table.column("ward").type)
    assert table.column("hr").type == pyarrow.float64()
    assert table.column("raw").to_pylist() == ["A", "B", "A"]


def test_a_damaged_parquet_file_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing else PAR1")
    assert "It is damaged or not a Parquet file." in refusal(open_table, tmp_path / "a.parquet")


@pytest.mark.parametrize(("kind", "remedy"), [("Parquet", arrow.REMEDY_PARQUET), ("CSV", arrow.REMEDY)])
def test_a_column_that_cannot_be_read_is_named_with_the_remedy(kind, remedy):
    def broken(name):
        raise ValueError("a page is missing")

    table = arrow.Columnar("north", kind, ["hr"], {}, 1, broken)
    assert refusal(table.column, "hr") == f"north: hr: cannot be read (a page is missing). {remedy}"


def test_memory_is_counted_by_the_width_of_values(tmp_path, monkeypatch):
    """4 rows in 2 groups: 1 byte a flag, 4 bytes a single-precision number, 8 bytes all others."""
    counted = []
    monkeypatch.setattr(arrow, "refuse_too_large", lambda path, size, values: counted.append((size, values)))
    columns = {
        "died": [True, False, False, True],
        "hr": pyarrow.array([1, 2, 3, 4], pyarrow.float32()),
        "day": pyarrow.array([1, 2, 3, 4], pyarrow.int32()),
        "map": [1.0, 2.0, 3.0, 4.0],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=2)
    open_table(tmp_path / "a.parquet")
    assert counted == [(4 * (1 + 4 + 4 + 8), 16)]


def test_two_columns_of_one_name_are_refused():
    twice = pyarrow.table([[1.0], [2.0]], names=["hr", "hr"])
    assert "north: hr: is the name of several columns." in refusal(open_table, twice, "north")
    frame = pandas.DataFrame([[1.0, 2.0]], columns=["hr", "hr"])
    assert "north: hr: is the name of several columns." in refusal(open_table, frame, "north")


# --- Tables in memory ---


def test_a_table_without_a_name_is_called_table():
    assert open_table({"hr": [1.0]}).name == "table"
    assert open_table({"hr": [1.0]}, "north").name == "north"
    assert open_table({"hr": [1.0]}).format == "table"


def test_a_named_index_becomes_columns_and_another_does_not():
    frame = pandas.DataFrame({"hr": [1.0, 2.0]}, index=pandas.Index([5, 6], name="stay"))
    assert open_table(frame).names == ["stay", "hr"]
    assert open_table(frame.rename_axis(None)).names == ["hr"]
    keys = pandas.MultiIndex.from_tuples([(1, 0), (1, 1)], names=["stay", None])
    assert open_table(pandas.DataFrame({"hr": [1.0, 2.0]}, index=keys)).names[0] == "stay"


def test_mixed_objects_become_text_and_gaps_stay_gaps():
    frame = pandas.DataFrame({"hr": [80, "err", None], 7: [1.5, np.nan, 2.5]})
    table = open_table(frame)
    assert table.column("hr").to_pylist() == ["80", "err", None]
    assert table.column("7").to_pylist() == [1.5, None, 2.5]  # names of columns are text


def test_lazy_frames_are_collected():
    lazy = polars.DataFrame({"hr": [1.0, 2.0]}).lazy()
    assert open_table(lazy).column("hr").to_pylist() == [1.0, 2.0]


def test_what_is_no_table_is_refused():
    class Named:
        column_names = columns = ("hr",)

    assert "The data of 'north' is a Named, but must be a file" in refusal(open_table, Named(), "north")
    assert "The data of 'north' is a list, but must be a file" in refusal(open_table, [1.0, 2.0], "north")
    assert "Give a pandas or polars frame" in refusal(open_table, {"hr": [1.0], "map": [1.0, 2.0]}, "north")


# --- Types ---


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pyarrow.array([1, 2]).dictionary_encode(), pyarrow.int64()),
        (pyarrow.array(["a", "b"]).dictionary_encode(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())),
        (pyarrow.array([1, 2], pyarrow.decimal128(5, 2)), pyarrow.float64()),
        (pyarrow.array(["a", "b"], pyarrow.string_view()), pyarrow.string()),
        (pyarrow.array([b"a", b"b"], pyarrow.binary()), pyarrow.string()),
        (pyarrow.array([b"a", b"b"], pyarrow.large_binary()), pyarrow.string()),
        (pyarrow.array(["a", "b"], pyarrow.large_string()), pyarrow.large_string()),
        (pyarrow.array([1.5, 2.5]), pyarrow.float64()),
    ],
)  # fmt: skip
def test_columns_have_one_of_few_types(kind, expected):
    assert open_table(pyarrow.table({"x": kind})).column("x").type == expected


def test_large_texts_stay_codes_with_names():
    large = pyarrow.array(["a", "b"], pyarrow.large_string()).dictionary_encode()
    assert open_table(pyarrow.table({"x": large})).column("x").type == large.type
