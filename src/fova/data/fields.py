"""Checks of single fields of a file: numeric type, shape and valid values.

Every reader passes its columns through these functions. Every error names the file, the field and, if there is one,
the row (counted from 0). This module knows nothing about formats or episodes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import TOLERANCE, TOO_LARGE, Floats
from fova.errors import FovaError
from fova.settings import LARGEST

# Deflate, the strongest compression that these formats commonly use, shrinks data at most about 1030 times. A file
# that declares more than this is damaged or hostile, and reading it would exhaust the machine's memory.
LARGEST_UNPACKING = 1100
MISSING = {"", "nan", "none", "null", "nat", "<na>"}  # how a missing name reads when converted to text
SMALL = 4096  # bytes; smaller stored sizes count as this, because a header alone can be this large


def fault(file: str | Path, field: str, problem: str) -> FovaError:
    """An error about a file. The message names the file, the field, the problem and the remedy."""
    return FovaError(shown(f"{file}: {field}: {problem}" if field else f"{file}: {problem}"))


def shown(text: str) -> str:
    """The text on one printable line. Characters that are not printable are written as escapes."""
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # Python's code for a byte of a file name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def counted(number: int, thing: str) -> str:
    """A number with its noun: '1 row', '2 rows'."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


@contextmanager
def decoding(file: str | Path, field: str, remedy: str) -> Iterator[None]:
    """Turn any exception of a format's library into a FovaError about the file.

    Wrap only the calls into the library. Libraries raise nearly every kind of exception on a damaged file.
    """
    try:
        yield
    except FovaError:
        raise
    except PermissionError as error:
        raise fault(file, field, "permission was denied. Give this user access to it (chmod u+r).") from error
    except MemoryError as error:
        raise fault(file, field, "is too large for this machine's memory. Split it into smaller files.") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise fault(file, field, f"cannot be read ({reason}). {remedy}") from error


def refuse_bombs(file: Path, field: str, declared_bytes: int, stored_bytes: int) -> None:
    """Refuse a file that declares far more data than it stores, before it is unpacked."""
    if declared_bytes > LARGEST_UNPACKING * max(stored_bytes, SMALL):
        size = f"{declared_bytes:,} bytes unpacked from {stored_bytes:,}"
        raise fault(file, field, f"declares more data than can be there ({size}). Fetch or write the file again.")


def matrix(values: Any, file: str | Path, field: str) -> Floats:
    """The values as float32, [rows, columns]."""
    array = _numbers(values, file, field)
    if array.ndim != 2:
        remedy = "Reshape it to (rows, 1)." if array.ndim == 1 else "Flatten each row to a vector."
        raise fault(file, field, f"has shape {array.shape}, but (rows, columns) is needed. {remedy}")
    if array.shape[1] == 0:
        raise fault(file, field, f"has no columns (shape {array.shape}). Store at least one number per step.")
    return _as_float32(array, file, field)


def vector(values: Any, file: str | Path, field: str) -> Floats:
    """The values as float32, [rows]. A matrix with one column is accepted."""
    return _as_float32(_one_per_row(values, file, field), file, field)


def flags(values: Any, file: str | Path, field: str) -> NDArray[np.bool_]:
    """The values as booleans, [rows]. The file may store booleans, or 0 and 1."""
    array = _one_per_row(values, file, field)
    wrong = np.flatnonzero(~np.isin(array, (0, 1)))
    if len(wrong):
        raise fault(file, field, f"row {wrong[0]} holds {array[wrong[0]]!s}; only 0 and 1 are allowed here.")
    return array.astype(bool)


def whole_numbers(values: Any, file: str | Path, field: str) -> NDArray[np.int64]:
    """The values as integers from 0 on, [rows]. Any numeric type but booleans is accepted."""
    array = _one_per_row(values, file, field)
    if array.dtype.kind == "b":
        raise fault(file, field, "holds true and false, but whole numbers are needed: 0, 1, 2 and so on.")
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
    for wrong, what in ((whole != array, "which is not a whole number"), (array < 0, "but counting starts at 0")):
        rows = np.flatnonzero(wrong)
        if len(rows):
            given = f"row {rows[0]} holds {array[rows[0]]!s}, {what} ({counted(len(rows), 'such row')})"
            raise fault(file, field, f"{given}. Number the steps of each episode 0, 1, 2 and so on.")
    return whole


def texts(values: Any, file: str | Path, field: str) -> tuple[str, ...]:
    """Names, one after the other, as texts."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise fault(file, field, f"holds {array.dtype} of shape {array.shape}, but a list of names is needed.")
    with decoding(file, field, "Store the names as text."):
        return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in array.tolist())


def labels(values: Any, file: str | Path, field: str) -> NDArray[np.int64]:
    """Names or numbers as integers, [rows]: 0, 1, 2, ... in the order of their first appearance."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "fiubUS":
        given = f"holds {array.dtype} of shape {array.shape}"
        raise fault(file, field, f"{given}, but one name or number per row is needed.")
    names, first, inverse = np.unique(array, return_index=True, return_inverse=True)
    refuse_unclear_labels(names, inverse, file, field)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def refuse_unclear_labels(names: NDArray[Any], rows: NDArray[Any], file: str | Path, field: str) -> None:
    """Refuse labels that mark a missing value or cannot be told apart. They would merge episodes.

    `names` holds the distinct labels. `rows` holds the index into `names` for each row.
    """
    if names.dtype.kind == "b":
        problem = "holds true and false, which tell two episodes apart at most. Give each episode its own number"
        raise fault(file, field, f"{problem} or name.")
    for wrong, what, remedy in _unclear(names):
        hit = np.flatnonzero(wrong[rows])
        if len(hit):
            name = names[rows[hit[0]]]
            given = what or (f"holds {name!s}" if names.dtype.kind in "fiu" else f"holds {str(name)[:40]!r}")
            raise fault(file, field, f"row {hit[0]} {given} ({counted(len(hit), 'such row')}). {remedy}")


def _unclear(names: NDArray[Any]) -> Iterator[tuple[NDArray[np.bool_], str, str]]:
    """The kinds of invalid labels: (mask over the labels, description of such a row, remedy)."""
    number = "Give every row its episode: a whole number from 0 on, or a name."
    if names.dtype.kind == "f":
        yield np.isnan(names), "is NaN", number
        yield ~np.isfinite(names), "is infinite", number
        yield names != np.floor(names), "", number
        exact = 2.0 ** (np.finfo(names.dtype).nmant + 1)
        yield np.abs(names) >= exact, "", f"{names.dtype} does not tell such numbers apart. Store whole numbers."
    if names.dtype.kind in "fi":
        yield names < 0, "", f"{number} Negative numbers often mark a missing one; if yours do not, store text."
    if names.dtype.kind in "USO":
        texts = [name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in names]
        missing = np.array([text.strip().casefold() in MISSING for text in texts], bool)
        yield missing, "", f"That marks a missing name. {number}"
        measured = "It looks measured. Name the column that tells episodes apart; if it is this one, add a letter."
        yield _fractions(texts), "", measured


def _fractions(texts: Sequence[str]) -> NDArray[np.bool_]:
    """Which texts are numbers with a fraction; none if not all of them are numbers."""
    try:
        numbers = np.array(texts, dtype=np.float64)
    except ValueError:
        return np.zeros(len(texts), bool)
    return np.isfinite(numbers) & (numbers != np.round(numbers))


def bounds(low: Any, high: Any, columns: int, file: str | Path) -> tuple[Floats, Floats]:
    """The declared lowest and highest action, one number per column."""
    pair = []
    for field, values in (("action_low", low), ("action_high", high)):
        array = _numbers(values, file, field)
        if array.shape not in ((), (1,), (columns,)):
            raise fault(
                file, field, f"has shape {array.shape}, but actions have {columns} columns. Give one per column."
            )
        with np.errstate(over="ignore"):
            single = array.astype(np.float32)
        if not np.isfinite(single).all():
            raise fault(file, field, "is NaN or infinite in float32. Leave the bounds out if there are none.")
        pair.append(np.broadcast_to(single, (columns,)).copy())
    if not (pair[0] < pair[1]).all():
        column = int(np.flatnonzero(pair[0] >= pair[1])[0])
        given = f"{pair[1][column]:g} in column {column}, where action_low is {pair[0][column]:g}"
        raise fault(file, "action_high", f"is {given}. The highest action must exceed the lowest.")
    return pair[0], pair[1]


def within(actions: Floats, low: Floats, high: Floats, file: str | Path, field: str) -> None:
    """Refuse actions outside the bounds that the file itself declares."""
    outside = (actions < low - TOLERANCE) | (actions > high + TOLERANCE)
    if outside.any():
        row, column = (int(index) for index in np.argwhere(outside)[0])
        declared = f"[{low[column]:g}, {high[column]:g}]"
        raise fault(
            file,
            field,
            f"row {row} holds {actions[row, column]:g}, outside the bounds {declared} that the file declares "
            f"({counted(int(outside.any(axis=1).sum()), 'such row')}). Correct the declared bounds or the actions.",
        )


def same_rows(lengths: dict[str, int], file: str | Path) -> None:
    """Refuse fields of unequal length. `lengths` maps each field, rewards included, to its number of rows."""
    rows_of = next(iter(lengths))
    for field, rows in lengths.items():
        if rows != lengths[rows_of]:
            expected = f"has {counted(rows, 'row')}, but {rows_of} has {lengths[rows_of]}"
            raise fault(file, field, f"{expected}. Give every field one row per step.")


def _one_per_row(values: Any, file: str | Path, field: str) -> NDArray[Any]:
    array = _numbers(values, file, field)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise fault(file, field, f"has shape {array.shape}, but (rows,) is needed: one number per step.")
    return array


def _numbers(values: Any, file: str | Path, field: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise fault(file, field, "holds lists of unequal length. Give every row the same number.") from error
    if array.dtype.kind not in "fiub":
        raise fault(file, field, f"holds {array.dtype}, not numbers. Store it as a numeric array.")
    return array


def _as_float32(array: NDArray[Any], file: str | Path, field: str) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        floats = array.astype(np.float32)
    held = np.abs(floats) <= LARGEST  # never true for NaN
    finite = held if floats.ndim == 1 else held.all(axis=1)
    if not finite.all():
        rows = np.flatnonzero(~finite)
        what = TOO_LARGE if np.isfinite(array[rows[0]]).all() else "NaN or infinite"
        remedy = "Remove those episodes or repair the log."
        raise fault(file, field, f"row {rows[0]} is {what} ({counted(len(rows), 'such row')}). {remedy}")
    return floats
