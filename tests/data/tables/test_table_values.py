"""One column of a table as numbers, categories, flags, episodes or times, with columns of a few rows."""

import datetime

import numpy as np
import pyarrow
import pytest

from fova.data.tables import values
from fova.data.tables.arrow import open_table
from fova.errors import FovaError


def table(column):
    return open_table(pyarrow.table({"x": pyarrow.array(column)}), "north")


def refusal(read, column, *arguments):
    with pytest.raises(FovaError) as refused:
        read(table(column), "x", *arguments)
    return str(refused.value)


# --- Numbers ---


def numbers(column, *na):
    found, notes = values.numbers(table(column), "x", na)
    assert found.dtype == np.float32
    return [None if np.isnan(value) else float(value) for value in found], notes


def test_numbers_of_every_kind():
    assert numbers([1, None, 3]) == ([1.0, None, 3.0], [])
    assert numbers([True, False, None]) == ([1.0, 0.0, None], [])
    assert numbers([1.5, float("nan")]) == ([1.5, None], [])
    assert numbers([None, None])[0] == [None, None]
    assert numbers([1.0, -999.0, 2.0], "-999", "x")[0] == [1.0, None, 2.0]
    assert numbers(["1.5", "2", None, "n/k"], "n/k") == (
        [1.5, 2.0, None, None],
        ["x is text that holds numbers; it is read as numbers."],
    )


def test_numbers_that_are_none_are_named_with_their_rows():
    assert "x: row 1 is infinite (1 such row)" in refusal(values.numbers, [1.0, np.inf, 2.0])
    assert "x: row 2 holds 1e+300, too large for single precision (1 such row)" in refusal(
        values.numbers, [1.0, 2.0, 1e300]
    )
    assert "x: row 1 holds 'err', not a number (2 such rows of 4)" in refusal(
        values.numbers, ["1", "err", "2", "err"]
    )
    assert "declare it as a missing value (na=...)" in refusal(values.numbers, ["1", "err"])
    assert "with a decimal point and without commas" in refusal(values.numbers, ["1.5", "2,5"])
    said = refusal(values.numbers, ["2,5", "n/v"])
    assert "If 'n/v' marks a missing value, add na=n/v to --columns. Write numbers with a decimal point" in said
    assert "holds list<" in refusal(values.numbers, [[1.0], [2.0]])


def test_lost_digits_are_noted():
    assert "too small for single precision" in numbers([1e-50, 2e-50])[1][0]
    assert "lie between 1000000000 and 1000000010" in numbers([1e9, 1e9 + 10])[1][0]
    assert numbers([1e9, 1e9])[1] == []  # a constant column has nothing to lose
    assert numbers([1000.0, 1010.0])[1] == []
    assert numbers(np.array([1e9, 1e9 + 512], np.float32))[1] == []  # single precision already


def test_mostly_numbers_is_more_than_half():
    def holds(*texts, na=()):
        return values.holds_numbers(table(list(texts)).column("x"), na)

    assert holds("1", "2", "a")
    assert not holds("1", "a")
    assert holds("1,5", "2,5")  # with a mistake in it
    assert holds(None, None) is False
    assert holds("1", "a", "a", na=("a",))


# --- Categories ---


def test_categories_have_codes_in_the_order_of_their_names():
    coded = values.categories(table(["10", "9", None, "b", "9 "]), "x")
    assert coded.names == ("9", "10", "b")  # numbers by size, before other names
    assert coded.codes.tolist() == [1, 0, values.NO_VALUE, 2, 0]
    assert values.categories(table(["a", "?", "b"]), "x", ["?"]).codes.tolist() == [0, values.NO_VALUE, 1]
    assert values.categories(table([2.0, 1.0]), "x").names == ("1", "2")
    empty = values.categories(table([None, None]), "x")
    assert (empty.names, empty.codes.tolist()) == ((), [values.NO_VALUE] * 2)


def test_a_thousand_categories_are_enough():
    assert len(values.categories(table([str(i) for i in range(1000)]), "x").names) == 1000
    said = refusal(values.categories, [str(i) for i in range(1001)])
    assert "holds 1,001 different values, too many for a category (1,000 at most)" in said


def doubtful(*texts):
    return refusal(values.refuse_doubtful_text, list(texts), ())


def sure(*texts):
    values.refuse_doubtful_text(table(list(texts)), "x", ())
    return True


def test_numbers_with_units_are_no_categories():
    said = doubtful("A", "80 bpm", "81 bpm")
    assert "x: row 1 holds '80 bpm', a number with a unit (2 such rows of 3)" in said
    assert "If they are meant as categories, add categories=x." in said
    assert sure("A", "80 bpm")  # no more than half
    assert sure("A", "B", None)
    assert sure("80 bpm", "81 mmHg", "A")  # two units


def test_remarks_are_no_categories():
    assert "holds 51 different texts in 51 rows, such as 'a0'" in doubtful(*(f"a{i}" for i in range(51)))
    assert sure(*(f"a{i}" for i in range(50)))
    assert sure(*(f"a{i}" for i in range(51)), *["a0"] * 51)  # 51 in 102 rows are no more than half


def test_spellings_that_differ_in_case_are_noted():
    assert values.notes_on_spelling("x", ["a", "B", "b"]) == [
        "x: 'B' and 'b' differ in upper and lower case only, and count as different values."
    ]
    assert values.notes_on_spelling("x", ["a", "b"]) == []


def test_types_of_columns():
    assert values.is_text(pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))
    assert not values.is_text(pyarrow.dictionary(pyarrow.int32(), pyarrow.int64()))
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()):
        assert values.is_text(kind)
    assert not values.is_text(pyarrow.int64())
    assert values.is_whole(pyarrow.int8())
    assert not values.is_whole(pyarrow.float64())
    assert values.is_marked_category(pyarrow.bool_())
    assert values.is_marked_category(pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))
    assert not values.is_marked_category(pyarrow.string())


# --- Flags and episodes ---


def test_flags_are_0_and_1():
    for column in ([0, 1, 1], [0.0, 1.0, 1.0], [False, True, True]):
        assert values.flags(table(column), "x").tolist() == [False, True, True]
    assert "x: row 1 holds 2 (2 such rows); only 0 and 1 are allowed here" in refusal(values.flags, [0, 2, -1])
    assert "x: row 1 has no value (1 of 3 rows). Write 0 or 1." in refusal(values.flags, [0, None, 1])
    assert "x: holds text ('yes')" in refusal(values.flags, ["", "yes"])
    assert "a time and not a quantity" in refusal(values.flags, [datetime.date(2026, 1, 13)])


@pytest.mark.parametrize(
    ("column", "codes", "names"),
    [
        (["b", "a", "b"], [0, 1, 0], ["b", "a"]),
        (["a", "a", "b"], [0, 0, 1], ["a", "b"]),
        ([7, 7, 5], [0, 0, 1], [7, 5]),
        (pyarrow.DictionaryArray.from_arrays([1, 0, 1], ["a", "b"]), [0, 1, 0], ["b", "a"]),
        (pyarrow.DictionaryArray.from_arrays([2, 0, 1], ["a", "b", "c"]), [0, 1, 2], ["c", "a", "b"]),
        (pyarrow.DictionaryArray.from_arrays([0, 2, 1], ["a", "b", "c"]), [0, 1, 2], ["a", "c", "b"]),
    ],
)
def test_episodes_are_numbered_by_their_first_rows(column, codes, names):
    found, called = values.episodes(open_table(pyarrow.table({"x": column}), "north"), "x")
    assert found.tolist() == codes
    assert called.tolist() == names


def test_every_row_needs_its_episode():
    assert "x: row 1 has no value (1 of 2 rows). Give every row its episode." in refusal(
        values.episodes, ["a", None]
    )
    assert "one name or number per row is needed" in refusal(values.episodes, [[1], [2]])


# --- Times ---


def test_times_of_every_kind():
    def clock(column):
        found, notes = values.clock(table(column), "x")
        return np.diff(found.values).tolist(), found.per_second, notes

    assert clock([1, 3]) == ([2], None, [])
    assert clock([0.5, 2.0]) == ([1.5], None, [])
    assert clock([datetime.date(2026, 1, 13), datetime.date(2026, 1, 14)]) == ([86_400_000], 1e3, [])
    for unit, per_second in {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}.items():
        stamps = pyarrow.array([0, 5], pyarrow.timestamp(unit))
        assert clock(stamps) == ([5], per_second, [])
    assert clock(["2026-01-13 08:00", "2026-01-13 08:01"]) == (
        [60_000_000],
        1e6,
        ["x is text; it is read as time stamps."],
    )
    assert clock(["1", "2.5"]) == ([1.5], None, ["x is text; it is read as numbers."])


@pytest.mark.parametrize(
    ("texts", "seconds"),
    [
        (["07.02.2023 09:00", " 7.2.2023 9:05 "], 300),
        (["28.02.2023 23:59:58", "01.03.2023 00:00:01"], 3),
        (["28.02.2023", "01.03.2023"], 86_400),
    ],
)
def test_times_with_the_day_first(texts, seconds):
    found, notes = values.clock(table(texts), "x")
    assert np.diff(found.values).tolist() == [seconds * 10**6]
    assert notes == ["x is text; it is read as time stamps, the day first."]


@pytest.mark.parametrize(
    "text", ["31.02.2023 09:00", "02/07/2023 09:00", "07.13.2023", "07.02.2023 soon", "07.02.23"]
)
def test_what_is_no_time_with_the_day_first(text):
    assert "that is not a time" in refusal(values.clock, ["07.02.2023", text])
    assert "that is not a time" in refusal(values.clock, [text])


def test_times_that_order_nothing_are_refused():
    assert "x: row 1 has no value (1 of 2 rows). Give every row its time." in refusal(values.clock, [1, None])
    assert "x: row 0 has no value (1 of 2 rows)" in refusal(values.clock, [np.inf, 1.0])
    assert "times of a day without the date" in refusal(values.clock, [datetime.time(8), datetime.time(9)])
    assert "x: holds text ('soon') that is not a time" in refusal(values.clock, ["soon", "later"])
    mixed = refusal(values.clock, ["2026-01-13T08:00:00+01:00", "2026-01-13T09:00:00"])
    assert (
        "some times have a zone ('2026-01-13T08:00:00+01:00') and some have none ('2026-01-13T09:00:00')" in mixed
    )
    zoned = refusal(values.clock, ["2026-13-45T08:00:00Z", "2026-13-46T08:00:00Z"])  # no such month
    assert "x: holds text ('2026-13-45T08:00:00Z') that is not a time" in zoned
    assert "x: holds empty text, which is not a time" in refusal(values.clock, ["", ""])


@pytest.mark.parametrize("code", [pyarrow.uint8(), pyarrow.uint32(), pyarrow.uint64(), pyarrow.int8()])
def test_categories_with_codes_of_any_type(code):
    words = pyarrow.array(["b", "a", None, "b"]).dictionary_encode()
    coded = pyarrow.DictionaryArray.from_arrays(words.indices.cast(code), words.dictionary)
    found = values.categories(open_table({"ward": coded}, "north"), "ward")
    assert (found.codes.tolist(), found.names) == ([1, 0, values.NO_VALUE, 1], ("a", "b"))
