"""Filling a config dataclass from named values that a person wrote: every name and every kind is checked."""

from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fova.errors import FovaError, unknown

T = TypeVar("T")


def fill(kind: type[T], values: Any, where: str) -> T:
    """`kind(**values)`, or an error that names the setting, what it was given and what it takes."""
    if not isinstance(values, dict):
        raise FovaError(f"{where} must be a table of settings, but is {values!r}.")
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    checked = {}
    for name, value in values.items():
        if name not in names:
            raise unknown(f"setting {where}", name, names)
        fits, checked[name] = _fit(value, hints[name])
        if not fits:
            raise FovaError(f"{name} {where} is {value!r}, but must be {_spoken(hints[name])}.")
    try:
        return kind(**checked)
    except TypeError as error:
        raise FovaError(f"A setting {where} is missing: {error}") from error


def _fit(value: Any, hint: Any) -> tuple[bool, Any]:
    """Whether a value fits a type, and the value in that type (lists become tuples, whole numbers floats)."""
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return next((fit for option in options if (fit := _fit(value, option))[0]), (False, value))
    if origin is Literal:
        return value in options, value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False, value
        fits = [_fit(item, options[0]) for item in value]
        return all(ok for ok, _ in fits), tuple(item for _, item in fits)
    if hint is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number, float(value) if is_number else value
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    return isinstance(value, hint), value


def _spoken(hint: Any) -> str:
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_spoken(option) for option in options if option is not NoneType)
    if origin is Literal:
        return "one of " + ", ".join(repr(option) for option in options)
    if origin is tuple:
        return f"a list, each {_spoken(options[0])}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return words.get(hint, str(hint))
