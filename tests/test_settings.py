import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal, get_args, get_type_hints

import numpy as np
import pytest

from fova import algorithms
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.network.server_config import ServerConfig
from fova.run.config import RunConfig
from fova.settings import Within, check_ranges, fill, ranges, shown


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


def test_one_number_is_a_list_of_numbers():
    assert fill(RunConfig, {"action_low": 0, "action_high": 2.5}, "here").action_low == (0.0,)
    with pytest.raises(FovaError, match="action_low here is 'low', but must be a number or a list of numbers"):
        fill(RunConfig, {"action_low": "low", "action_high": 1}, "here")
    with pytest.raises(FovaError, match="action_low here is True, but must be a number or a list of numbers"):
        fill(RunConfig, {"action_low": True, "action_high": 1}, "here")


def test_lambda_is_the_name_that_people_write():
    for name in ("lambda", "lam"):
        assert algorithms.configure("fova", **{name: 2}).lam == 2.0  # also where the preset has a value
    with pytest.raises(FovaError, match="lambda of fova is given twice, also as lam"):
        algorithms.configure("fova", **{"lam": 1.0, "lambda": 2.0})
    with pytest.raises(FovaError, match=r"^lambda of fova is 'much', but must be a number"):
        algorithms.configure("fova", **{"lambda": "much"})
    with pytest.raises(FovaError, match=r"^lambda is -1\.0, but must be at least 0"):
        algorithms.configure("fova", **{"lambda": -1.0})
    with pytest.raises(FovaError, match="Did you mean 'lambda'"):
        algorithms.configure("fova", lamda=1.0)


def test_each_of_several_types_is_taken():
    filled = fill(Ranged, {"weight": "auto", "limit": None}, "here")
    assert (filled.weight, filled.limit) == ("auto", None)
    filled = fill(Ranged, {"weight": 2, "limit": 0}, "here")
    assert (filled.weight, filled.limit) == (2.0, 0.0)
    assert fill(Example, {"size": 1, "name": ""}, "here").name == ""


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


# --- Ranges ---


@dataclass(frozen=True)
class Ranged:
    share: Annotated[float, Within(0, 1, above=True)] = 0.5
    count: Annotated[int, Within(1, 1_000)] = 3
    weight: Annotated[float | Literal["auto"], Within(0)] = "auto"
    widths: Annotated[tuple[int, ...], Within(1, 64)] = (8,)
    limit: Annotated[float | None, Within(0, 1, below=True)] = None
    free: float = 0.0
    on: bool = True

    def __post_init__(self):
        check_ranges(self)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"share": 0.0}, "share is 0.0, but must be above 0 and at most 1."),
        ({"share": 1.5}, "share is 1.5, but must be above 0 and at most 1."),
        ({"share": math.nan}, "share is nan, but must be above 0 and at most 1."),
        ({"share": 1e-40}, "share is 1e-40, but must be at least 1e-30."),
        ({"count": 0}, "count is 0, but must be at least 1 and at most 1,000."),
        ({"count": 2**63}, "count is 9223372036854775808, but must be at least 1 and at most 1,000."),
        ({"weight": -1}, "weight is -1.0, but must be at least 0."),
        ({"weight": math.inf}, "weight is inf, but must be at least 0 and at most 1e+30."),
        ({"weight": 10**400}, "but must be at least 0 and at most 1e+30."),
        ({"widths": [8, 0]}, "widths is (8, 0), but each number must be at least 1 and at most 64."),
        ({"limit": 1.0}, "limit is 1.0, but must be at least 0 and below 1."),
        ({"free": math.nan}, "free is nan, but must be at least -1e+30 and at most 1e+30."),
        ({"free": -(10**400)}, "but must be at least -1e+30."),
        ({"count": 1 << 20_000}, "count is a number of thousands of digits, but must be"),
    ],
)
def test_numbers_outside_their_range_are_named(values, words):
    with pytest.raises(FovaError) as error:
        fill(Ranged, values, "here")
    assert words in str(error.value)
    assert len(str(error.value)) < 200, "long values are shortened"


def test_the_ends_of_a_range():
    closed, open_ = Within(1, 5), Within(1, 5, above=True, below=True)
    assert [closed.holds(x) for x in (0.9, 1, 3, 5, 5.1)] == [False, True, True, True, False]
    assert [open_.holds(x) for x in (0.9, 1, 3, 5, 5.1)] == [False, False, True, False, False]
    above = Within(0, above=True)
    assert [above.holds(x) for x in (0.9e-30, 1e-30, 1e30, 1.1e30)] == [False, True, True, False]
    assert [Within().holds(x) for x in (-1.1e30, -1e30, 0, 1e30, 1.1e30)] == [False, True, True, True, False]
    assert not Within().holds(math.nan)


def test_a_range_in_words():
    assert Within(0, above=True).in_words(0) == "above 0"
    assert Within(0, above=True).in_words(0.5e-30) == "at least 1e-30"
    assert Within(0, above=True).in_words(-1) == "above 0"
    assert Within(most=5).in_words(6) == "at most 5"
    assert Within(most=5).in_words(-2e30) == "at least -1e+30 and at most 5"
    assert Within(0.5, 1_000, below=True).in_words(0) == "at least 0.5 and below 1,000"


def test_a_value_is_shown_with_at_most_60_characters():
    assert shown("x" * 58) == repr("x" * 58)
    assert shown("x" * 59) == "'" + "x" * 56 + "..."


def test_python_programs_meet_the_same_check():
    assert Ranged(share=1, limit=0.0, weight=2.0).share == 1
    with pytest.raises(FovaError, match=r"share is .*nan.*, but must be above 0"):
        Ranged(share=np.float32("nan"))
    with pytest.raises(FovaError, match=r"count is .*0.*, but must be at least 1"):
        Ranged(count=np.int64(0))


def test_a_field_that_is_declared_anew_keeps_its_range():
    @dataclass(frozen=True)
    class Mine(Ranged):
        share: float = 0.25

    with pytest.raises(FovaError, match="share is 2, but must be above 0 and at most 1"):
        Mine(share=2)


def test_an_algorithm_of_a_user_is_checked_too():
    kind = algorithms.get(str(Path(__file__).parents[1] / "examples/fed_awac.py"))
    with pytest.raises(FovaError, match="discount is 2, but must be at least 0 and below 1"):
        kind(discount=2)


def is_numeric(hint):
    return hint in (int, float) or any(map(is_numeric, get_args(hint)))


@pytest.mark.parametrize(
    "kind", [RunConfig, ServerConfig, ClientSpec, *algorithms.by_name().values()], ids=lambda kind: kind.__name__
)
def test_every_number_that_a_user_can_set_has_a_range(kind):
    hints = get_type_hints(kind)
    numeric = {field.name for field in fields(kind) if is_numeric(hints[field.name])}
    assert numeric
    assert numeric <= set(ranges(kind)), "declare it as Annotated[float, Within(...)]"
