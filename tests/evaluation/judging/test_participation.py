from dataclasses import replace

import pytest
from test_verdict import GOOD, verdict

from fova.evaluation.judging.intervals import NORMAL_QUANTILE
from fova.evaluation.judging.participation import in_words, taking_part

FEDERATED = replace(GOOD, value=7.0, fit_error=0.3, bias=-0.1)
LOCAL = replace(GOOD, value=4.0, fit_error=0.4, bias=0.2)


def test_the_gain_by_hand():
    found = taking_part([verdict(east=FEDERATED)], [verdict(east=LOCAL)])["east"]
    assert (found.data, found.local, found.federated, found.gain) == (5.0, 4.0, 7.0, 3.0)
    assert found.reach == pytest.approx(NORMAL_QUANTILE * 0.5 + 0.3)  # hypot(0.3, 0.4), then both biases
    assert found.payoff == "pays"


@pytest.mark.parametrize(
    ("federated", "payoff"),
    [(3.0, "no clear difference"), (1.0, "does not pay"), (9.0, "pays")],
)
def test_findings(federated, payoff):
    found = taking_part([verdict(east=replace(FEDERATED, value=federated))], [verdict(east=LOCAL)])
    assert found["east"].payoff == payoff


@pytest.mark.parametrize(
    ("gain", "payoff"), [(0.0, "no clear difference"), (0.25, "pays"), (-0.25, "does not pay")]
)
def test_without_any_error_the_least_difference_counts_and_none_does_not(gain, payoff):
    sure = replace(LOCAL, fit_error=0.0, bias=0.0)
    found = taking_part([verdict(east=replace(sure, value=4.0 + gain))], [verdict(east=sure)])["east"]
    assert (found.gain, found.reach, found.payoff) == (gain, 0.0, payoff)


def test_only_clients_with_a_policy_of_their_own_are_compared():
    assert list(taking_part([verdict(east=FEDERATED, west=FEDERATED)], [verdict(west=LOCAL)])) == ["west"]


def test_several_seeds_are_averaged():
    more = replace(FEDERATED, value=9.0)
    found = taking_part([verdict(east=FEDERATED), verdict(east=more)], [verdict(east=LOCAL)] * 2)["east"]
    assert found.federated == 8.0
    assert found.reach == pytest.approx(NORMAL_QUANTILE * 0.5 / 2**0.5 + 0.3)


def test_weak_evidence_is_no_finding():
    clients = {"east": FEDERATED, "west": replace(FEDERATED, inside=0.2)}
    found = taking_part([verdict(**clients)], [verdict(east=LOCAL, west=LOCAL)])
    assert in_words(found) == "By the judge, taking part pays at 1 of 2 clients; not enough evidence at west."
