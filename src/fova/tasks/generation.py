"""Endless episodes of given behaviour policies, simulated side by side. Their order depends only on the seed.

Many episodes run at once, and one batched NumPy call computes all actions. Still, an episode depends only on its
stream, its level, its number and the seed. Its start and its action noise come from its own generator. Each running
episode has a place. Actions are computed separately for each place, so the arithmetic does not depend on the other
episodes.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import Episode
from fova.errors import FovaError
from fova.policy import Policy, stack
from fova.spaces import Space
from fova.tasks.simulators import Simulators

Floats = NDArray[np.float32]


def episodes(
    levels: Mapping[str, Policy | None],
    simulators: Simulators,
    space: Space,
    time_limit: int,
    stream: str,
    first_episode: int,
    seed: int,
    rows: int | None = None,
) -> Iterator[Episode]:
    """Episodes of a mixture of policies, starting at number `first_episode`. None means uniformly random actions.

    Each level gets an equal share of the rows: the next episode always comes from the level with the fewest rows so
    far, or the first of these in the given order. `stream` names the data, so that no two datasets share episodes.
    The iterator has no end. `rows` is the expected number of transitions; it limits how many unused episodes are
    simulated.
    """
    if seed < 0:
        raise FovaError(f"The seed is {seed}, but must be a whole number of at least 0.")
    parts = [_Part(f"{stream}/{name}", policy) for name, policy in levels.items()]
    # With several levels, the next level depends on the lengths of earlier episodes, so these are simulated, too.
    skipped = first_episode if len(parts) > 1 else 0
    if len(parts) == 1:
        parts[0].started = parts[0].given = first_episode
    stage = _Stage(parts, simulators, space, time_limit, seed, rows)
    return islice(_in_order(parts, stage), skipped, None)


def _in_order(parts: "list[_Part]", stage: "_Stage") -> Iterator[Episode]:
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
    """One level of the mixture and its progress."""

    stream: str
    policy: Policy | None
    started: int = 0  # episodes
    given: int = 0
    rows_given: int = 0
    rows_finished: int = 0
    finished: dict[int, Episode] = field(default_factory=dict)  # number -> episode, until it is returned

    def generator(self, seed: int, number: int) -> np.random.Generator:
        return np.random.default_rng([seed, zlib.crc32(self.stream.encode()), number])


@dataclass
class _Play:
    """A running episode."""

    part: _Part
    number: int
    began: int  # time on the stage's clock


class _Stage:
    """The places, and the record of the episodes that run in them.

    The record has one line per step of the clock for all places. A line is overwritten when no running episode can
    still need it.
    """

    def __init__(
        self,
        parts: list[_Part],
        simulators: Simulators,
        space: Space,
        time_limit: int,
        seed: int,
        rows_wanted: int | None,
    ) -> None:
        places = simulators.places
        self._parts, self._simulators, self._seed, self._time_limit = parts, simulators, seed, time_limit
        self._rows_wanted = rows_wanted
        self._actors = _Actors(places, parts)
        self._plays: dict[int, _Play] = {}  # place -> its running episode
        self._clock = 0
        self._finished = 0  # episodes
        self._seen = np.zeros((places, space.observation), np.float32)
        self._observations = np.zeros((time_limit, places, space.observation), np.float32)
        self._actions = np.zeros((time_limit, places, space.action.size), np.float32)
        self._rewards = np.zeros((time_limit, places), np.float32)
        self._noise = np.zeros((time_limit, places, space.action.size), np.float32)

    def step(self) -> None:
        """Step every running episode. New episodes start first in free places if more rows seem to be needed."""
        if len(self._plays) < self._simulators.places:
            self._fill()
        line = self._clock % self._time_limit
        actions = self._actors.act(self._seen, self._noise[line])
        playing = list(self._plays)
        observations, rewards, terminated, truncated = self._simulators.step(actions, playing)
        self._observations[line], self._actions[line], self._rewards[line] = self._seen, actions, rewards
        self._seen[playing] = observations[playing]
        self._clock += 1
        ended = terminated | truncated
        for place, play in list(self._plays.items()):
            if ended[place] or self._clock - play.began == self._time_limit:
                self._finish(place, bool(terminated[place]))

    def _fill(self) -> None:
        for place in range(self._simulators.places):
            if place in self._plays:
                continue
            if self._plays and self._enough():
                return
            self._begin(place)

    def _enough(self) -> bool:
        """Whether the started episodes are expected to give the requested rows."""
        if self._rows_wanted is None:
            return False
        finished = sum(part.rows_finished for part in self._parts)
        ages = [self._clock - play.began for play in self._plays.values()]
        # Mean number of steps between two endings. The mean length of the finished episodes would be too short,
        # because long episodes are still running.
        lasting = (finished + sum(ages)) / self._finished if self._finished else self._time_limit
        return finished + sum(min(age + lasting, self._time_limit) for age in ages) >= self._rows_wanted

    def _begin(self, place: int) -> None:
        # This choice does not change the order in which episodes are returned. It only reduces waiting.
        part = min(self._parts, key=lambda part: (self._rows_played(part), part.started))
        number, part.started = part.started, part.started + 1
        rng = part.generator(self._seed, number)
        self._seen[place] = self._simulators.start(place, int(rng.integers(2**31)))
        noise = self._actors.draw(rng, (self._time_limit, self._noise.shape[-1]))
        self._noise[:, place] = np.roll(noise, self._clock % self._time_limit, axis=0)
        self._actors.take_place(place, part.policy)
        self._plays[place] = _Play(part, number, self._clock)

    def _rows_played(self, part: _Part) -> int:
        running = sum(self._clock - play.began for play in self._plays.values() if play.part is part)
        return part.rows_finished + running

    def _finish(self, place: int, terminated: bool) -> None:
        play = self._plays.pop(place)
        lines = np.arange(play.began, self._clock) % self._time_limit
        play.part.finished[play.number] = Episode(
            observations=np.concatenate([self._observations[lines, place], self._seen[place, None]]),
            actions=self._actions[lines, place],
            rewards=self._rewards[lines, place],
            terminated=terminated,
        )
        play.part.rows_finished += len(lines)
        self._finished += 1
        self._seen[place] = 0.0  # the last observation may hold any value, and no action follows it


class _Actors:
    """A policy for every place. One call computes the actions of all places."""

    def __init__(self, places: int, parts: list[_Part]) -> None:
        first = parts[0].policy
        self._policies = [first] * places
        self._together = first  # a single policy serves all places
        if first is not None and len(parts) > 1:
            self._together = stack([first] * places)

    def take_place(self, place: int, policy: Policy | None) -> None:
        if policy is None or self._together is None or policy is self._policies[place]:
            return
        self._policies[place] = policy
        for name, values in policy.weights.items():
            self._together.weights[name][place] = values

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """The random numbers for an episode's actions."""
        if self._together is not None:
            return rng.standard_normal(shape, np.float32)
        return rng.uniform(-1.0, 1.0, shape).astype(np.float32)

    def act(self, observations: Floats, noise: Floats) -> NDArray[np.floating]:
        """[places, observation], [places, action] -> [places, action] in [-1, 1]."""
        if self._together is None:
            return noise
        # Each place is a separate matrix product. One product of all rows would be faster, but its rounding depends
        # on the number of rows.
        return self._together.unit_actions(observations[:, None, :], noise[:, None, :])[:, 0]
