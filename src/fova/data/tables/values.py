"""The values of one column: numbers, categories, flags, names and times, from Arrow to NumPy.

Every error names the file, the column, the row (counted from 0 in the table as given) and how many such rows there
are. A missing value is an empty cell, NaN or one of the values that `na` declares.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fova.data.fields import counted, decoding, fault, refuse_unclear_labels, shown
from fova.data.tables.arrow import Columnar, is_text
from fova.data.transitions import Floats
from fova.recipe import NO_LABEL, NO_VALUE, as_number, label

if TYPE_CHECKING:
    import pyarrow

MOST_CATEGORIES = 1000
MOSTLY = 0.5  # a text column is one of numbers with mistakes in it if more than this share of it are numbers
FEW_DIGITS = 0.01  # rounding to single precision may be this share of a column's spread
REPAIR = "Repair the log, or remove those episodes."
WITH_UNIT = re.compile(r"[<>~≤≥]?\s*[-+]?\d+(?:[.,]\d+)?\s*([%‰°µμa-zA-Z/²³]+)")
DAY_FIRST = ("%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y")
MANY = 50  # a column of more different texts, most of which occur once, holds identifiers or remarks


class Coded(NamedTuple):
    """A column of categories."""

    codes: NDArray[np.int32]  # [rows] index into names, NO_VALUE where there is none
    names: tuple[str, ...]


class Clock(NamedTuple):
    """A column of times."""

    values: NDArray[Any]  # [rows] int64 or float64
    per_second: float | None  # of time stamps; None for plain numbers


# --- Numbers -----------------------------------------------------------------------------------------------


def numbers(table: Columnar, name: str, na: Sequence[str] = ()) -> tuple[Floats, list[str]]:
    """The column in single precision, NaN where a value is missing, and notes on it."""
    column, notes = table.column(name), []
    if is_text(column.type):
        column, notes = (
            _parsed(table, column, name, na),
            [f"{name} is text that holds numbers; it is read as numbers."],
        )
    refuse_times(table, column.type, name)
    exact = _exact(table, column, name)
    if exact.dtype.kind != "f":
        exact = exact.astype(np.float64)
    for value in _numeric(na):
        exact = np.where(exact == value, np.nan, exact)
    infinite = np.isinf(exact)
    if infinite.any():
        rows = np.flatnonzero(infinite)
        raise fault(table.name, name, f"row {rows[0]} is infinite ({counted(len(rows), 'such row')}). {REPAIR}")
    with np.errstate(over="ignore", under="ignore"):
        single = exact.astype(np.float32)
    too_large = np.flatnonzero(np.isinf(single))
    if len(too_large):
        given = f"row {too_large[0]} holds {exact[too_large[0]]:g}, too large for single precision"
        raise fault(table.name, name, f"{given} ({counted(len(too_large), 'such row')}). Use another unit.")
    return single, notes + _notes_on_digits(name, exact, single)


def _exact(table: Columnar, column: "pyarrow.ChunkedArray", name: str) -> NDArray[Any]:
    """The numbers as stored, NaN where there is none."""
    import pyarrow
    from pyarrow import types

    kind = column.type
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    if types.is_boolean(kind):
        column = column.cast(pyarrow.int8())
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        raise fault(table.name, name, f"holds {kind}, not numbers. Store it as numbers.")
    with decoding(table.name, name, "Store it as numbers."):
        if column.null_count and not types.is_floating(kind):
            column = column.cast(pyarrow.float64())
        return column.to_numpy()


def _notes_on_digits(name: str, exact: NDArray[Any], single: Floats) -> list[str]:
    """Notes on a column that loses what distinguishes its values in single precision."""
    if exact.dtype.itemsize <= 4 or np.isnan(exact).all():
        return []
    with np.errstate(all="ignore"):
        least, most = np.nanmin(exact), np.nanmax(exact)
        if not np.isfinite(most - least) or most == least:
            return []
        largest = max(abs(float(least)), abs(float(most)))
        if largest < np.finfo(np.float32).tiny:
            return [f"{name}: its values, up to {largest:g}, are too small for single precision. Use another unit."]
        if largest * np.finfo(np.float32).eps > FEW_DIGITS * np.nanstd(exact):
            return [
                f"{name}: its values lie between {least:.10g} and {most:.10g}; single precision does not tell them "
                "apart well. Subtract a constant from the column."
            ]
    return []


def _parsed(table: Columnar, column: Any, name: str, na: Sequence[str]) -> "pyarrow.ChunkedArray":
    """Text as numbers. Text that is not one is refused."""
    import pyarrow

    coded = _coded(column, na)
    values = np.array([_as_number(text) for text in coded.names], dtype=np.float64)
    wrong = np.append(np.isnan(values), False)[coded.codes]  # NO_VALUE is the last one
    if wrong.any():
        rows = np.flatnonzero(wrong)
        text = coded.names[coded.codes[rows[0]]]
        remedy = "Correct it, or declare it as a missing value (na=...)."
        if _is_number_with_comma(text):
            remedy = f"{_ask_about_mark(coded.names)}Write numbers with a decimal point and without commas."
        given = f"row {rows[0]} holds {text[:40]!r}, not a number ({counted(len(rows), 'such row')}"
        raise fault(table.name, name, f"{given} of {len(wrong):,}). {remedy}")
    return pyarrow.chunked_array([np.append(values, np.nan)[coded.codes]])


def _as_number(text: str) -> float:
    number = as_number(text)
    return float("nan") if number is None else number


def _ask_about_mark(names: Sequence[str]) -> str:
    """A question about a text among numbers with a comma. A declared mark does not hide the decimal comma."""
    mark = next((name for name in names if not _is_number_with_comma(name)), None)
    return "" if mark is None else f"If {mark[:40]!r} marks a missing value, add na={mark[:40]} to --columns. "


def _is_number_with_comma(text: str) -> bool:
    return as_number(text.replace(",", ".")) is not None


def _numeric(na: Sequence[str]) -> list[float]:
    return [number for text in na if (number := as_number(text)) is not None]


def holds_numbers(column: Any, na: Sequence[str]) -> bool:
    """Whether a text column is mostly numbers."""
    coded = _coded(column, na)
    known = coded.codes[coded.codes != NO_VALUE]
    if not len(known):
        return False
    # A number with a decimal comma is a number with a mistake in it.
    are_numbers = np.array([_is_number_with_comma(text) for text in coded.names])
    return bool(are_numbers[known].mean() > MOSTLY)


# --- Categories --------------------------------------------------------------------------------------------


def is_whole(kind: "pyarrow.DataType") -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind))


def is_marked_category(kind: "pyarrow.DataType") -> bool:
    """Whether the type itself says that a column holds categories."""
    from pyarrow import types

    return bool(types.is_dictionary(kind) or types.is_boolean(kind))


def refuse_doubtful_text(table: Columnar, name: str, na: Sequence[str]) -> None:
    """Refuse a column of text that is hardly meant as a category, until the user says that it is."""
    coded = _coded(table.column(name), na)
    known = coded.codes[coded.codes != NO_VALUE]
    if not len(known):
        return
    meant = f"If they are meant as categories, add categories={name}."
    units = [(found[1] if (found := WITH_UNIT.fullmatch(text)) else None) for text in coded.names]
    unit, count = Counter(units[code] for code in known.tolist()).most_common(1)[0]
    if unit is not None and count > MOSTLY * len(known):
        first = next(row for row, code in enumerate(coded.codes) if code != NO_VALUE and units[code] == unit)
        given = f"row {first} holds {coded.names[coded.codes[first]][:40]!r}, a number with a unit"
        remedy = f"Store the numbers alone, all in one unit. {meant}"
        raise fault(table.name, name, f"{given} ({counted(count, 'such row')} of {len(coded.codes):,}). {remedy}")
    if len(coded.names) > max(MANY, MOSTLY * len(known)):
        given = f"{len(coded.names):,} different texts in {len(known):,} rows, such as {coded.names[0][:40]!r}"
        raise fault(table.name, name, f"holds {given}. Leave it out if it identifies rows or is a remark. {meant}")


def notes_on_spelling(name: str, names: Sequence[str]) -> list[str]:
    """A note on categories that differ in upper and lower case only."""
    alike: dict[str, list[str]] = {}
    for each in names:
        alike.setdefault(each.casefold(), []).append(each)
    same = next((group for group in alike.values() if len(group) > 1), None)
    if same is None:
        return []
    listed = " and ".join(map(repr, same))
    return [f"{name}: {listed} differ in upper and lower case only, and count as different values."]


def categories(table: Columnar, name: str, na: Sequence[str] = ()) -> Coded:
    """The column as categories."""
    column = table.column(name)
    refuse_times(table, column.type, name)
    with decoding(table.name, name, "Store it as text or whole numbers."):
        coded = _coded(column, na)
    if len(coded.names) > MOST_CATEGORIES:
        given = f"holds {len(coded.names):,} different values, too many for a category"
        raise fault(
            table.name, name, f"{given} ({MOST_CATEGORIES:,} at most). Leave it out if it is an identifier."
        )
    return coded


def _coded(column: "pyarrow.ChunkedArray", na: Sequence[str]) -> Coded:
    from pyarrow import types

    if not len(column) or types.is_null(column.type):
        return Coded(np.full(len(column), NO_VALUE, np.int32), ())
    encoded = column if types.is_dictionary(column.type) else column.dictionary_encode()
    encoded = encoded.unify_dictionaries().combine_chunks()
    codes = encoded.indices.cast("int64").fill_null(NO_VALUE).to_numpy(zero_copy_only=False).astype(np.int32)
    labels = [label(value) if value is not None else "" for value in encoded.dictionary.to_pylist()]
    missing = {*NO_LABEL, *na}
    names = tuple(sorted({each for each in labels if each not in missing}, key=by_number))
    place = {each: code for code, each in enumerate(names)}
    moved = np.array([*(place.get(each, NO_VALUE) for each in labels), NO_VALUE], np.int32)
    return Coded(moved[codes], names)


def by_number(name: str) -> tuple[float, str]:
    """A key that sorts numbers by size, and before other names."""
    number = _as_number(name)
    return (number if number == number else float("inf"), name)


def refuse_times(table: Columnar, kind: "pyarrow.DataType", name: str) -> None:
    from pyarrow import types

    if types.is_temporal(kind):
        raise fault(
            table.name,
            name,
            f"holds {kind}, a time and not a quantity. Leave it out, or store for instance the hours since the "
            "start.",
        )


def refuse_missing(table: Columnar, name: str, missing: NDArray[np.bool_], remedy: str) -> None:
    rows = np.flatnonzero(missing)
    if len(rows):
        given = f"row {rows[0]} has no value ({len(rows):,} of {len(missing):,} rows)"
        raise fault(table.name, name, f"{given}. {remedy}")


# --- Flags, names, times -----------------------------------------------------------------------------------


def flags(table: Columnar, name: str) -> NDArray[np.bool_]:
    """The column as booleans; it may hold booleans, or 0 and 1."""
    column = table.column(name)
    if is_text(column.type):
        example = next((text for text in column.to_pylist() if text), "")
        given = f"holds text ({str(example)[:40]!r}); only 0 and 1 have a meaning here"
        raise fault(table.name, name, f"{given}. Write 1 for yes and 0 for no.")
    refuse_times(table, column.type, name)
    values = _exact(table, column, name)
    absent = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    refuse_missing(table, name, absent, "Write 0 or 1.")
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if len(wrong):
        given = f"row {wrong[0]} holds {values[wrong[0]]:g} ({counted(len(wrong), 'such row')})"
        raise fault(table.name, name, f"{given}; only 0 and 1 are allowed here.")
    return values.astype(bool)


def equal(table: Columnar, name: str, value: str) -> tuple[NDArray[np.bool_], list[str]]:
    """[rows] where the column holds a value, and a note if it never does. A missing value is another one.

    A value that the column could not hold, or that it holds in another spelling, is refused.
    """
    column = table.column(name)
    refuse_times(table, column.type, name)
    with decoding(table.name, name, "Store it as text or whole numbers."):
        coded = _coded(column, ())
    wanted = _as_the_column_has_it(column, value.strip())
    if wanted in coded.names:
        return coded.codes == coded.names.index(wanted), []
    held = f"It holds {shown(', '.join(coded.names[:6])[:80])}" if coded.names else "It is empty"
    alike = [each for each in coded.names if wanted is not None and each.lower() == wanted.lower()]
    if wanted is None or alike:
        given = f"cannot hold {value.strip()!r}" if wanted is None else f"holds {alike[0]!r}, but not {wanted!r}"
        raise fault(
            table.name, name, f"{given}. {held}. Write one of its values, and store it alike at all clients."
        )
    return np.zeros(len(coded.codes), bool), [f"{name}: no row holds {wanted!r}. {held}."]


def _as_the_column_has_it(column: "pyarrow.ChunkedArray", value: str) -> str | None:
    """A value in the spelling of the column's type; None if a column of this type cannot hold it."""
    from pyarrow import types

    if types.is_boolean(column.type):
        return {"1": "true", "0": "false", "true": "true", "false": "false"}.get(value.lower())
    if is_text(column.type) or types.is_null(column.type):
        return value
    number = as_number(value)
    return None if number is None else label(number)


def episodes(table: Columnar, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Which episode each row belongs to, numbered in the order of their first rows, and the names."""
    import pyarrow

    column = table.column(name)
    if pyarrow.types.is_nested(column.type):
        raise fault(table.name, name, f"holds {column.type}, but one name or number per row is needed.")
    if column.null_count:
        refuse_missing(table, name, column.is_null().to_numpy(), "Give every row its episode.")
    with decoding(table.name, name, "Store names or whole numbers."):
        encoded = column if pyarrow.types.is_dictionary(column.type) else column.dictionary_encode()
        encoded = encoded.unify_dictionaries().combine_chunks()
        names, codes = encoded.dictionary.to_numpy(zero_copy_only=False), encoded.indices.to_numpy()
    refuse_unclear_labels(names, codes, table.name, name)
    codes = codes.astype(np.int64)
    first = np.full(len(names), len(codes), np.int64)
    np.minimum.at(first, codes, np.arange(len(codes)))
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    return rank[codes], names[order]


def clock(table: Columnar, name: str) -> tuple[Clock, list[str]]:
    """The column as times: numbers, time stamps with or without a zone, dates, durations."""
    import pyarrow
    from pyarrow import types

    column, notes = table.column(name), []
    if is_text(column.type):
        column, read_as = _stamps(table, column, name)
        notes.append(f"{name} is text; it is read as {read_as}.")
    if column.null_count:
        refuse_missing(table, name, column.is_null().to_numpy(), "Give every row its time.")
    if types.is_temporal(column.type):
        if types.is_date(column.type):
            column = column.cast(pyarrow.timestamp("ms"))
        if types.is_time(column.type):
            raise fault(table.name, name, "holds times of a day without the date. Store dates and times.")
        per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
        return Clock(column.cast(pyarrow.int64()).to_numpy(), per_second), notes
    values = _exact(table, column, name)
    if values.dtype.kind == "f":
        refuse_missing(table, name, ~np.isfinite(values), "Give every row its time.")
    return Clock(values, None), notes


def _stamps(table: Columnar, column: Any, name: str) -> "tuple[pyarrow.ChunkedArray, str]":
    """Text as time stamps or numbers, and which. A mixture of stamps with and without a time zone is refused."""
    import pyarrow

    plain = column.cast(pyarrow.string())
    zoned, unzoned = pyarrow.timestamp("us", "UTC"), pyarrow.timestamp("us")
    for kind, words in ((zoned, "time stamps"), (unzoned, "time stamps"), (pyarrow.float64(), "numbers")):
        try:
            return plain.cast(kind), words
        except pyarrow.ArrowInvalid:
            continue
    stamps = _day_first(plain)
    if stamps is not None:
        return stamps, "time stamps, the day first"
    texts = [text for text in plain.slice(0, 1000).to_pylist() if text]
    if not texts:
        raise fault(table.name, name, "holds empty text, which is not a time. Give every row its time.")
    zoned = [text for text in texts if _has_zone(text)]
    if zoned and len(zoned) < len(texts):
        other = next(text for text in texts if not _has_zone(text))
        given = f"some times have a zone ({zoned[0]!r}) and some have none ({other[:40]!r})"
        raise fault(table.name, name, f"{given}, so they cannot be ordered. Give all a zone, or none.")
    raise fault(
        table.name,
        name,
        f"holds text ({texts[0][:40]!r}) that is not a time. Write numbers, or time stamps as in "
        "2026-03-01T14:30:00+01:00.",
    )


def _day_first(column: "pyarrow.ChunkedArray") -> "pyarrow.ChunkedArray | None":
    """Texts such as 07.02.2023 09:00 as time stamps; None if a text is not one."""
    from pyarrow import compute

    texts = compute.utf8_trim_whitespace(column)
    day = compute.struct_field(compute.extract_regex(texts, r"^(?P<day>\d{1,2})\.\d{1,2}\.\d{4}"), "day")
    if day.null_count > texts.null_count:
        return None
    for form in DAY_FIRST:
        stamps = compute.strptime(texts, format=form, unit="us", error_is_null=True)
        if stamps.null_count > texts.null_count:
            continue
        # 31.02.2023 would become the third of March.
        return stamps if compute.all(compute.equal(compute.day(stamps), day.cast("int64"))).as_py() else None
    return None


def _has_zone(text: str) -> bool:
    clock_part = text.strip()[11:]
    return clock_part.endswith(("Z", "z")) or "+" in clock_part or "-" in clock_part
