"""Clients that lie, against each aggregation: results/poisoned_clients.json, tables in privacy.md and deploy.md.

python benchmarks/poisoned_clients.py           measure what is missing, then write the tables

A client can lie in four places: its data (`label noise`), the statistics that it sends before the first round, its
update, and the weight and metrics beside it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from federation_scores import EPISODES, PAGE, SEEDS, TASK, Results, fova, interval, write_table
from jaxtyping import Array, Int, PRNGKeyArray

from fova.algorithms.base import Batch, Broadcast, Data, Submission
from fova.algorithms.base import replace as changed
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.evaluation.rollouts import play
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.federation.statistics import ClientStatistics
from fova.policy import from_actor
from fova.run.config import Config, RunConfig
from fova.run.simulated import SimulatedEngine
from fova.spaces import Box, Space

DEPLOY = PAGE.parent / "deploy.md"
SIZE, ROUNDS, LOCAL_STEPS, HIDDEN = 2000, 12, 40, (64, 64)
# The default of a run, the same without limits on what a client can do, and the alternatives.
COLUMNS: dict[str, dict[str, Any]] = {
    "default": {},
    "believes all": {"largest_share": 1.0},
    "median": {"aggregation": "median"},
    "krum": {"aggregation": "krum"},
    "value": {"aggregation": "value"},  # claimed with every submission, so it is asked about that claim only
}


# --- Lies ---


def moved_by(factor: float, parameters: Any, broadcast: Any) -> Any:
    return jax.tree.map(lambda own, sent: sent + factor * (own - sent), parameters, broadcast)


def noisy_labels(data: Transitions) -> Transitions:
    """Actions of other rows, so that they have nothing to do with the states."""
    order = np.random.default_rng(0).permutation(len(data))
    return replace(data, actions=data.actions[order], next_actions=data.next_actions[order])


def best_of_all(told: ClientStatistics) -> ClientStatistics:
    """Rewards a million times as high."""
    return replace(told, reward_sum=1e6 * told.reward_sum, reward_squares=1e12 * told.reward_squares)


def another_unit(told: ClientStatistics) -> ClientStatistics:
    """Rewards that spread a million times as far around the same mean."""
    return replace(told, reward_squares=1e12 * told.reward_squares)


def many_rows_elsewhere(told: ClientStatistics) -> ClientStatistics:
    """A billion rows, with observations a thousand times as large."""
    assert told.observations is not None
    factor = 1e9 / told.rows
    moved = replace(
        told.observations,
        count=10**9,
        total=1e3 * factor * told.observations.total,
        squares=1e6 * factor * told.observations.squares,
    )
    rewards = {name: factor * getattr(told, name) for name in ("reward_sum", "reward_squares", "reward_deviations")}
    return replace(told, rows=10**9, observations=moved, **rewards)


AS_IT_IS = partial(moved_by, 1.0)
HONESTLY: Callable[[ClientStatistics], ClientStatistics] = partial(replace)  # a copy


@dataclass(frozen=True)
class Attack:
    """What liars do; everything that is left out is honest."""

    update: Callable[[Any, Any], Any] = AS_IT_IS
    weight: float | None = None  # the log-weight and the value that it claims
    statistics: Callable[[ClientStatistics], ClientStatistics] = HONESTLY
    data: Callable[[Transitions], Transitions] = field(default=lambda data: data)
    liars: int = 1
    clients: int = 5
    good: int | None = None  # so many clients, the last ones, have expert data and the others random; None: all

    def federation(self) -> Federation:
        good = self.clients if self.good is None else self.good
        names = ["random"] * (self.clients - good) + ["expert"] * good
        return Federation.build([ClientSpec(name, SIZE) for name in names], TASK)


FLIPPED = partial(moved_by, -9.0)  # nine times is just below the length at which a submission is rejected
HONEST, CLAIMS_WEIGHT = "nothing but the truth", "claims a log-weight of a million and a value of 1e9"
ATTACKS = {
    HONEST: Attack(liars=0),
    CLAIMS_WEIGHT: Attack(weight=1e6),
    "claims rewards a million times as high": Attack(statistics=best_of_all),
    "... and sends its update x -9": Attack(FLIPPED, 1e6, best_of_all),
    "lies about its part of the reward unit": Attack(statistics=another_unit),
    "claims a billion rows and other observations": Attack(statistics=many_rows_elsewhere),
    "its update, sign-flipped": Attack(partial(moved_by, -1.0)),
    "its update x -9": Attack(FLIPPED),
    "its update x 9": Attack(partial(moved_by, 9.0)),
    "its update, a million times": Attack(partial(moved_by, 1e6)),
    "label noise": Attack(data=noisy_labels),
    "label noise, claims rewards a million times as high": Attack(
        weight=1e6, statistics=best_of_all, data=noisy_labels
    ),
    "seven clients, nothing but the truth": Attack(liars=0, clients=7),
    "two of seven have expert data, five random; nobody lies": Attack(liars=0, clients=7, good=2),
    "two of seven: update x -9, claim the highest rewards": Attack(FLIPPED, 1e6, best_of_all, liars=2, clients=7),
    "two of seven: label noise, claim the highest rewards": Attack(
        weight=1e6, statistics=best_of_all, data=noisy_labels, liars=2, clients=7
    ),
}

# Before there were limits: mean score of three seeds with other networks and rounds. Only the share of the honest
# score can be compared with today's.
BEFORE = {
    HONEST: 115.7,
    CLAIMS_WEIGHT: -1.0,
    "... and sends its update x -9": -13.0,
    "lies about its part of the reward unit": 27.0,
}


# --- An algorithm and an engine with liars ---


class Member(eqx.Module):
    """A learner, and whether it lies."""

    honest: Any
    lies: Int[Array, ""]


@dataclass(frozen=True)
class WithLiars:
    """An algorithm whose clients may lie when they submit."""

    action_spaces: ClassVar[tuple[type, ...]] = (Box,)

    inner: Any
    attack: str

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)

    def init(self, key: PRNGKeyArray, space: Space) -> Member:
        return Member(self.inner.init(key, space), jnp.zeros((), jnp.int32))

    def start(self, member: Member) -> Any:
        return self.inner.start(member.honest)

    def receive(self, member: Member, broadcast: Broadcast) -> Member:
        return Member(self.inner.receive(member.honest, broadcast), member.lies)

    def step(self, member: Member, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray) -> tuple[Member, Any]:
        honest, metrics = self.inner.step(member.honest, broadcast, batch, key)
        return Member(honest, member.lies), metrics

    def submit(self, member: Member, broadcast: Any, data: Data) -> tuple[Member, Submission]:
        honest, submission = self.inner.submit(member.honest, broadcast, data)
        attack, lies = ATTACKS[self.attack], member.lies > 0
        false = attack.update(submission.parameters, broadcast)
        parameters = jax.tree.map(partial(jnp.where, lies), false, submission.parameters)
        sent = changed(submission, parameters=parameters)
        if attack.weight is not None:
            value = jnp.where(lies, 1e3 * attack.weight, submission.metrics["value"])
            log_weight = jnp.where(lies, attack.weight, submission.log_weight)
            sent = Submission(parameters, log_weight, submission.metrics | {"value": value})
        return Member(honest, member.lies), sent

    def local_policy(self, member: Member) -> Any:
        return self.inner.local_policy(member.honest)

    def data_changed(self, member: Member, rescale: Any) -> Member:
        return member


class EngineWithLiars(SimulatedEngine):
    """A simulation whose last clients lie."""

    def __init__(self, config: Config, members: Federation, attack: Attack) -> None:
        self.attack = attack
        self.liars = list(members.clients)[attack.clients - attack.liars :]
        clients = {n: attack.data(data) if n in self.liars else data for n, data in members.clients.items()}
        super().__init__(config, replace(members, clients=clients))

    def _tell(self) -> list[dict[str, ClientStatistics]]:
        (told,) = super()._tell()
        return [{n: self.attack.statistics(c) if n in self.liars else c for n, c in told.items()}]


# --- The measurement ---


def one_run(column: str, name: str, seed: int) -> tuple[float | None, dict[str, Any]]:
    attack = ATTACKS[name]
    members = attack.federation()
    run = RunConfig(rounds=ROUNDS, local_steps=LOCAL_STEPS, seed=seed, **COLUMNS[column])
    config = Config(TASK.name, members.specs, fova(hidden=HIDDEN), "fova", run)
    object.__setattr__(config, "algorithm", WithLiars(config.algorithm, name))
    engine = EngineWithLiars(config, members, attack)
    statistics, state = engine.prepare(None), engine.start()
    state.learners.lies[attack.clients - attack.liars :] = 1
    rejected = 0
    for _ in range(ROUNDS):
        try:
            state, report = engine.round(state)
        except FovaError as error:  # not one client is left with finite parameters
            print(error)
            return None, {"rounds_a_liar_was_rejected": rejected}
        rejected += any(liar in report.rejected for liar in engine.liars)
    actor = jax.tree.map(jax.device_get, config.algorithm.policy(state.broadcast))
    policy = from_actor(actor, statistics.normaliser, members.space)
    return play({"server": policy}, TASK, EPISODES)["server"].score, {"rounds_a_liar_was_rejected": rejected}


def asked() -> list[tuple[str, str]]:
    """Every column with its attacks; the default first, so that its part of the table can be had early."""
    return [
        (column, attack)
        for column, attack in product(COLUMNS, ATTACKS)
        if column != "value" or attack in (HONEST, CLAIMS_WEIGHT)
    ]


def main() -> None:
    setting = {"size": SIZE, "rounds": ROUNDS, "local_steps": LOCAL_STEPS, "hidden": HIDDEN}
    results = Results("poisoned_clients", setting)
    for column, attack in asked():
        about = {"attack": attack, "aggregation": column}
        for seed in range(SEEDS):
            results.measure(f"{attack} / {column}", about, seed, partial(one_run, column, attack))

    for path, (marker, rows, columns) in tables(results.lines).items():
        write_table(marker, rows, columns, path)


def tables(lines: Mapping[str, Any]) -> dict[Path, tuple[str, list[list[str]], tuple[str, ...]]]:
    """Page -> name, rows and columns of its table."""

    def cell(attack: str, column: str) -> str:
        line = lines.get(f"{attack} / {column}", {"scores": []})
        return interval(line["scores"]) if len(line["scores"]) == SEEDS else ""

    everything = [[attack, *(cell(attack, column) for column in COLUMNS)] for attack in ATTACKS]
    honest = np.mean(lines[f"{HONEST} / default"]["scores"])

    def kept(attack: str) -> str:
        return f"{np.mean(lines[f'{attack} / default']['scores']) / honest:.0%}"

    members = [
        [attack, f"{score:.1f}", f"{score / BEFORE[HONEST]:.0%}", cell(attack, "default"), kept(attack)]
        for attack, score in BEFORE.items()
    ]
    return {
        PAGE: ("poisoned clients", everything, ("the last client", *COLUMNS)),
        DEPLOY: ("a member who lies", members, ("one of five", "before", "of honest", "now", "of honest")),
    }


if __name__ == "__main__":
    main()
