"""How rounds are run: defaults, limits, and the number of clients in a round."""

from types import SimpleNamespace

import pytest

from fova.errors import FovaError
from fova.federation.compression import EightBits
from fova.federation.engine import RoundSettings, State, insist_on_whole_steps
from fova.federation.privacy import Privacy, Private
from fova.federation.wire import PLAIN


def test_rounds_unless_told_otherwise():
    settings = RoundSettings(local_steps=1)
    assert (settings.seed, settings.participation, settings.cohort, settings.together) == (0, 1.0, 64, True)
    assert settings.aggregation.weigh is None
    assert (settings.sealed, settings.privacy) == (PLAIN, None)


@pytest.mark.parametrize("participation", [0.0, -0.5, 1.001, 2.0, float("nan")])
def test_participation_is_a_share(participation):
    with pytest.raises(FovaError, match="must be above 0 and at most 1"):
        RoundSettings(local_steps=1, participation=participation)


def test_whole_numbers_from_one_on():
    assert RoundSettings(local_steps=1, cohort=1).cohort == 1
    for wrong in ({"local_steps": 0}, {"local_steps": 1, "cohort": 0}):
        with pytest.raises(FovaError, match="is 0, but must be at least 1"):
            RoundSettings(**wrong)


@pytest.mark.parametrize(
    ("clients", "share", "expected"), [(10, 1.0, 10), (10, 0.24, 2), (10, 0.26, 3), (10, 0.01, 1), (1, 0.5, 1)]
)
def test_the_number_of_clients_in_a_round(clients, share, expected):
    assert RoundSettings(local_steps=1, participation=share).participants(clients) == expected


def test_submissions_are_private_before_they_are_compressed():
    privacy = Privacy("client", clip=2.0, noise=3.0, delta=1e-5, clients=5)
    sealed = RoundSettings(local_steps=1, envelope=EightBits(), privacy=privacy).sealed
    assert sealed == Private(2.0, 6.0, EightBits())
    assert RoundSettings(local_steps=1, envelope=EightBits()).sealed == EightBits()


def test_local_steps_are_a_multiple_of_the_stride():
    insist_on_whole_steps(6, SimpleNamespace(stride=3))
    with pytest.raises(FovaError, match="local_steps is 7, but must be a multiple of 3 here"):
        insist_on_whole_steps(7, SimpleNamespace(stride=3))


def test_what_is_sent_comes_from_the_server():
    assert State(0, SimpleNamespace(broadcast="message")).broadcast == "message"
