"""Exact values: by hand on two states, and the published figures on the real tables."""

import numpy as np
import pytest

from fova.errors import FovaError
from fova.policy import Policy
from fova.spaces import Discrete, Space
from fova.tasks.sepsis import ACTIONS, FEATURES
from fova.tasks.sepsis.hospitals import hospital
from fova.tasks.sepsis.tables import PATIENT_STATES, Tables
from fova.tasks.sepsis.values import (
    action_values,
    exact_value,
    improved,
    optimal_policy,
    policy_table,
    state_values,
    worst_policy,
)


def two_states():
    """Two states of patients. Of the ends only survival, number 714, is used here; so the others are left empty."""
    transitions = np.zeros((2, 2, 716))
    transitions[0, 0, [0, 714]] = 0.5, 0.5  # stay or survive
    transitions[0, 1, [1, 713]] = 0.5, 0.5  # get worse or die
    transitions[1, 0, [0, 713]] = 0.25, 0.75
    transitions[1, 1, 713] = 1.0
    return Tables(transitions, np.array([0.5, 0.5]), np.full((2, 2), 0.5), np.zeros((4, 1)))


def test_values_by_hand():
    given = two_states()
    always_first = np.array([[1.0, 0.0], [1.0, 0.0]])
    # v0 = 0.5 v0 + 0.5, so v0 = 1; v1 = 0.25 v0.
    np.testing.assert_allclose(state_values(always_first, given), [1.0, 0.25])
    assert exact_value(always_first, given) == pytest.approx(0.625)
    # v0 = 0.25 v0 + 0.25 + 0.25 v1 and v1 = 0.125 v0: v0 = 0.25 / (0.75 - 0.03125)
    first = 0.25 / 0.71875
    np.testing.assert_allclose(state_values(np.full((2, 2), 0.5), given), [first, first / 8.0])
    np.testing.assert_allclose(action_values(np.array([1.0, 0.25]), given), [[1.0, 0.125], [0.25, 0.0]])


def test_policy_iteration_by_hand():
    given = two_states()
    np.testing.assert_array_equal(improved(1.0, given), [[1.0, 0.0], [1.0, 0.0]])
    assert exact_value(improved(-1.0, given), given) == 0.0


def test_the_published_values():
    """The package's page: random 0.78, clinician 0.78, optimal 0.88; to four digits as computed for this task."""
    assert exact_value(optimal_policy()) == pytest.approx(0.8751, abs=1e-4)
    assert exact_value(hospital("clinician")) == pytest.approx(0.7818, abs=1e-4)
    assert exact_value(hospital("random")) == pytest.approx(0.7801, abs=1e-4)
    assert exact_value(worst_policy()) == pytest.approx(0.6330, abs=1e-4)


def test_no_action_improves_the_optimal_policy():
    values = state_values(optimal_policy())
    assert action_values(values).max(axis=1) == pytest.approx(values, abs=1e-9)


def test_a_table_that_holds_no_policy_is_refused():
    with pytest.raises(FovaError, match=r"\(3, 25\)"):
        exact_value(np.full((3, 25), 0.04))
    with pytest.raises(FovaError, match="add up to 1"):
        exact_value(np.full((PATIENT_STATES, 25), 0.05))


def test_a_trained_policy_has_an_exact_value():
    weight = np.zeros((FEATURES, 25), np.float32)
    bias = np.zeros(25, np.float32)
    bias[7] = 2.0
    policy = Policy("categorical", {"last.weight": weight, "last.bias": bias}, Space(FEATURES, Discrete(ACTIONS)))
    always = np.zeros((PATIENT_STATES, 25))
    always[:, 7] = 1.0
    np.testing.assert_array_equal(policy_table(policy), always)
    softened = np.full((PATIENT_STATES, 25), 1.0 / (24.0 + np.exp(2.0)))
    softened[:, 7] *= np.exp(2.0)
    assert exact_value(policy_table(policy, greedy=False)) == pytest.approx(exact_value(softened), abs=1e-6)


def test_a_policy_with_actions_in_another_order_is_refused():
    last = {"last.weight": np.zeros((FEATURES, 25), np.float32), "last.bias": np.zeros(25, np.float32)}
    policy = Policy("categorical", last, Space(FEATURES, Discrete(ACTIONS[::-1])))
    with pytest.raises(FovaError, match="in this order"):
        policy_table(policy)
