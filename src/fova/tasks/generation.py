"""Behaviour at work: endless episodes of given policies, played side by side, in an order only the seed decides.

Many episodes run at once and one batched NumPy call chooses the actions of all. Still an episode depends on nothing
but its stream, its level, its number and the seed: its start and its action noise come from a generator of its own,
and every place has its own copy of the weights, so that the arithmetic never depends on the neighbours.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import Episode
from fova.errors import FovaError
from fova.networks import Shapes
from fova.tasks.behaviour_policy import LOG_STD_RANGE, BehaviourPolicy
from fova.tasks.simulators import Simulators

Floats = NDArray[np.float32]


def episodes(
    levels: Mapping[str, BehaviourPolicy | None],
    simulators: Simulators,
    shapes: Shapes,
    time_limit: int,
    stream: str,
    first_episode: int,
    seed: int,
) -> Iterator[Episode]:
    """Episodes of a mixture of policies, from number `first_episode` on; None stands for uniformly random actions.

    Each level has an equal share of the rows: the next episode is always of the level that has given the fewest
    so far, the first of these in the order given. `stream` names the data, so that no two datasets share episodes.
    """
    if seed < 0:
        raise FovaError(f"The seed is {seed}, but a whole number from 0 up is needed.")
    parts = [_Part(f"{stream}/{name}", policy) for name, policy in levels.items()]
    # With several levels, which one is next depends on how long earlier episodes were: those are played, too.
    skipped = first_episode if len(parts) > 1 else 0
    if len(parts) == 1:
        parts[0].started = parts[0].given = first_episode
    return islice(_in_order(parts, _Stage(parts, simulators, shapes, time_limit, seed)), skipped, None)


def _in_order(parts: "list[_Part]", stage: "_Stage") -> Iterator[Episode]:
    stage.fill()
    while True:
        part = min(parts, key=lambda part: part.rows_given)
        while part.given not in part.finished:
            stage.step()
        episode = part.finished.pop(part.given)
        part.given += 1
        part.rows_given += len(episode)
        yield episode


@dataclass
class _Part:
    """One level of the mixture, and how far it has come."""

    stream: str
    policy: BehaviourPolicy | None
    started: int = 0  # episodes
    given: int = 0
    rows_given: int = 0
    rows_played: int = 0  # of finished and running episodes
    finished: dict[int, Episode] = field(default_factory=dict)  # number -> episode, until it is given

    def generator(self, seed: int, number: int) -> np.random.Generator:
        return np.random.default_rng([seed, zlib.crc32(self.stream.encode()), number])


class _Stage:
    """The places, and the record of the episodes that run in them."""

    def __init__(
        self, parts: list[_Part], simulators: Simulators, shapes: Shapes, time_limit: int, seed: int
    ) -> None:
        places = simulators.places
        self._parts, self._simulators, self._seed, self._time_limit = parts, simulators, seed, time_limit
        self._actors = _Actors(places, parts)
        self._playing: list[tuple[_Part, int]] = [(parts[0], 0)] * places  # level and number of the episode
        self._steps = np.zeros(places, np.int64)
        self._observations = np.zeros((places, time_limit + 1, shapes.observation), np.float32)
        self._actions = np.zeros((places, time_limit, shapes.action), np.float32)
        self._rewards = np.zeros((places, time_limit), np.float32)
        self._noise = np.zeros((places, time_limit, shapes.action), np.float32)
        self._all = np.arange(places)

    def fill(self) -> None:
        for place in self._all.tolist():
            self._begin(place)

    def step(self) -> None:
        """One step in every place; where an episode ends, the next one begins."""
        every, now = self._all, self._steps
        actions = self._actors.act(self._observations[every, now], self._noise[every, now])
        observations, rewards, terminated, truncated = self._simulators.step(actions)
        self._actions[every, now] = actions
        self._rewards[every, now] = rewards
        self._observations[every, now + 1] = observations
        self._steps += 1
        for part, _ in self._playing:
            part.rows_played += 1
        for place in np.flatnonzero(terminated | truncated | (self._steps == self._time_limit)).tolist():
            self._finish(place, bool(terminated[place]))
            self._begin(place)

    def _begin(self, place: int) -> None:
        # Whatever is begun, the order in which episodes are given stays the same; this only saves waiting.
        part = min(self._parts, key=lambda part: (part.rows_played, part.started))
        number, part.started = part.started, part.started + 1
        rng = part.generator(self._seed, number)
        self._observations[place, 0] = self._simulators.start(place, int(rng.integers(2**31)))
        self._noise[place] = self._actors.draw(rng, self._noise.shape[1:])
        self._actors.take_place(place, part.policy)
        self._playing[place] = part, number
        self._steps[place] = 0

    def _finish(self, place: int, terminated: bool) -> None:
        part, number = self._playing[place]
        steps = int(self._steps[place])
        part.finished[number] = Episode(
            observations=self._observations[place, : steps + 1].copy(),
            actions=self._actions[place, :steps].copy(),
            rewards=self._rewards[place, :steps].copy(),
            terminated=terminated,
        )


class _Actors:
    """A policy for every place, all asked in one call."""

    def __init__(self, places: int, parts: list[_Part]) -> None:
        self._policies: list[BehaviourPolicy | None] = [None] * places
        first = parts[0].policy
        self._weights = [np.zeros((places, *weight.shape), np.float32) for weight in first.weights] if first else []
        self._biases = [np.zeros((places, 1, *bias.shape), np.float32) for bias in first.biases] if first else []

    def take_place(self, place: int, policy: BehaviourPolicy | None) -> None:
        if policy is None or policy is self._policies[place]:
            return
        self._policies[place] = policy
        for stacked, values in zip(self._weights + self._biases, policy.weights + policy.biases):
            stacked[place] = values

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """The randomness of an episode's actions."""
        if self._weights:
            return rng.standard_normal(shape, np.float32)
        return rng.uniform(-1.0, 1.0, shape).astype(np.float32)

    def act(self, observations: Floats, noise: Floats) -> Floats:
        """[places, observation], [places, action] -> [places, action] in [-1, 1]."""
        if not self._weights:
            return noise
        x = observations[:, None, :]
        # A stack of vector-matrix products, one per place. One product of matrices would be quicker still, but its
        # rounding depends on how many rows there are.
        for weight, bias in zip(self._weights[:-1], self._biases[:-1]):
            x = np.maximum(x @ weight + bias, 0.0)
        mean, log_std = np.split((x @ self._weights[-1] + self._biases[-1])[:, 0], 2, axis=-1)
        return np.tanh(mean + np.exp(np.clip(log_std, *LOG_STD_RANGE)) * noise)
