"""What one client finds out about a policy on its own data, given fitted critics. Only `Figures` leave it."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fova.algorithms.fqe import Critics
from fova.data import hold_out
from fova.data.normalise import Normaliser
from fova.data.transitions import Transitions
from fova.evaluation.judging import estimators, intervals
from fova.evaluation.judging.estimators import Episodes, padded
from fova.evaluation.judging.support import Log, action_shares, support
from fova.evaluation.judging.verdict import Figures
from fova.federation.statistics import ClientStatistics, client_statistics, coarse_range
from fova.policy import Policy
from fova.settings import LARGEST
from fova.spaces import Discrete

Floats = NDArray[np.float64]

CHUNK = 1024
LEAST_PROBABILITY = 1e-3  # of a logged action, so that no ratio explodes
MOST_ROWS = 20_000  # of the training episodes that the Bellman error is measured on


@dataclass(frozen=True)
class Evidence:
    """A client's raw data, as a policy is judged on it."""

    judged: Transitions  # the episodes that the estimate is about
    logged: Transitions | None  # other episodes of the client; None if there are none

    @staticmethod
    def of(training: Transitions, held_out: Transitions | None) -> "Evidence":
        """Held-out episodes if there are some, otherwise the training episodes themselves."""
        return Evidence(training, None) if held_out is None else Evidence(held_out, training)


@dataclass(frozen=True)
class Scale:
    """The terms in which critics see a federation's data. All clients use the same."""

    normaliser: Normaliser  # of observations
    discount: float
    unit: float = 1.0  # rewards are divided by it
    level: float = 0.0  # what one step is worth in the data, in units; critics fit the difference from it
    lowest: float = -LARGEST  # a value per step is never below, in units of the log
    highest: float = LARGEST

    def rewards(self, rewards: NDArray[Any], terminals: NDArray[Any]) -> NDArray[np.float32]:
        """Rewards in units, lowered so that every value per step is lower by `level`.

        v - level = (1 - gamma) x + gamma (1 - terminal) (v' - level) holds for
        x = r - level - terminal level gamma / (1 - gamma). Critics start near 0, so they start near the value of
        the data.
        """
        ended = self.discount / (1.0 - self.discount) * terminals
        return np.asarray(rewards / self.unit - self.level * (1.0 + ended), np.float32)

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of what critics say."""
        return self.lowest / self.unit - self.level, self.highest / self.unit - self.level

    def values(self, fitted: Floats) -> Floats:
        """Discounted returns in the units of the log from what critics say."""
        return (fitted + self.level) * self.unit / (1.0 - self.discount)


def policy_actions(policy: Policy, observations: NDArray[Any]) -> NDArray[np.float32]:
    """The actions that a policy plays, as networks take them: in [-1, 1], or codes of discrete actions."""
    if isinstance(policy.space.action, Discrete):
        return np.asarray(policy(observations), np.float32)[:, None]
    return np.asarray(policy.unit_actions(observations), np.float32)


def rows_to_fit(policy: Policy, scale: Scale, data: Transitions) -> Transitions:
    """A client's raw data as critics of the policy are fitted to it: the policy acts in the next states."""
    return replace(
        data,
        observations=scale.normaliser(data.observations),
        actions=policy.space.action.to_unit(data.actions),
        rewards=scale.rewards(data.rewards, data.terminals),
        next_observations=scale.normaliser(data.next_observations),
        next_actions=policy_actions(policy, data.next_observations),
    )


def told(data: Transitions) -> ClientStatistics:
    """What a client tells about the data that it judges on, so that the federation finds its scale."""
    return replace(client_statistics(data, normalise=False), reward_range=coarse_range(data))


@dataclass(frozen=True)
class Fit:
    """A policy with the critics that were fitted to it."""

    policy: Policy
    critics: Critics
    scale: Scale

    @property
    def discount(self) -> float:
        return self.scale.discount

    def values(self, observations: NDArray[Any], actions: NDArray[Any]) -> Floats:
        """Q of actions, as networks take them, at raw observations, in the units of the log, [critics, rows]."""
        states = self.scale.normaliser(observations)
        return self.scale.values(_in_chunks(self.critics, states, np.asarray(actions, np.float32)))

    def policy_values(self, observations: NDArray[Any]) -> Floats:
        """Q of the policy's own actions at raw observations, [critics, rows]."""
        return self.values(observations, self.actions(observations))

    def actions(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        return policy_actions(self.policy, observations)

    def log(self, data: Transitions) -> Log:
        """Logged decisions as networks take them."""
        return Log(self.scale.normaliser(data.observations), self.policy.space.action.to_unit(data.actions))


def figures(fit: Fit, evidence: Evidence) -> Figures:
    """Everything that a client finds out about the policy."""
    judged = evidence.judged
    episodes = Episodes.of(judged)
    first = np.cumsum(episodes.lengths) - episodes.lengths
    values = fit.policy_values(judged.observations[first])
    earned = estimators.discounted_returns(
        episodes, fit.discount, estimators.mean_state_value(judged, fit.discount)
    )
    errors = _bellman_errors(fit, evidence.logged if evidence.logged is not None else judged)
    bias = float(estimators.accumulated_errors(errors.rows, fit.discount).mean())
    value = intervals.of_values(values, abs(bias))
    difference = intervals.of_values(values - earned, abs(bias))
    return Figures(
        episodes=len(episodes.lengths),
        rows=len(judged),
        data_value=float(earned.mean()),
        data_return=float(judged.whole_episode_returns().mean()),
        value=value.value,
        low=value.low,
        high=value.high,
        difference=difference.value,
        difference_low=difference.low,
        difference_high=difference.high,
        bellman_error=errors.root_mean_square * (1.0 - fit.discount),
        bias=bias,
        episode_error=value.episode_error,
        fit_error=value.fit_error,
        difference_error=difference.episode_error,
        inside=_inside(fit, evidence),
        **_by_ratios(fit, evidence, episodes),
    )


# --- Importance sampling ----------------------------------------------------------------------------------


def _by_ratios(fit: Fit, evidence: Evidence, episodes: Episodes) -> dict[str, float]:
    """Importance sampling and doubly robust estimates; nothing for continuous actions or without other episodes.

    The behaviour is cloned on the other episodes. The policy is evaluated as it is played, with its best action, so
    a ratio is 1 / beta(a|s) where the log has this action and 0 elsewhere.
    """
    action, judged = fit.policy.space.action, evidence.judged
    if evidence.logged is None or not isinstance(action, Discrete):
        return {}
    codes = judged.actions[:, 0].astype(np.intp)
    played = fit.actions(judged.observations)
    behaviour = action_shares(fit.scale.normaliser(judged.observations), fit.log(evidence.logged), action.count)
    taken = np.maximum(behaviour[np.arange(len(codes)), codes], LEAST_PROBABILITY)
    lengths, last = episodes.lengths, np.cumsum(episodes.lengths) - 1
    ratios = padded((played[:, 0] == codes) / taken, lengths)
    tail = fit.policy_values(judged.next_observations[last]).mean(axis=0)
    q = padded(fit.values(judged.observations, judged.actions).mean(axis=0), lengths)
    v = padded(fit.values(judged.observations, played).mean(axis=0), lengths)
    weighted = intervals.of_statistic(
        lambda counts: estimators.weighted_importance_sampling(episodes, ratios, fit.discount, tail, counts),
        len(lengths),
    )
    robust = intervals.of_statistic(
        lambda counts: estimators.weighted_doubly_robust(episodes, ratios, q, v, fit.discount, tail, counts),
        len(lengths),
    )
    return {
        "effective_episodes": estimators.effective_sample_size(ratios, lengths),
        "importance_sampling": weighted.value,
        "importance_low": weighted.low,
        "importance_high": weighted.high,
        "doubly_robust": robust.value,
        "doubly_robust_low": robust.low,
        "doubly_robust_high": robust.high,
    }


# --- Bellman errors ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Errors:
    rows: Floats  # [episodes, steps], of the mean critic
    root_mean_square: float


def _bellman_errors(fit: Fit, data: Transitions) -> _Errors:
    """Bellman errors of the mean of the critics on the first episodes of `data`."""
    data = _first_episodes(data, MOST_ROWS)
    episodes = Episodes.of(data)
    last = np.cumsum(episodes.lengths) - 1
    in_unit = fit.policy.space.action.to_unit(data.actions)
    q = fit.values(data.observations, in_unit).mean(axis=0)
    v = fit.policy_values(data.observations).mean(axis=0)
    after = fit.policy_values(data.next_observations[last]).mean(axis=0)
    lengths = episodes.lengths
    rows = estimators.bellman_errors(episodes, padded(q, lengths), padded(v, lengths), after, fit.discount)
    return _Errors(rows, float(np.sqrt(np.square(rows).sum() / len(data))))


def _first_episodes(data: Transitions, most: int) -> Transitions:
    """Whole episodes from the start of the data with at most so many rows, but at least one episode."""
    ends = np.cumsum(data.episode_lengths())
    fitting = int(np.searchsorted(ends, most, side="right"))
    return data[: int(ends[max(fitting, 1) - 1])]


# --- Support ----------------------------------------------------------------------------------------------


def _inside(fit: Fit, evidence: Evidence) -> float | None:
    """The share of states in which the policy acts inside the data; None where all data is one episode."""
    judged, logged = evidence.judged, evidence.logged
    if logged is None:  # one half of the episodes stands for the other
        halves = hold_out.split(judged, 0.5, 0, "support")
        if halves.held_out is None:
            return None
        judged, logged = halves.held_out, halves.training

    discrete = isinstance(fit.policy.space.action, Discrete)
    return support(fit.log(judged), fit.actions(judged.observations), fit.log(logged), discrete).inside


# --- Critics in chunks, so that data of any size needs one compilation ---------------------------------------


def _in_chunks(critics: Critics, states: NDArray[Any], actions: NDArray[np.float32]) -> Floats:
    parts = []
    for start in range(0, len(states), CHUNK):
        s, a = (part[start : start + CHUNK] for part in (states, actions))
        short = CHUNK - len(s)
        values = _chunk(critics, *(np.pad(part, ((0, short), (0, 0))) for part in (s, a)))
        parts.append(np.asarray(values, np.float64)[:, : len(s)])
    return np.concatenate(parts, axis=1)


@jax.jit
def _chunk(critics: Critics, states: Any, actions: Any) -> Any:
    return critics(jnp.asarray(states, jnp.float32), actions)
