"""Which settings a server that sees sums only can keep, one by one."""

import pytest

from fova.algorithms import configure
from fova.errors import FovaError
from fova.network.secure_rules import AGGREGATIONS, FEWEST_CLIENTS, insist_on_sums
from fova.run.config import RunConfig

SOUND = {"rounds": 1, "local_steps": 2, "aggregation": "uniform", "normalise": False, "reward_unit": 1.0}
PRIVATE = {"privacy_clip": 1.0, "privacy_noise": 2.0}


def check(clients=3, algorithm="fed-iql", **changes):
    return insist_on_sums(RunConfig(**SOUND | changes), configure(algorithm), clients)


def test_sound_settings_are_taken():
    assert AGGREGATIONS == ("uniform", "size")
    for changes in ({}, {"aggregation": "size"}, {"largest_share": 1.0}, {"privacy": "client", **PRIVATE}):
        assert check(**changes) is None
    assert check(clients=FEWEST_CLIENTS) is None
    assert check(algorithm="fed-iql", reward_unit="algorithm") is None  # its unit is 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aggregation": "median"}, "aggregation is median"),
        ({"aggregation": "algorithm"}, "aggregation is algorithm"),
        ({"largest_share": 0.5}, r"largest_share is 0\.5"),
        ({"privacy": "server", **PRIVATE}, "privacy is server"),
        ({"compress": "int8"}, "compress is int8, but masked numbers cannot be compressed"),
        ({"normalise": True}, "normalise sends sums"),
        ({"reward_unit": "federation"}, "The unit of reward is derived from sums"),
        ({"clients": 2}, "min_clients is 2, but secure aggregation needs 3"),
    ],
)
def test_what_would_show_more_than_a_sum_is_refused(changes, words):
    with pytest.raises(FovaError, match=words):
        check(**changes)
