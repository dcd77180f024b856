"""Filling a config dataclass from named values that a person wrote: every name, kind and range is checked.

A field declares its range where it declares its type: `discount: Annotated[float, Within(0, 1)] = 0.99`. A class
calls `check_ranges` when it is made, so that flags, files and Python programs meet the same check.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fova.errors import FovaError, unknown

T = TypeVar("T")

# Training computes in single precision. It ends at 3.4e38 and 1.2e-38; larger numbers are infinite, smaller ones 0.
LARGEST, SMALLEST = 1e30, 1e-30
LONGEST_SHOWN = 60  # characters of a value in a message
# The name of a setting that cannot name a field, because Python keeps the word for itself.
FIELDS = {"lambda": "lam"}
SETTINGS = {field: setting for setting, field in FIELDS.items()}


def setting_name(field: str) -> str:
    """The name of a field as flags, files and messages show it: `lambda` for `lam`."""
    return SETTINGS.get(field, field)


def by_field(values: dict[str, Any], where: str) -> dict[str, Any]:
    """The values by the names of fields. `lambda` and `lam` are the same setting and may not both be given."""
    for setting, field in FIELDS.items():
        if setting in values and field in values:
            raise FovaError(f"{setting} {where} is given twice, also as {field}. Leave one of them out.")
    return {FIELDS.get(name, name): value for name, value in values.items()}


@dataclass(frozen=True)
class Within:
    """The range of a number, or of each number in a list."""

    least: float = -LARGEST
    most: float = LARGEST
    above: bool = False  # `least` itself is outside
    below: bool = False  # `most` itself is outside

    def holds(self, number: float) -> bool:
        """Whether a number is in the range. NaN never is."""
        if self.above and not (number > self.least and number >= self.least + SMALLEST):  # the sum may round down
            return False
        return self.least <= number < self.most if self.below else self.least <= number <= self.most

    def in_words(self, number: float) -> str:
        """The range that a number is outside of. The ends of single precision are named only where they matter."""
        if self.above and self.least < number < self.least + SMALLEST:
            return f"at least {_figure(SMALLEST)}"
        low = f"{'above' if self.above else 'at least'} {_figure(self.least)}"
        high = f"{'below' if self.below else 'at most'} {_figure(self.most)}"
        ends = [low] if self.least > -LARGEST or number < self.least else []
        ends += [high] if self.most < LARGEST or number > self.most else []
        return " and ".join(ends or [low, high])


SEEDS = Within(0, 2**32 - 1)  # JAX would take a larger one for another seed
PORTS = Within(0, 65_535)
SECONDS = Within(0.001, 1e6)
CONNECTIONS = Within(1, 10_000)
HELD_OUT = Within(0, 0.5)  # share of a client's episodes
MOST_ROWS = 1_000_000_000
ROWS = Within(1, MOST_ROWS)
ANY = Within()  # where no range is declared; only algorithms in users' files have such fields


def ranges(kind: type) -> dict[str, Within]:
    """The ranges that the fields of a dataclass declare. A field that is declared anew keeps its range."""
    found: dict[str, Within] = {}
    for base in reversed(kind.__mro__):
        hints = get_type_hints(base, include_extras=True) if is_dataclass(base) else {}
        for name, hint in hints.items():
            for item in hint.__metadata__ if get_origin(hint) is Annotated else ():
                if isinstance(item, Within):
                    found[name] = item
    return found


def check_ranges(settings: Any) -> None:
    """Refuse a dataclass in which a number is outside the range that its field declares."""
    declared = ranges(type(settings))
    for field in fields(settings):
        value, within = getattr(settings, field.name), declared.get(field.name, ANY)
        for number in _numbers(value):
            if not within.holds(number):
                each = "each number " if isinstance(value, list | tuple) else ""
                name = setting_name(field.name)
                raise FovaError(f"{name} is {shown(value)}, but {each}must be {within.in_words(number)}.")


def check_kinds(settings: Any, where: str) -> None:
    """Refuse a dataclass that a Python program has made with a value of the wrong kind."""
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        value = getattr(settings, field.name)
        fits, fitting = _fit(value, hints[field.name])
        if not fits:
            name = setting_name(field.name)
            raise FovaError(f"{name} {where} is {shown(value)}, but must be {_spoken(hints[field.name])}.")
        object.__setattr__(settings, field.name, fitting)  # a number of NumPy as a plain one, a list as a tuple


def argument(name: str, value: Any, hint: Any) -> Any:
    """An argument that a Python program gave to a function, in the type that `hint` says; another is refused."""
    kind, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    fits, fitting = _fit(value, kind)
    if not fits:
        raise FovaError(f"{name} is {shown(value)}, but must be {_spoken(kind)}.")
    for within in more:
        if isinstance(fitting, Real) and not within.holds(fitting):
            raise FovaError(f"{name} is {shown(value)}, but must be {within.in_words(fitting)}.")
    return fitting


def _numbers(value: Any) -> Iterator[Any]:
    for item in value if isinstance(value, list | tuple) else (value,):
        if isinstance(item, Real) and not isinstance(item, bool):
            yield item


def fill(kind: type[T], values: Any, where: str) -> T:
    """`kind(**values)`, or an error that names the setting, what it was given and what it takes."""
    if not isinstance(values, dict):
        raise FovaError(f"{where} must be a table of settings, but is {shown(values)}.")
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    checked = {}
    for name, value in by_field(values, where).items():
        if name not in names:
            raise unknown(f"setting {where}", setting_name(name), map(setting_name, names))
        fits, checked[name] = _fit(value, hints[name])
        if not fits:
            raise FovaError(f"{setting_name(name)} {where} is {shown(value)}, but must be {_spoken(hints[name])}.")
    try:
        filled = kind(**checked)
    except TypeError as error:
        raise FovaError(f"A setting {where} is missing: {error}") from error
    check_ranges(filled)
    return filled


def shown(value: Any) -> str:
    """A value as a message shows it, shortened where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write whole numbers of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


def _figure(number: float) -> str:
    whole = float(number).is_integer() and abs(number) < LARGEST
    return f"{int(number):,}" if whole else f"{number:g}"


def _fit(value: Any, hint: Any) -> tuple[bool, Any]:
    """Whether a value fits a type, and the value in that type (lists become tuples, whole numbers floats)."""
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return next((fit for option in options if (fit := _fit(value, option))[0]), (False, value))
    if origin is Literal:
        return isinstance(value, str) and value in options, value
    if origin is tuple:
        if options[0] is float and _as_float(value)[0]:  # one number, as on the command line
            value = (value,)
        if not isinstance(value, list | tuple):
            return False, value
        fits = [_fit(item, options[0]) for item in value]
        return all(ok for ok, _ in fits), tuple(item for _, item in fits)
    if hint is float:
        return _as_float(value)
    if hint is int:
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        return is_whole, int(value) if is_whole else value
    return hint is Any or isinstance(value, origin or hint), value


def _as_float(value: Any) -> tuple[bool, Any]:
    if not isinstance(value, Real) or isinstance(value, bool):
        return False, value
    try:
        return True, float(value)
    except OverflowError:  # a whole number beyond all floats; no range holds it
        return True, value


def _spoken(hint: Any) -> str:
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_spoken(option) for option in options if option is not NoneType)
    if origin is Literal:
        return "one of " + ", ".join(repr(option) for option in options)
    if origin is tuple:
        return "a number or a list of numbers" if options[0] is float else f"a list, each {_spoken(options[0])}"
    words: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    words |= {dict: "a table", Callable: "a function"}
    return words.get(origin or hint, f"a {(origin or hint).__name__}")
