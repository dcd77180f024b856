"""Delimited text: what a file tells about itself is read, what it does not tell is refused."""

import gzip
import runpy
import sys

import pytest

from fova.data.tables import delimited
from fova.data.tables.delimited import read_delimited
from fova.errors import FovaError


@pytest.fixture
def read(tmp_path):
    """The columns of a text, and the notes on it."""

    def reading(content, *as_text, tabs=False, compressed=False, na=()):
        file = tmp_path / "north.csv"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        table, notes = read_delimited(file, compressed, tabs, as_text, na)
        return table.to_pydict(), notes

    return reading


def refusal(read, *arguments, **options):
    with pytest.raises(FovaError) as refused:
        read(*arguments, **options)
    return str(refused.value)


# --- What separates the fields ---


@pytest.mark.parametrize(
    ("delimiter", "notes"),
    [
        (",", ()),
        (";", ("The fields are separated by semicolons.",)),
        ("\t", ("The fields are separated by tabs.",)),
        ("|", ("The fields are separated by bars.",)),
    ],
)
def test_the_delimiter_is_the_most_frequent_of_the_header(read, delimiter, notes):
    found = read(f"hr{delimiter}map{delimiter}x\n1{delimiter}2{delimiter}3\n")
    assert found == ({"hr": [1], "map": [2], "x": [3]}, notes)


def test_delimiters_in_quotes_do_not_count(read):
    assert read('"a,b,c";hr;map\n1;2;3\n')[0] == {"a,b,c": [1], "hr": [2], "map": [3]}
    assert read('hr;"a,b,c";"d,e,f";x\n1;2;3;4\n')[0] == {"hr": [1], "a,b,c": [2], "d,e,f": [3], "x": [4]}


def test_one_column_needs_no_delimiter(read):
    assert read("hr\n1\n2\n") == ({"hr": [1, 2]}, ())


def test_the_ending_of_a_name_says_tabs(read):
    assert read("a,b\tc;d;e\n1\t2\n", tabs=True) == ({"a,b": [1], "c;d;e": [2]}, ())


def test_excels_first_line_names_the_delimiter(read):
    assert read("sep=|\nhr;x|map\n1|2\n") == ({"hr;x": [1], "map": [2]}, ())
    assert read("SEP=; \n stay ;hr\n007;80\n", "stay")[0] == {"stay": ["007"], "hr": [80]}


def test_a_mark_of_unicode_and_blank_lines_before_the_header_are_passed_over(read):
    assert read(b"\xef\xbb\xbfhr;map\n1;2\n")[0] == {"hr": [1], "map": [2]}
    assert read("\n\n stay ;map;x\n007;2;3\n", "stay")[0] == {"stay": ["007"], "map": [2], "x": [3]}


# --- Names and types ---


def test_names_lose_blanks_and_a_column_without_one_is_called_by_its_place(read):
    assert read(" hr ,,map\n1,2,3\n")[0] == {"hr": [1], "Unnamed: 1": [2], "map": [3]}


def test_columns_named_as_text_stay_text(read):
    assert read(" stay ,hr\n007,080\n", "stay")[0] == {"stay": ["007"], "hr": [80]}
    assert read("stay,hr\n007,080\n")[0] == {"stay": [7], "hr": [80]}
    assert read('stay,hr\n"0\n1",080\n', "stay", "no such column")[0] == {"stay": ["0\n1"], "hr": [80]}


@pytest.mark.parametrize("header", ["hr,map,lactate,7,8", "hr,map,7,8", "0,1,2", "7,map"])
def test_a_few_numbers_among_the_names_or_places_as_names_are_a_header(read, header):
    assert list(read(f"{header}\n{header}\n")[0]) == header.split(",")


@pytest.mark.parametrize("header", ["80,map,8", "1,2,3", "80", "-8.5,1e3,ward", "0,2,1", "1e-3,4.,x"])
def test_a_first_line_of_numbers_is_no_header(read, header):
    said = refusal(read, f"{header}\n{header}\n")
    assert f"first line holds numbers ({header.replace(',', ', ')}), not the names of the columns" in said


# --- Decimal commas ---


COMMA = "Numbers are written with a decimal comma."


def test_decimal_commas_where_commas_do_not_separate(read):
    rows, notes = read("hr;map;ward\n80,5;1,25;A\n-81,0;2;B\n")
    assert rows == {"hr": [80.5, -81.0], "map": [1.25, 2.0], "ward": ["A", "B"]}
    assert notes == ("The fields are separated by semicolons.", COMMA)


@pytest.mark.parametrize("column", ["1,074", "A", "1,5 mg", "2.5", ""])
def test_what_is_not_surely_a_decimal_comma_is_left_alone(read, column):
    assert COMMA not in read(f"hr;map;ward\n{column};1;A\n{column};2;B\n")[1]


@pytest.mark.parametrize("column", ["0,074", "1,07", "1,0741", "+10,5", "00,125"])
def test_what_is_surely_a_decimal_comma(read, column):
    rows, notes = read(f"hr;map\n{column};1\n")
    assert rows["hr"] == [float(column.replace(",", "."))]
    assert notes[-1] == COMMA


def test_one_sure_number_tells_what_the_others_mean(read):
    assert read("hr;map\n1,074;1\n1,5;2\n")[0]["hr"] == [1.074, 1.5]


def test_every_text_of_a_column_must_be_a_number(read):
    assert COMMA not in read("hr;map\nunknown;1\n1,5;2\n")[1]
    assert COMMA not in read("hr;map\n1,5;1\nunknown;2\n")[1]


def test_the_first_thousand_rows_tell(read):
    def column(sure):
        return "hr;map\n" + "1,5;1\n" * sure + "unknown;2\n"

    assert COMMA not in read(column(999))[1]
    assert COMMA in read(column(1000))[1]


def test_marks_of_missing_values_stand_among_decimal_commas(read):
    rows, notes = read("hr;map\n1,5;1\nn/v ;2\n2;3\n-2,25;4\n", na=("n/v", "-9,9"))
    assert rows["hr"] == ["1.5", "n/v ", "2", "-2.25"]
    assert notes[-1] == COMMA
    assert COMMA not in read("hr;map\nn/v;1\nn/v;2\n", na=("n/v",))[1]
    assert read("hr;map\n-9,9;0,5\nx;1\n1,5;1\n2,5;1\n", na=("x", "-9,9"))[0]["hr"] == ["-9,9", "x", "1.5", "2.5"]


@pytest.mark.parametrize("thousands", ["1.234", "-1.234,5", "1.234.567", "12.5"])
def test_a_column_with_points_beside_decimal_commas_is_left_alone(read, thousands):
    rows = read(f"hr;map\n999,50;0,5\n{thousands};1\n12,5;1\n10,25;1\n")[0]
    assert rows["hr"] == ["999,50", thousands, "12,5", "10,25"]
    marked = read("hr;map\n999,50;0,5\n1.234;1\n12,5;1\n10,25;1\n", na=("1.234",))[0]
    assert marked["hr"] == ["999.50", "1.234", "12.5", "10.25"]


def test_once_the_decimal_comma_is_known_it_holds_for_all_columns_of_numbers(read):
    rows = read("stay;hr;dose;drug\n1,5;1,5;0,5;a 1,5\n2;n/v;0,25;b\n3;2;0,25;3,5\n", "stay")[0]
    assert rows["hr"] == ["1.5", "n/v", "2"]
    assert rows["drug"] == ["a 1,5", "b", "3,5"]  # mostly text
    assert rows["stay"] == ["1,5", "2", "3"]  # asked for as text


def test_whole_numbers_stand_among_decimal_commas(read):
    rows, notes = read("hr;map\n1,5;1\n2;2\n-3;3\n")
    assert rows["hr"] == [1.5, 2.0, -3.0]
    assert notes[-1] == COMMA


# --- What is refused before it is read ---


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x1f\x8b12", "Let its name end in .csv.gz"),
        (b"PK\x03\x0412", "Excel workbook"),
        (b"PAR112", "Let its name end in .parquet"),
        (b"\xff\xfea\x00", "UTF-16"),
        (b"\xfe\xff\x00a", "UTF-16"),
        (b"hr,m\xe4p\n1,2\n", "is not UTF-8 text: its header has the byte 0xe4"),
    ],
)
def test_what_is_no_text_is_named(read, content, words):
    assert words in refusal(read, content)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hr\n1\n", "is not compressed by gzip. If it is plain text, call it north."),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(b"hr\n" + b"1\n" * 50, mtime=0)[:-12], "cannot be read"),
        (b"\x1f\x8bnothing else", "It is damaged"),
    ],
)
def test_what_is_no_compressed_text_is_named(read, content, words):
    assert words in refusal(read, content, compressed=True)


# --- Size ---


@pytest.fixture
def measured(monkeypatch):
    """The bytes and numbers that each check of memory was asked about."""
    seen = []
    monkeypatch.setattr(delimited, "refuse_too_large", lambda path, size, numbers: seen.append((size, numbers)))
    return seen


def test_a_file_is_measured_before_it_is_read(read, measured):
    read("hr,map\n" + "1,2\n" * 20)
    assert measured == [(87, 10)]  # a number in eight bytes


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_a_compressed_file_is_measured_by_its_content(read, tmp_path, measured, monkeypatch, chunk):
    monkeypatch.setattr(delimited, "CHUNK", chunk)
    parts = gzip.compress(b"hr,map\n" + b"1,2\n" * 500, mtime=0) + gzip.compress(b"3,4\n" * 25)
    (tmp_path / "two.csv.gz").write_bytes(parts)
    assert delimited._unpacked(tmp_path / "two.csv.gz") == 7 + 4 * 525
    assert measured == []


def test_content_beyond_the_memory_is_refused_on_the_way(tmp_path, measured, monkeypatch):
    monkeypatch.setattr(delimited, "CHUNK", 1)  # 64 bytes of content at a time
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"1,2\n" * 64, mtime=0))
    monkeypatch.setattr(delimited, "available", lambda: 200)
    assert delimited._unpacked(tmp_path / "a.gz") == 256
    assert [size > 200 for size, _ in measured] == [True] * len(measured)
    assert (256, 32) in measured
    measured.clear()
    monkeypatch.setattr(delimited, "available", lambda: 256)  # it fits
    assert delimited._unpacked(tmp_path / "a.gz") == 256
    assert measured == []
    monkeypatch.setattr(delimited, "available", lambda: None)  # nobody knows
    assert delimited._unpacked(tmp_path / "a.gz") == 256
    assert measured == []


def test_the_module_needs_no_pyarrow_to_be_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    runpy.run_path(delimited.__file__)
