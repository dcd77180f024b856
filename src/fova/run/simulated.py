"""The engine of `fova train`: clients on this machine, their data in memory.

They are all clients of the federation, or the share of this process (`fova.run.processes`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fova import algorithms
from fova.data.normalise import Normaliser
from fova.data.sampling import drawn_rows, row_weights
from fova.data.transitions import Transitions
from fova.federation import aggregation
from fova.federation.clients import Federation
from fova.federation.compression import COMPRESSIONS
from fova.federation.engine import RoundReport, RoundSettings, State, participants
from fova.federation.shares import Share
from fova.federation.simulation import Simulation
from fova.federation.statistics import (
    ClientStatistics,
    Statistics,
    client_statistics,
    common_normaliser,
    common_zero,
    derive,
)
from fova.machine import runtime
from fova.run.config import Config, sampling_of, unit_of_reward


class SimulatedEngine:
    """Rounds of a configuration over a federation's data, which may be replaced on the way."""

    def __init__(self, config: Config, federation: Federation, share: Share | None = None) -> None:
        runtime.prepare()
        config = replace(config, algorithm=algorithms.for_space(config.algorithm, federation.space))
        self.config, self.federation, self.space = config, federation, federation.space
        self.recipe, self.share = federation.recipe, share
        self.privacy = config.run.private(len(federation.clients if share is None else share.names))
        pooled = config.run.mode == "centralised"
        self._turns = [turn.pooled() if pooled else turn for turn in federation.turns()]
        self._turn = 0  # the turn whose data the simulation has
        self._settings = RoundSettings(
            # As many gradient steps as all clients that take part would take together.
            local_steps=config.run.local_steps
            * (participants(config.run.participation, len(federation.clients)) if pooled else 1),
            seed=config.run.seed,
            participation=1.0 if pooled else config.run.participation,
            cohort=config.run.cohort,
            aggregation=aggregation.for_algorithm(
                config.run.aggregation, config.algorithm, config.run.largest_share
            ),
            envelope=COMPRESSIONS[config.run.compress],
            privacy=self.privacy,
            together=config.run.mode != "local",
        )
        sampling, discount = sampling_of(config.run, config.algorithm), config.algorithm.discount
        self._row_weights = [
            {name: row_weights(data, sampling, discount) for name, data in turn.clients.items()}
            for turn in self._turns
        ]
        # Privacy protects the sums of single clients, so clients send none.
        self._told = self._tell() if self.privacy is None else []
        self.statistics = self._statistics()
        self._described: dict[str, dict[str, Any]] = {}
        weights = self.statistics[0].log_weights
        self.simulation = Simulation(
            config.algorithm, self._prepared(0), self.space, self._settings, weights, share, self._drawn(0)
        )

    # --- Statistics ---

    def _tell(self) -> list[dict[str, ClientStatistics]]:
        """The statistics that every client sends, for each turn of the data."""
        scale, normalise = self.config.run.reward_scale, self.config.run.normalise
        told = [
            {name: client_statistics(data, scale, normalise, weights[name]) for name, data in turn.clients.items()}
            for turn, weights in zip(self._turns, self._row_weights)
        ]
        return told if self.share is None else [self._told_by_all(self.share, turn) for turn in told]

    def _told_by_all(self, share: Share, own: Mapping[str, ClientStatistics]) -> dict[str, ClientStatistics]:
        tables = share.of_all("statistics", {name: client.to_json() for name, client in own.items()})
        return {name: ClientStatistics.from_json(table) for name, table in tables.items()}

    def _statistics(self) -> list[Statistics]:
        """The federation's constants for each turn of the data. The normaliser is that of all turns together."""
        unit, discount = unit_of_reward(self.config.run, self.config.algorithm), self.config.algorithm.discount
        if self.privacy is not None:
            assert unit is not None
            return [Statistics(Normaliser.identity(self.space.observation), unit) for _ in self._turns]
        share = self.config.run.largest_share
        told = self._told
        everything = {f"{name}, turn {i}": client for i, turn in enumerate(told) for name, client in turn.items()}
        # Data sequences exist in simulations only, where no client lies. Their parts differ more than clients do.
        believed = share if len(self._told) == 1 else 1.0
        normaliser, remarks = common_normaliser(everything, self.space.observation, believed)
        zero = common_zero(everything, discount, believed)
        derived = [derive(told, normaliser, discount, unit, share, zero) for told in self._told]
        return [replace(statistics, remarks=remarks + statistics.remarks) for statistics in derived]

    def _scales(self, turn: int) -> dict[str, tuple[float, float]]:
        """Each client's zero and unit of reward: the federation's, or its own where every client trains alone.

        A client's zero is the same in all turns, so that values keep their meaning.
        """
        discount, told = self.config.algorithm.discount, self._told
        if unit_of_reward(self.config.run, self.config.algorithm) is not None or self._settings.together:
            statistics = self.statistics[turn]
            return dict.fromkeys(self._turns[turn].clients, (statistics.reward_zero, statistics.reward_unit))
        own = {
            name: common_zero({str(i): t[name] for i, t in enumerate(told)}, discount, 1.0) for name in told[turn]
        }
        return {name: (own[name], c.reward_unit(discount, own[name]) or 1.0) for name, c in told[turn].items()}

    def _prepared(self, turn: int) -> dict[str, Transitions]:
        scales, times = self._scales(turn), self.config.run.reward_scale
        zeros = {name: zero / times for name, (zero, _) in scales.items()}
        factors = {name: times / unit for name, (_, unit) in scales.items()}
        members = self._turns[turn].counted_from(zeros, self.config.algorithm.discount)
        return members.prepared(self.statistics[turn].normaliser, factors)

    def _drawn(self, turn: int) -> dict[str, NDArray[np.int64]] | None:
        """The rows of each client that come by their weights; None if all come alike."""
        weights = self._row_weights[turn]
        drawn = {name: drawn_rows(each) for name, each in weights.items() if each is not None}
        return drawn or None

    # --- The engine ---

    def prepare(self, saved: Mapping[str, Any] | None) -> Statistics:
        """The data is here, so the statistics are computed anew at every start."""
        return self.statistics[0]

    def start(self) -> State:
        return self.simulation.start()

    def round(self, state: State) -> tuple[State, RoundReport]:
        return self.simulation.round(self._with_its_data(state))

    def _with_its_data(self, state: State) -> State:
        """Switch to the data of the current turn. The turn depends on the round alone, as a resumed run needs."""
        turn = self._turn_of(state.round)
        if turn != self._turn:
            self.simulation.set_data(self._prepared(turn), self.statistics[turn].log_weights, self._drawn(turn))
            self._turn = turn
        if state.round == 0 or turn == self._turn_of(state.round - 1):
            return state
        before, now = self._scales(turn - 1), self._scales(turn)
        return self.simulation.data_changed(state, {name: before[name][1] / now[name][1] for name in now})

    def _turn_of(self, rounds: int) -> int:
        """The turn of the data after this many rounds; one past the last when all are done."""
        return rounds * len(self._turns) // self.config.run.rounds

    def data_changes_after(self, rounds: int) -> bool:
        return self._turn_of(rounds) > self._turn_of(rounds - 1)

    def clients(self) -> dict[str, dict[str, Any]]:
        if not self._described:
            own = described(self.federation)
            self._described = own if self.share is None else self.share.of_all("clients", own)
        return self._described

    def local_learners(self, state: State) -> dict[str, Any]:
        def learner_of(client: int) -> Any:
            return jax.tree.map(lambda leaf: leaf[client], state.learners)

        return {name: learner_of(i) for i, name in enumerate(self.simulation.names)}


def described(federation: Federation) -> dict[str, dict[str, Any]]:
    """The description of every client's data, for clients.json."""
    held_out = federation.whole_held_out()
    return {
        name: describe(data) | ({"held_out": describe(held_out[name])} if name in held_out else {})
        for name, data in federation.whole_clients().items()
    }


def describe(data: Transitions) -> dict[str, Any]:
    """The description of a client's data: sizes, the return of its behaviour and a fingerprint, never a row."""
    return {
        "rows": len(data),
        "episodes": len(data.episode_lengths()),
        "behaviour_return": float(data.whole_episode_returns().mean()),
        "digest": data.digest(),
    }
