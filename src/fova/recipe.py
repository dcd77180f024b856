"""From a raw record to an observation: which columns, in which order, categories and missing values. NumPy only.

A recipe is agreed by the clients before training and travels inside the policy, so that the policy takes records as
they are logged: `policy({"hr": 80, "ward": "A"})`. Training data is encoded by the same functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError, unknown

Floats = NDArray[np.float32]
Missing = Literal["refuse", "carry", "mean", "carry-mean", "unknown"]
MISSING: tuple[Missing, ...] = get_args(Missing)
OTHER = "other"  # the place of categories that no client had
NO_VALUE = -1  # the code of a missing category
NO_LABEL = ("", "nan")  # texts that are never a category


@dataclass(frozen=True)
class Input:
    """One column of a record, and how it becomes numbers.

    A number takes one place, and one more that says whether it was missing if its mean stands in. A category takes
    one place for each value in the vocabulary, and one for all others.
    """

    name: str
    missing: Missing = "refuse"
    mean: float | None = None  # stands in for a missing number
    categories: tuple[str, ...] | None = None  # None: a number
    na: tuple[str, ...] = ()  # further values that mark a missing one, such as -999

    def __post_init__(self) -> None:
        if self.missing not in MISSING:
            raise unknown("way to treat missing values", str(self.missing), MISSING)
        if self.categories is not None and "mean" in self.missing:
            raise FovaError(
                f"{self.name}: categories have no mean. Treat its missing values as unknown, carry or refuse."
            )
        if self.categories is None and self.missing == "unknown":
            raise FovaError(f"{self.name}: only categories can be unknown. Use mean, carry, carry-mean or refuse.")
        if self.has_indicator and (self.mean is None or not np.isfinite(np.float32(self.mean))):
            raise FovaError(
                f"{self.name}: the mean that stands in for missing values is {self.mean}, not a number."
            )

    @property
    def has_indicator(self) -> bool:
        """Whether a place says that the value was missing."""
        return "mean" in self.missing

    @property
    def width(self) -> int:
        return 1 + self.has_indicator if self.categories is None else len(self.categories) + 1

    def places(self) -> list[str]:
        """The names of the numbers that this column becomes."""
        if self.categories is None:
            return [self.name, f"{self.name} missing"] if self.has_indicator else [self.name]
        return [f"{self.name}={category}" for category in (*self.categories, OTHER)]

    def fill(self, values: NDArray[Any], out: Floats) -> None:
        """Write the encoded column into `out`, [rows, width].

        `values` are numbers with NaN where one is missing, or codes: `NO_VALUE` where one is missing, the index in
        the vocabulary, or its length for a category that is not in it. Missing values that the recipe does not
        replace must have been refused before.
        """
        if self.categories is not None:
            out[:] = 0.0
            codes = np.where(values == NO_VALUE, len(self.categories), values)
            out[np.arange(len(out)), codes] = 1.0
            return
        if not self.has_indicator:
            out[:, 0] = values
            return
        absent = np.isnan(values)
        out[:, 0] = np.where(absent, np.float32(self.mean or 0.0), values)
        out[:, 1] = absent

    def code(self, category: str) -> int:
        """The place of a category; the last one for a category that no client had."""
        assert self.categories is not None
        return self._codes.get(category, len(self.categories))

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {category: code for code, category in enumerate(self.categories or ())}

    def lacks(self, value: Any) -> bool:
        """Whether a value of a record stands for no value in this column."""
        if is_missing(value):
            return True
        if self.categories is not None:
            return label(value) in self.missing_labels
        return isinstance(value, Real) and _single(value) in self.missing_numbers

    @cached_property
    def missing_labels(self) -> frozenset[str]:
        """The labels that stand for no category."""
        return frozenset((*NO_LABEL, *self.na))

    @cached_property
    def missing_numbers(self) -> frozenset[float]:
        """The numbers that stand for no value, in single precision."""
        return frozenset(_single(number) for text in self.na if (number := as_number(text)) is not None)


@dataclass(frozen=True)
class Recipe:
    """The columns of a record that make an observation, in order."""

    inputs: tuple[Input, ...]

    def __post_init__(self) -> None:
        names = [each.name for each in self.inputs]
        if not names:
            raise FovaError("A recipe for observations needs at least one column.")
        for name in names:
            if names.count(name) > 1:
                raise FovaError(f"Column {name!r} is used twice in the observations. Name it once.")

    @property
    def width(self) -> int:
        """The number of numbers in an observation."""
        return sum(each.width for each in self.inputs)

    def places(self) -> list[str]:
        """The names of the numbers in an observation."""
        return [place for each in self.inputs for place in each.places()]

    # --- Records ---

    def observations(self, records: Any) -> Floats:
        """The observation of one record [width], or of several [records, width].

        A record is a mapping from column to value. Several are a list of mappings, or a table (pandas, polars,
        Arrow). Missing columns are refused by name, and so are additional ones, except those of a table: a log has
        columns that are no observations. Each record stands alone: nothing is carried from one to the next.
        """
        if isinstance(records, Mapping):
            return self._encode({name: [value] for name, value in records.items()})[0]
        if is_table(records):
            own = {str(name): name for name in _names(records)}
            _insist_on_names(own, self._names, "The table", alone=False)
            return self._encode({name: _column(records, own[name]) for name in self._names})
        each = list(records)
        for number, record in enumerate(each):
            _insist_on_names(record, self._names, f"Record {number}")
        return self._encode({name: [record[name] for record in each] for name in self._names})

    @cached_property
    def _names(self) -> list[str]:
        return [each.name for each in self.inputs]

    def _encode(self, columns: Mapping[str, Sequence[Any]]) -> Floats:
        _insist_on_names(columns, self._names, "The record")
        rows = len(next(iter(columns.values())))
        out = np.empty((rows, self.width), np.float32)
        start = 0
        for each in self.inputs:
            values = (
                _numbers(each, columns[each.name]) if each.categories is None else _codes(each, columns[each.name])
            )
            each.fill(values, out[:, start : start + each.width])
            start += each.width
        return out

    # --- As plain values, for files and messages ---

    def to_json(self) -> list[dict[str, Any]]:
        described = []
        for each in self.inputs:
            content: dict[str, Any] = {"name": each.name, "missing": each.missing}
            if each.mean is not None:
                content["mean"] = each.mean
            if each.categories is not None:
                content["categories"] = list(each.categories)
            if each.na:
                content["na"] = list(each.na)
            described.append(content)
        return described

    @staticmethod
    def from_json(content: Any) -> "Recipe":
        """The recipe that `to_json` wrote; anything else is refused."""
        try:
            return Recipe(tuple(_input(each) for each in content))
        except (KeyError, TypeError, ValueError) as error:
            raise FovaError(f"{content!r} does not describe the columns of a record.") from error


def _input(content: Mapping[str, Any]) -> Input:
    name, missing, mean = content["name"], content["missing"], content.get("mean")
    categories, na = content.get("categories"), content.get("na", ())
    if not isinstance(name, str) or set(content) - {"name", "missing", "mean", "categories", "na"}:
        raise TypeError(name)
    if not all(isinstance(text, str) for text in (*(categories or ()), *na)):
        raise TypeError(categories)
    number = None if mean is None else float(mean)
    return Input(name, missing, number, None if categories is None else tuple(categories), tuple(na))


# --- Values of records -------------------------------------------------------------------------------------


def is_records(observations: Any) -> bool:
    """Whether these are records and not an array of numbers."""
    if isinstance(observations, Mapping) or is_table(observations):
        return True
    return isinstance(observations, list | tuple) and bool(observations) and isinstance(observations[0], Mapping)


def is_table(value: Any) -> bool:
    """Whether a value is a table with named columns: a pandas or polars frame, or an Arrow table."""
    return not isinstance(value, np.ndarray | Mapping) and (
        hasattr(value, "__arrow_c_stream__") or hasattr(value, "column_names") or hasattr(value, "iloc")
    )


def label(value: Any) -> str:
    """A category as text, without blanks around it: 3, 3.0, "3" and "3 " are the same one."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def is_missing(value: Any) -> bool:
    """Whether a value of a record stands for no value: None, NaN, NaT or pandas.NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return bool(isinstance(value, float | np.floating | np.datetime64) and value != value)


def as_number(text: str) -> float | None:
    """The number that a text is, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number else None


def _single(number: Any) -> float:
    """A number in single precision, in which training saw it."""
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(number))
    except OverflowError:  # a whole number with hundreds of digits
        return float("inf")


def _names(table: Any) -> list[Any]:
    return list(table.column_names if hasattr(table, "column_names") else table.columns)


def _column(table: Any, name: Any) -> list[Any]:
    column = table[name]
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def _insist_on_names(given: Any, expected: Sequence[str], what: str, alone: bool = True) -> None:
    """Refuse columns that are lacking, and others if those that are expected must be `alone`."""
    if not isinstance(given, Mapping):
        raise FovaError(f"{what} is {given!r}, but must be a mapping from column to value.")
    lacking = [name for name in expected if name not in given]
    additional = [str(name) for name in given if name not in expected]
    if lacking or (alone and additional):
        problems = [f"lacks {_listed(lacking)}"] if lacking else []
        problems += [f"has {_listed(additional)}, which the policy does not know"] if additional else []
        raise FovaError(f"{what} {' and '.join(problems)}. The policy takes: {', '.join(expected)}.")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _numbers(each: Input, values: Sequence[Any]) -> NDArray[np.float64]:
    numbers = np.empty(len(values))
    for row, value in enumerate(values):
        if each.lacks(value):
            _insist_on_replacement(each, value, row)
            numbers[row] = np.nan
            continue
        if isinstance(value, str | bytes):
            raise FovaError(f"{each.name} is {value!r} in record {row}, but must be a number.")
        try:
            numbers[row] = float(value)
        except (TypeError, ValueError) as error:
            raise FovaError(f"{each.name} is {value!r} in record {row}, but must be a number.") from error
        if not np.isfinite(_single(numbers[row])):
            raise FovaError(f"{each.name} is {value!r} in record {row}, but must be a finite number.")
    return numbers


def _codes(each: Input, values: Sequence[Any]) -> NDArray[np.int64]:
    codes = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        if each.lacks(value):
            _insist_on_replacement(each, value, row)
            codes[row] = NO_VALUE
        else:
            codes[row] = each.code(label(value))
    return codes


def _insist_on_replacement(each: Input, value: Any, row: int) -> None:
    """Refuse a missing value for which the recipe knows no replacement in a single record."""
    if each.has_indicator or each.missing == "unknown":
        return
    given = f"{each.name} is missing in record {row}"
    if not is_missing(value):
        given = f"{each.name} is {value!r} in record {row}, which stands for a missing value"
    if each.missing == "carry":
        raise FovaError(
            f"{given}. In training the last known value of the episode was carried forward; a single record has no "
            "past, so give the last value that you know."
        )
    raise FovaError(f"{given}. The policy was trained without missing values of it; give a value.")
