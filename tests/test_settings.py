from dataclasses import dataclass
from typing import Literal

import pytest

from fova.errors import FovaError
from fova.settings import fill


@dataclass(frozen=True)
class Example:
    size: int
    rate: float = 0.5
    widths: tuple[int, ...] = ()
    mode: Literal["a", "b"] = "a"
    on: bool = True
    name: str | None = None


def test_good_values_arrive_in_their_type():
    filled = fill(Example, {"size": 3, "rate": 2, "widths": [4, 5], "mode": "b", "on": False, "name": "x"}, "here")
    assert filled == Example(3, 2.0, (4, 5), "b", False, "x")
    assert isinstance(filled.rate, float)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"size": "three"}, "size here is 'three', but must be a whole number"),
        ({"size": 1.5}, "a whole number"),
        ({"size": True}, "a whole number"),
        ({"size": 1, "rate": "fast"}, "a number"),
        ({"size": 1, "widths": 4}, "a list, each a whole number"),
        ({"size": 1, "widths": [4, "x"]}, "a list"),
        ({"size": 1, "mode": "c"}, "one of 'a', 'b'"),
        ({"size": 1, "on": 1}, "true or false"),
        ({"size": 1, "name": 5}, "a text"),
        ({"sise": 1}, "Did you mean 'size'"),
        ({}, "missing"),
        (["size"], "a table of settings"),
    ],
)
def test_wrong_values_are_named(values, words):
    with pytest.raises(FovaError, match=words):
        fill(Example, values, "here")
