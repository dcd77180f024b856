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


def test_where_evidence_begins():
    assert replace(GOOD, episodes=4).why_no_evidence == "only 4 episodes to judge on"
    assert replace(GOOD, episodes=1).why_no_evidence == "only 1 episode to judge on"
    assert replace(GOOD, episodes=5).why_no_evidence is None
    assert replace(GOOD, inside=0.75).why_no_evidence is None
    outside = "the policy acts outside its data in 26 % of states"
    assert replace(GOOD, inside=0.74).why_no_evidence == outside
    assert replace(GOOD, inside=None).why_no_evidence == "it is not known how much of it the data covers"
    for lost in ("value", "difference_low", "difference_high"):
        assert replace(GOOD, **{lost: math.inf}).why_no_evidence == "the fit diverged"


def test_an_interval_that_touches_zero_shows_no_difference():
    assert replace(GOOD, difference_low=0.0).finding == "no clear difference"
    assert replace(WORSE, difference_high=0.0).finding == "no clear difference"


def test_the_sentence_of_one_client():
    assert verdict(east=GOOD).sentence() == "Better than current practice at 1 of 1 client."
    assert verdict(east=ALIKE, west=ALIKE).sentence() == (
        "Better than current practice at 0 of 2 clients; no clear difference at east, west."
    )


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


def test_optional_figures_may_be_missing_and_others_become_nan():
    content = verdict(east=replace(GOOD, inside=None, low=math.inf)).to_json()
    assert content["format"] == 1
    assert content["clients"]["east"]["low"] is None
    read = Verdict.from_json(content, "judge.json").clients["east"]
    assert read.inside is None
    assert math.isnan(read.low)
    assert isinstance(read.episodes, int)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"value": True}, "value is True, but must be a number"), ({"rows": 1.5}, "rows is 1.5, but must be"),
     ({"rows": None}, "rows is missing"), ({"extra": 1.0}, "extra is missing or unknown")],
)  # fmt: skip
def test_what_is_wrong_with_figures_is_said(changes, reason):
    content = verdict(east=GOOD).to_json()
    content["clients"]["east"] |= changes
    with pytest.raises(FovaError, match=reason):
        Verdict.from_json(content, "judge.json")
