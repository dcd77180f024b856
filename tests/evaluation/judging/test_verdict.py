import json
import math
from dataclasses import replace

import pytest

from fova.errors import FovaError
from fova.evaluation.judging.verdict import Figures, Verdict

GOOD = Figures(
    episodes=20, rows=400, data_value=5.0, data_return=9.0, value=7.0, low=6.0, high=8.0,
    difference=2.0, difference_low=1.0, difference_high=3.0, bellman_error=0.1, bias=0.2,
    episode_error=0.3, fit_error=0.1, difference_error=0.3, inside=0.95,
)  # fmt: skip
WORSE = replace(GOOD, difference=-2.0, difference_low=-3.0, difference_high=-1.0)
ALIKE = replace(GOOD, difference_low=-1.0)
OUTSIDE = replace(GOOD, inside=0.69)
FEW = replace(GOOD, episodes=1)


def verdict(held_out=True, **clients):
    return Verdict("fova maze", 0.99, held_out, clients, GOOD, {"rounds": 2})


@pytest.mark.parametrize(
    ("figures", "finding"),
    [(GOOD, "better"), (WORSE, "worse"), (ALIKE, "no clear difference"), (OUTSIDE, "not enough evidence"),
     (FEW, "not enough evidence"), (replace(GOOD, inside=None), "not enough evidence"),
     (replace(GOOD, value=math.nan), "not enough evidence")],
)  # fmt: skip
def test_findings(figures, finding):
    assert figures.finding == finding


def test_the_sentence():
    words = verdict(east=GOOD, north=GOOD, west=ALIKE, north_east=WORSE, south=OUTSIDE, hill=FEW).sentence()
    assert words == (
        "Better than current practice at 2 of 6 clients; worse at north_east; no clear difference at west; at "
        "south: the policy acts outside its data in 31 % of states, not enough evidence; at hill: only 1 episode "
        "to judge on, not enough evidence."
    )
    assert "flatters" in verdict(held_out=False, east=GOOD).sentence()


def test_a_verdict_survives_a_file():
    given = verdict(east=GOOD, south=replace(FEW, low=math.nan, high=math.nan))
    read = Verdict.from_json(json.loads(json.dumps(given.to_json(), allow_nan=False)), "judge.json")
    assert read.clients["east"] == GOOD
    assert math.isnan(read.clients["south"].low)
    assert read.sentence() == given.sentence()


@pytest.mark.parametrize(
    "damage",
    [lambda c: [], lambda c: c | {"format": 9}, lambda c: c | {"clients": {"east": {"value": 1}}},
     lambda c: c | {"clients": {"east": c["federation"] | {"value": "7"}}},
     lambda c: c | {"federation": c["federation"] | {"episodes": None}}, lambda c: c | {"discount": "x"}],
)  # fmt: skip
def test_anything_else_is_refused(damage):
    with pytest.raises(FovaError, match=r"judge\.json"):
        Verdict.from_json(damage(verdict(east=GOOD).to_json()), "judge.json")
