from dataclasses import replace

import numpy as np
import pytest

from fova.errors import FovaError
from fova.evaluation import rollouts
from fova.evaluation.rollouts import EVALUATION_SEED, first_seed, merge, play, play_from
from fova.policy import Policy
from fova.spaces import Box, Discrete, Space
from fova.tasks import registry
from fova.tasks.registry import Task
from fova.tasks.simulators import GymnasiumSimulators


class Countdown:
    """Starts at a number drawn from the seed; each step pays the action and counts down; 0 ends the episode."""

    made = 0

    def __init__(self):
        Countdown.made += 1
        self.closed = False

    def reset(self, seed):
        self.left = 2 + seed % 3
        return np.array([self.left], np.float32), {}

    def step(self, action):
        assert self.left > 0, "an episode that is over must not be stepped on"
        self.left -= 1
        return np.array([self.left], np.float32), float(action[0]), self.left == 0, False, {}

    def close(self):
        self.closed = True


TASK = Task("countdown", make=Countdown, space=Space.unit(1, 1), time_limit=5, random_score=0.0, expert_score=10.0)


class Countdowns(GymnasiumSimulators):
    """Countdowns that can also start at any number."""

    def __init__(self, places):
        super().__init__(Countdown, places)

    def start_at(self, place, observation):
        self.start(place, 0)
        self._environments[place].left = int(observation[0])
        self._seen[place] = np.asarray(observation, np.float64)
        return self._seen[place]


RESTARTABLE = replace(TASK, restartable=Countdowns)


def constant(value):
    """A policy that always plays `value`, between -10 and 10."""

    def vector(number):
        return np.full(1, number, np.float32)

    last = {"last.weight": np.zeros((1, 1), np.float32), "last.bias": vector(np.arctanh(value / 10))}
    return Policy("deterministic", last, Space(1, Box.of(1, -10.0, 10.0)))


def test_returns_lengths_and_scores_by_hand():
    first = EVALUATION_SEED % 3
    lengths = [2 + (first + i) % 3 for i in range(4)]
    played = play({"low": constant(1.0), "high": constant(2.0)}, TASK, episodes=4)
    assert played["low"].lengths.tolist() == played["high"].lengths.tolist() == lengths
    np.testing.assert_allclose(played["low"].returns, lengths, rtol=1e-4)
    np.testing.assert_allclose(played["high"].returns, 2 * np.array(lengths), rtol=1e-4)
    assert played["high"].score == pytest.approx(10 * played["high"].mean_return, rel=1e-4)


class PaysTime(Countdown):
    """Pays what is left before the step."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, self.left + 1.0, *rest


def test_discounted_returns_by_hand():
    task = replace(TASK, make=PaysTime)
    played = play({"a": constant(1.0)}, task, episodes=3, seed=0, discount=0.5)["a"]
    # Starts at 2, 3 and 4: 2 + 1/2; 3 + 2/2 + 1/4; 4 + 3/2 + 2/4 + 1/8.
    assert played.returns.tolist() == [2.5, 4.25, 6.125]
    assert play({"a": constant(1.0)}, task, episodes=3, seed=0)["a"].returns.tolist() == [3, 6, 10]


def test_what_a_result_file_says_about_a_policy():
    task = replace(TASK, make=PaysTime)
    told = play({"a": constant(1.0)}, task, episodes=3, seed=0)["a"].to_json()
    assert told.pop("return_std") == pytest.approx(np.std([3, 6, 10]))
    assert told.pop("return") == pytest.approx(19 / 3)
    assert told.pop("score") == pytest.approx(10 * 19 / 3)
    assert told == {"length": 3.0}


def test_runs_of_different_seeds_start_a_million_seeds_apart():
    assert [first_seed(seed) for seed in range(3)] == [1_000_003, 2_000_006, 3_000_009]
    assert first_seed(0) == EVALUATION_SEED


class Crowd(Countdown):
    """Counts how many environments are there at the same time."""

    open = most = 0

    def __init__(self):
        super().__init__()
        Crowd.open += 1
        Crowd.most = max(Crowd.most, Crowd.open)

    def close(self):
        Crowd.open -= 1


@pytest.mark.parametrize(("most", "expected"), [(5, 4), (4, 4), (1, 1), (100, 10)])
def test_many_policies_are_played_in_groups_with_the_same_result(monkeypatch, most, expected):
    policies = {name: constant(float(n)) for n, name in enumerate("abcde")}
    whole = play(policies, TASK, episodes=2, seed=1, keep_trajectories=1, discount=0.5)
    monkeypatch.setattr(rollouts, "MOST_ENVIRONMENTS", most)
    monkeypatch.setattr(Crowd, "open", 0)
    monkeypatch.setattr(Crowd, "most", 0)
    grouped = play(policies, replace(TASK, make=Crowd), episodes=2, seed=1, keep_trajectories=1, discount=0.5)
    assert Crowd.most == expected  # as many policies as fit, or single episodes of one
    assert list(grouped) == list(policies)
    for name in policies:
        np.testing.assert_allclose(grouped[name].returns, whole[name].returns, rtol=1e-6)
        assert grouped[name].lengths.tolist() == whole[name].lengths.tolist() == [3, 4]
        assert len(grouped[name].trajectories) == 1


def test_many_episodes_of_one_policy_are_played_in_parts_with_the_same_result(monkeypatch):
    measured = replace(TASK, measures=lambda trails: {"steps": float(sum(len(trail) - 1 for trail in trails))})
    whole = play({"a": constant(1.0)}, measured, episodes=7, seed=1, keep_trajectories=5)["a"]
    monkeypatch.setattr(rollouts, "MOST_ENVIRONMENTS", 3)
    monkeypatch.setattr(Crowd, "open", 0)
    monkeypatch.setattr(Crowd, "most", 0)
    parts = play({"a": constant(1.0)}, replace(measured, make=Crowd), episodes=7, seed=1, keep_trajectories=5)["a"]
    assert (Crowd.most, Crowd.open) == (3, 0)
    np.testing.assert_allclose(parts.returns, whole.returns, rtol=1e-6)
    assert parts.lengths.tolist() == whole.lengths.tolist()
    assert parts.measures == whole.measures == {"steps": float(whole.lengths.sum())}
    assert [len(trail) for trail in parts.trajectories] == [len(trail) for trail in whole.trajectories]
    assert len(parts.trajectories) == 5


def test_environments_are_closed_after_an_error(monkeypatch):
    class Breaking(Crowd):
        def step(self, action):
            raise OSError("no licence")

    monkeypatch.setattr(Crowd, "open", 0)
    with pytest.raises(OSError, match="no licence"):
        play({"a": constant(1.0)}, replace(TASK, make=Breaking), episodes=2)
    assert Crowd.open == 0


def test_episodes_from_given_observations_by_hand():
    starts = np.float32([[3], [1], [9]])
    played = play_from({"low": constant(1.0), "high": constant(2.0)}, RESTARTABLE, starts, steps=4)
    assert played["low"].lengths.tolist() == played["high"].lengths.tolist() == [3, 1, 4]  # 9 is cut off
    np.testing.assert_allclose(played["low"].returns, [3, 1, 4], rtol=1e-4)
    np.testing.assert_allclose(played["high"].returns, [6, 2, 8], rtol=1e-4)
    assert played["low"].score is None  # reference scores are returns of whole episodes
    assert played["low"].trajectories == []
    many = {f"{i}": constant(i / 100) for i in range(400)}  # more than are played at once
    returns = [each.returns for each in play_from(many, RESTARTABLE, starts, steps=4).values()]
    np.testing.assert_allclose(returns, np.outer(np.arange(400) / 100, [3, 1, 4]), rtol=1e-4)


def test_a_task_that_cannot_start_from_an_observation_says_so():
    with pytest.raises(FovaError, match="countdown cannot start from an observation"):
        play_from({"a": constant(1.0)}, TASK, np.float32([[3]]), steps=4)


class Choices(Countdown):
    """Pays the code of the chosen action, which Gymnasium's discrete environments take as a plain integer."""

    def step(self, action):
        assert type(action) is int
        return super().step([action])


def test_a_policy_over_discrete_actions_plays_integer_codes():
    space = Space(1, Discrete(("rest", "walk", "run")))
    task = Task("choices", make=Choices, space=space, time_limit=5)
    # logits: 1 for walk; the observation for run, so that it runs while more than one step is left
    weights = {"last.weight": np.float32([[0.0, 0.0, 1.0]]), "last.bias": np.float32([0.0, 1.5, 0.0])}
    played = play({"p": Policy("categorical", weights, space)}, task, episodes=3)["p"]
    np.testing.assert_array_equal(played.returns, 2 * played.lengths - 1)


def test_trajectories_are_kept_when_asked_for():
    played = play({"a": constant(1.0)}, TASK, episodes=3, seed=0, keep_trajectories=2)["a"]
    assert [trail[:, 0].tolist() for trail in played.trajectories] == [[2, 1, 0], [3, 2, 1, 0]]


def test_merged_rollouts_have_the_mean_over_policies():
    played = play({"a": constant(1.0), "b": constant(3.0)}, TASK, episodes=3)
    together = merge(played, TASK)
    assert together.mean_return == pytest.approx((played["a"].mean_return + played["b"].mean_return) / 2)


def test_without_reference_scores_there_is_no_score():
    task = replace(TASK, random_score=None)
    assert play({"a": constant(1.0)}, task, episodes=1)["a"].to_json()["score"] is None


def test_the_quick_simulators_of_a_task_change_nothing():
    """Policies that fall soon, some later than others."""
    hopper = registry.get("hopper")
    assert hopper.simulators is not None
    rng = np.random.default_rng(0)
    policies = {
        name: Policy(
            "deterministic",
            {"last.weight": rng.normal(size=(11, 3)).astype(np.float32), "last.bias": np.zeros(3, np.float32)},
            hopper.space,
        )
        for name in ("a", "b")
    }
    quick = play(policies, hopper, episodes=3, keep_trajectories=2)
    plain = play(policies, replace(hopper, simulators=None), episodes=3, keep_trajectories=2)
    assert len({length for played in quick.values() for length in played.lengths.tolist()}) > 1
    for name in policies:
        assert quick[name].returns.tolist() == plain[name].returns.tolist()
        assert quick[name].lengths.tolist() == plain[name].lengths.tolist()
        for one, other in zip(quick[name].trajectories, plain[name].trajectories, strict=True):
            np.testing.assert_array_equal(one, other)


class Broken(Countdown):
    """Its last observation is NaN."""

    def step(self, action):
        observation, *rest = super().step(action)
        return (observation if self.left else np.array([np.nan], np.float32)), *rest


def test_a_last_observation_that_is_nan_does_not_disturb_the_other_episodes():
    task = replace(TASK, make=Broken)
    played = play({"a": constant(1.0)}, task, episodes=4)["a"]
    assert played.lengths.tolist() == play({"a": constant(1.0)}, TASK, episodes=4)["a"].lengths.tolist()


def test_a_policy_of_another_task_is_refused_by_name():
    task = replace(TASK, space=Space.unit(3, 2))
    with pytest.raises(FovaError, match=r"policy 'a' has 1 observation column .*countdown has 3"):
        play({"a": constant(1.0)}, task, episodes=1)


def test_a_task_reports_figures_of_its_own_over_all_episodes():
    task = replace(TASK, measures=lambda episodes: {"largest": max(e.max() for e in episodes), "n": len(episodes)})
    played = play({"one": constant(1.0), "two": constant(2.0)}, task, episodes=4)
    assert played["one"].measures == {"largest": 4.0, "n": 4}  # the highest start
    assert played["one"].trajectories == []
    assert played["two"].to_json()["measures"] == {"largest": 4.0, "n": 4}
    assert merge(played, task).measures == {"largest": 4.0, "n": 4.0}
    rows = replace(TASK, measures=lambda episodes: {"rows": sum(map(len, episodes))})
    whole = play({"one": constant(1.0)}, rows, episodes=3, seed=0)["one"]
    assert whole.measures == {"rows": 3 + 4 + 5}  # starts at 2, 3 and 4, down to 0
    assert "measures" not in play({"one": constant(1.0)}, TASK, episodes=2)["one"].to_json()
