from itertools import islice

import numpy as np
import pytest

from fova.errors import FovaError
from fova.policy import Policy
from fova.spaces import Space
from fova.tasks.generation import episodes
from fova.tasks.simulators import Stepped

SPACE = Space.unit(3, 2)
LIMIT = 12


class Clocks:
    """Environments whose seed decides how long an episode lasts; they show seed, time and last action."""

    def __init__(self, places, lasts=lambda seed: 3 + seed % 20):
        self.places, self.lasts = places, lasts
        self.seen = np.zeros((places, 3))
        self.length = np.zeros(places)
        self.stepped = 0  # over all places

    def start(self, place, seed):
        self.length[place] = self.lasts(seed)
        self.seen[place] = seed % 97 / 97, 0, 0
        return self.seen[place]

    def step(self, actions, playing):
        self.stepped += len(playing)
        self.seen[playing, 1] += 1
        self.seen[playing, 2] = actions[playing, 0]
        ended = self.seen[:, 1] == self.length
        return Stepped(self.seen.copy(), actions.sum(axis=1), ended, np.zeros(self.places, bool))


def random_policy(seed):
    rng = np.random.default_rng(seed)
    sizes = [(3, 16), (16, 16), (16, 4)]
    names = ["layers.0", "layers.1", "last"]
    weights = {f"{name}.weight": rng.normal(size=size) for name, size in zip(names, sizes)}
    weights |= {f"{name}.bias": rng.normal(size=size[1]) for name, size in zip(names, sizes)}
    return Policy("squashed", {name: values.astype(np.float32) for name, values in weights.items()}, SPACE)


class Constant:
    """A generator whose every number is the same."""

    def __init__(self, number):
        self.number = number

    def standard_normal(self, shape, dtype):
        return np.full(shape, self.number, dtype)


def take(count, levels, places=4, first=0, seed=0, **options):
    made = episodes(levels, Clocks(places, **options), SPACE, LIMIT, "clock/test", first, seed)
    return list(islice(made, count))


def assert_same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other):
        np.testing.assert_array_equal(a.observations, b.observations)
        np.testing.assert_array_equal(a.actions, b.actions)
        np.testing.assert_array_equal(a.rewards, b.rewards)
        assert a.terminated == b.terminated


LEVELS = {
    "random": {"random": None},
    "one": {"expert": random_policy(0)},
    "mixture": {"low": random_policy(1), "middle": random_policy(2), "high": random_policy(3)},
}


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
def test_an_episode_depends_on_nothing_but_its_number_and_the_seed(levels):
    whole = take(12, levels)
    assert_same(take(12, levels, places=1), whole)
    assert_same(take(12, levels, places=7), whole)
    assert_same(take(5, levels, first=7, places=3), whole[7:])
    assert not np.array_equal(take(1, levels, seed=1)[0].actions, whole[0].actions)


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
def test_few_episodes_are_played_in_vain_when_it_is_known_how_many_rows_are_wanted(levels):
    def played(rows):
        clocks, have, made = Clocks(places=32), 0, []
        for episode in episodes(levels, clocks, SPACE, LIMIT, "clock/test", 0, 0, rows):
            made.append(episode)
            have += len(episode)
            if have >= 100:
                return made, clocks.stepped
        raise AssertionError("episodes never end")

    told, few = played(rows=100)
    untold, many = played(rows=None)
    assert_same(told, untold)
    assert few < 100 + 5 * LIMIT < many
    assert_same(played(rows=1)[0], untold)  # more may be asked for than was said


def test_episodes_end_by_themselves_or_at_the_time_limit():
    made = take(200, LEVELS["random"])
    assert {len(episode) for episode in made if episode.terminated} == set(range(3, LIMIT + 1))
    assert {len(episode) for episode in made if not episode.terminated} == {LIMIT}
    for episode in made:
        np.testing.assert_array_equal(episode.observations[:, 1], np.arange(len(episode) + 1))
        np.testing.assert_array_equal(episode.observations[1:, 2], episode.actions[:, 0])
        np.testing.assert_array_equal(episode.rewards, episode.actions.sum(axis=1))


def test_actions_are_those_of_the_policy():
    policy = random_policy(0)
    for episode in take(5, {"expert": policy}):
        for observation, action in zip(episode.observations, episode.actions):
            lowest, highest = (
                policy.sample(observation[None], Constant(deviations))[0] for deviations in (-6.0, 6.0)
            )
            assert (lowest <= action).all()
            assert (action <= highest).all()
    uniform = np.concatenate([episode.actions for episode in take(200, LEVELS["random"])])
    assert abs(uniform.mean()) < 0.05
    assert uniform.std() == pytest.approx(3**-0.5, abs=0.02)


def test_a_mixture_has_equal_shares_of_rows_and_not_of_episodes():
    saturated = {}
    for name, sign in (("left", -1), ("right", 1)):
        bias = np.array([sign * 20, sign * 20, -9, -9], np.float32)
        saturated[name] = Policy(
            "squashed", {"last.weight": np.zeros((3, 4), np.float32), "last.bias": bias}, SPACE
        )
    made = take(60, saturated)
    rows = {sign: sum(len(e) for e in made if e.actions[0, 0] == sign) for sign in (-1.0, 1.0)}
    assert abs(rows[-1.0] - rows[1.0]) <= LIMIT
    assert made[0].actions[0, 0] == -1.0  # the first of the order given


def test_a_negative_seed_is_refused():
    with pytest.raises(FovaError, match="-1"):
        take(1, LEVELS["random"], seed=-1)
