"""The action space that sources agree on: what they declare, what the user says, what a task has."""

import dataclasses

import numpy as np
import pytest

from fova.data.sources import Source
from fova.errors import FovaError
from fova.federation.action_spaces import agreed_actions, bounded, declared_bounds, insist_on_actions
from fova.spaces import Box, Discrete, Space
from tiny import make_transitions

DRUGS = Discrete(("wait", "low", "high"))
NUMBERS = Space.unit(3, 2).action


def source(codes=None, **declared):
    """A source with two columns of numbers, or one column of these codes."""
    data = make_transitions(0)
    if codes is not None:
        data = dataclasses.replace(data, actions=np.resize(codes, (len(data), 1)).astype(np.float32))
    return Source("log", "NPZ", data, (), integer_actions=codes is not None, **declared)


def agreed(*sources, action=None, bounds=None, kind="auto", names=()):
    return agreed_actions({f"log-{i}": each for i, each in enumerate(sources)}, action, bounds, kind, names)


def test_numbers_have_no_space_of_their_own_and_codes_do():
    assert agreed(source()) is None
    assert agreed(source(), action=NUMBERS) is NUMBERS
    assert agreed(source([0, 1, 2])) == Discrete.numbered(3)
    assert agreed(source([0, 1]), source([0, 2])) == Discrete.numbered(3)
    assert agreed(source([0, 1, 2]), kind="continuous") is None
    assert agreed(source([0, 1, 2]), names=DRUGS.names) == DRUGS


def test_a_table_whose_columns_are_quantities_is_continuous():
    assert agreed(source([0, 1, 2], action_columns=("dose",))) is None
    named = source([0, 1, 2], action_columns=("drug",), action_names=DRUGS.names)
    assert agreed(named) == DRUGS
    with pytest.raises(FovaError, match="log-0: drug is read as a choice, but actions are said to be continuous"):
        agreed(named, kind="continuous")
    assert agreed(source([0, 1, 2], action_names=DRUGS.names), kind="continuous") is None, "a file says no column"


def test_a_discrete_space_that_is_given_must_have_the_names_that_are_logged():
    assert agreed(source([0, 1]), action=DRUGS) is DRUGS
    assert agreed(source([0, 1], action_names=DRUGS.names), action=DRUGS) is DRUGS
    with pytest.raises(FovaError, match="All clients need the same actions"):
        agreed(source([0, 1], action_names=("low", "wait", "high")), action=DRUGS)


def test_codes_do_not_fit_a_space_of_numbers():
    with pytest.raises(FovaError, match=r"The actions are discrete .* but .* of numbers are expected"):
        agreed(source([0, 1, 2]), action=NUMBERS)
    with pytest.raises(FovaError, match="Action bounds are given, but actions are discrete"):
        agreed(source([0, 1], action_names=("a", "b")), bounds=(-1.0, 1.0))


def test_what_a_task_has_is_insisted_on():
    def insist(action, each, kind="auto", names=()):
        insist_on_actions("ward", action, {"log": each}, kind, names)

    insist(DRUGS, source([0, 1]))
    insist(DRUGS, source([0, 1], action_names=DRUGS.names), names=DRUGS.names)
    with pytest.raises(FovaError, match="log has the actions"):
        insist(DRUGS, source([0, 1], action_names=("a", "b", "c")))
    with pytest.raises(FovaError, match="ward has names of its own: wait, low, high"):
        insist(DRUGS, source([0, 1]), names=("a", "b", "c"))
    insist(NUMBERS, source())
    # The reader of tables compares a table's choices with the task.
    insist(NUMBERS, source(action_names=("a", "b"), action_columns=("x", "y")))
    with pytest.raises(FovaError, match="the actions of log have names"):
        insist(NUMBERS, source([0, 1], action_names=("a", "b")))
    for said in ({"kind": "discrete"}, {"names": ("a", "b")}):
        with pytest.raises(FovaError, match="discrete actions are asked for"):
            insist(NUMBERS, source(), **said)


def test_bounds_that_are_declared():
    low, high = np.array([-1.0, 0.0]), np.array([1.0, 2.0])
    both = source(action_low=low, action_high=high)
    assert declared_bounds({"a": source()}) is None
    assert declared_bounds({"a": source(), "b": both, "c": both}) == ((-1.0, 0.0), (1.0, 2.0))
    assert declared_bounds({"a": source(action_low=low)}) is None, "one end is none"
    assert declared_bounds({"a": source(action_high=high)}) is None
    with pytest.raises(FovaError, match="c declares other bounds of the actions than b"):
        declared_bounds({"a": source(), "b": both, "c": source(action_low=low, action_high=2 * high)})


def test_bounds_make_a_box():
    assert bounded(NUMBERS, ((-1.0, 0.0), (1.0, 2.0))) == Box.of(2, (-1.0, 0.0), (1.0, 2.0))
    with pytest.raises(FovaError, match="Action bounds are given, but actions are discrete"):
        bounded(DRUGS, (-1.0, 1.0))
