"""What the service answers: JSON in, JSON out, without HTTP.

A request is checked completely before the policy sees it, so that a text, a boolean or `null` is never taken for a
number. What is wrong with a request is a `FovaError` for the person who sent it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from fova.errors import FovaError
from fova.policy import NORMALISER, Floats, Policy
from fova.recipe import Input, Recipe, label
from fova.settings import shown
from fova.spaces import Discrete
from fova.version import __version__

ONE, MANY = "observation", "observations"
# A number this far from the mean of training is rare in any data: at most 4 % by Chebyshev's inequality.
WARN_BEYOND = 5.0
LARGEST_WHOLE = 10**300  # larger ones are no floats


class NotJSON(FovaError):
    """The body of a request is not JSON."""


@dataclass(frozen=True)
class Answers:
    """Answers requests with a policy's best actions."""

    policy: Policy
    warn_beyond: float = WARN_BEYOND  # standard deviations; 0 switches the warnings off

    def act(self, body: bytes) -> dict[str, Any]:
        """The answer to the body of a request."""
        request = parse(body)
        if not isinstance(request, dict) or set(request) not in ({ONE}, {MANY}):
            raise FovaError(
                f"The request must be a JSON object with one entry, {ONE!r} or {MANY!r}.{self._got(request)}"
            )
        if ONE in request:
            return self._answers([request[ONE]])[0]
        if not isinstance(request[MANY], list):
            raise FovaError(f"{MANY!r} must be a list of observations, but is {shown(request[MANY])}.")
        return {"answers": self._answers(request[MANY])}

    def _got(self, request: Any) -> str:
        if isinstance(request, dict):
            return f" It has {', '.join(sorted(map(shown, request))) or 'none'}."
        return f" It is {shown(request)}."

    def _answers(self, observations: list[Any]) -> list[dict[str, Any]]:
        if not observations:
            return []
        rows = self._rows(observations)
        warnings = self._warnings(rows)
        if self.policy.inputs is not None and self.warn_beyond:
            warnings = [
                warned + _unknown(self.policy.inputs, record) for warned, record in zip(warnings, observations)
            ]
        return [action | {"warnings": warned} for action, warned in zip(self._actions(rows), warnings)]

    def _rows(self, observations: list[Any]) -> Floats:
        """The numbers that the policy takes, from lists of numbers or from records."""
        if self.policy.inputs is not None:
            for row, record in enumerate(observations):
                _insist_on_record(self.policy.inputs, record, row)
            return self.policy.inputs.observations(observations)
        numbers = [self._numbers(values, row) for row, values in enumerate(observations)]
        with np.errstate(over="ignore"):  # the policy refuses what becomes infinite
            return np.asarray(numbers, np.float32)

    def _actions(self, rows: Floats) -> list[dict[str, Any]]:
        codes_or_numbers = self.policy(rows).tolist()
        if not isinstance(self.policy.space.action, Discrete):
            return [{"action": numbers} for numbers in codes_or_numbers]
        names = self.policy.space.action.names
        return [
            {"action": names[code], "code": code, "probabilities": dict(zip(names, shares))}
            for code, shares in zip(codes_or_numbers, self.policy.probabilities(rows).tolist())
        ]

    def _numbers(self, values: Any, row: int) -> list[float]:
        columns = self.policy.space.observation
        if not isinstance(values, list) or len(values) != columns:
            given = f"a list of {len(values)}" if isinstance(values, list) else shown(values)
            raise FovaError(f"Observation {row} must be a list of {columns} numbers, but is {given}.")
        for column, value in enumerate(values):
            if value is None:
                raise FovaError(f"Column {column} of observation {row} is missing. Every column needs a number.")
            if type(value) not in (int, float):
                raise FovaError(f"Column {column} of observation {row} is {shown(value)}, but must be a number.")
        try:
            return [float(value) for value in values]
        except OverflowError as error:
            raise FovaError(f"Observation {row} holds a number that is too large.") from error

    # --- Warnings ---

    def _warnings(self, rows: Floats) -> list[list[str]]:
        """For each row, its columns that lie far outside of the training data."""
        warnings: list[list[str]] = [[] for _ in rows]
        if self._training is None or not self.warn_beyond:
            return warnings
        mean, std = self._training
        distance = np.abs(rows - mean) / std
        for row, column in np.argwhere(distance > self.warn_beyond):
            if column in self._names:
                warnings[row].append(
                    f"{self._names[column]} is {rows[row, column]:g}, {distance[row, column]:.1f} standard "
                    "deviations from the mean of the training data"
                )
        return warnings

    @cached_property
    def _names(self) -> dict[int, str]:
        """The names of the columns that are numbers. A rare category is no outlier, so it has none."""
        if self.policy.inputs is None:
            return {column: f"column {column}" for column in range(self.policy.space.observation)}
        names, place = {}, 0
        for each in self.policy.inputs.inputs:
            if each.categories is None:
                names[place] = each.name
            place += each.width
        return names

    @cached_property
    def _training(self) -> tuple[Floats, Floats] | None:
        """Mean and spread of the training data, if the policy knows them."""
        if NORMALISER[0] not in self.policy.weights:
            return None
        mean, std = (self.policy.weights[name] for name in NORMALISER)
        return mean, std

    # --- About the policy ---

    def health(self) -> dict[str, Any]:
        warn = self.warn_beyond if self._training is not None and self.warn_beyond else None
        about = {name: fact for name, fact in self.policy.facts.items() if name in ("task", "algorithm", "rounds")}
        return {"status": "ok", "fova": __version__, "policy": about, "warns_beyond_standard_deviations": warn}

    def schema(self) -> dict[str, Any]:
        """The JSON schemas of a request to /act and of the answer."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": {"observation": self._observation_schema(), "answer": self._answer_schema()},
            "request": {
                "oneOf": [
                    _object({ONE: {"$ref": "#/$defs/observation"}}),
                    _object({MANY: {"type": "array", "items": {"$ref": "#/$defs/observation"}}}),
                ]
            },
            "response": {
                "oneOf": [
                    {"$ref": "#/$defs/answer"},
                    _object({"answers": {"type": "array", "items": {"$ref": "#/$defs/answer"}}}),
                ]
            },
        }

    def _observation_schema(self) -> dict[str, Any]:
        if self.policy.inputs is not None:
            return _object({each.name: _column_schema(each) for each in self.policy.inputs.inputs})
        columns = self.policy.space.observation
        return {"type": "array", "items": {"type": "number"}, "minItems": columns, "maxItems": columns}

    def _answer_schema(self) -> dict[str, Any]:
        warnings = {"type": "array", "items": {"type": "string"}}
        action = self.policy.space.action
        if isinstance(action, Discrete):
            code = {"type": "integer", "minimum": 0, "maximum": action.count - 1}
            share = {"type": "number", "minimum": 0, "maximum": 1}
            shares = _object(dict.fromkeys(action.names, share))
            name = {"enum": list(action.names)}
            return _object({"action": name, "code": code, "probabilities": shares, "warnings": warnings})
        columns = [
            {"type": "number", "minimum": least, "maximum": most} for least, most in zip(action.low, action.high)
        ]
        numbers = {"type": "array", "prefixItems": columns, "minItems": len(columns), "maxItems": len(columns)}
        return _object({"action": numbers, "warnings": warnings})


# --- Records -----------------------------------------------------------------------------------------------


def _insist_on_record(recipe: Recipe, record: Any, row: int) -> None:
    """Refuse what is no record, and values that are neither of the column's type nor `null`."""
    if not isinstance(record, dict):
        names = ", ".join(each.name for each in recipe.inputs)
        raise FovaError(f"Observation {row} must be an object with {names}, but is {shown(record)}.")
    for each in recipe.inputs:
        value = record.get(each.name)
        kinds = (int, float) if each.categories is None else (str, int, float, bool)
        if value is not None and type(value) not in kinds:
            needed = "a number" if each.categories is None else "a text or a number"
            raise FovaError(f"{each.name} of observation {row} is {shown(value)}, but must be {needed}.")
        if type(value) is int and abs(value) > LARGEST_WHOLE:
            raise FovaError(f"{each.name} of observation {row} is too large.")


def _unknown(recipe: Recipe, record: Mapping[str, Any]) -> list[str]:
    """Warnings about categories that no client had."""
    return [
        f"{each.name} is {shown(record[each.name])}, which is in no client's data"
        for each in recipe.inputs
        if each.categories is not None
        and not each.lacks(record[each.name])
        and label(record[each.name]) not in each.categories
    ]


def _column_schema(each: Input) -> dict[str, Any]:
    kinds = ["number"] if each.categories is None else ["string", "number", "boolean"]
    if each.has_indicator or each.missing == "unknown":
        kinds.append("null")
    schema: dict[str, Any] = {"type": kinds}
    return schema if each.categories is None else schema | {"examples": list(each.categories)}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


# --- JSON --------------------------------------------------------------------------------------------------


def parse(body: bytes) -> Any:
    """The JSON value of a body. NaN, Infinity and names that occur twice are refused: JSON has neither."""
    try:
        return json.loads(body, parse_constant=_not_a_number, object_pairs_hook=_without_repetition)
    except RecursionError as error:
        raise NotJSON("The request's brackets are nested too deep.") from error
    except ValueError as error:  # also text that is not UTF-8, and whole numbers of thousands of digits
        raise NotJSON(f"The request is not JSON: {error}.") from error


def _not_a_number(name: str) -> NoReturn:
    raise NotJSON(f"The request holds {name}, which JSON does not have. Every column needs a finite number.")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotJSON(f"The request names {shown(twice)} twice.")
    return made
