"""Judge a policy without a simulator: fit its value across the clients, then let every client report on itself.

The fit is federated (`fova.algorithms.fqe`): critics travel, rows do not. `client.figures` is computed by each
client on its own data. A run over a network does the same with messages (`fova.network`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np

from fova.algorithms.fqe import Critics, Fqe
from fova.data.normalise import Normaliser
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.evaluation.judging import client, intervals
from fova.evaluation.judging.client import Evidence, Fit, Scale
from fova.evaluation.judging.intervals import Estimate
from fova.evaluation.judging.verdict import Figures, Verdict
from fova.federation import aggregation
from fova.federation.clients import Federation
from fova.federation.engine import RoundSettings
from fova.federation.privacy import Privacy
from fova.federation.simulation import Simulation
from fova.federation.statistics import ClientStatistics, common_unit, weights_by_returns
from fova.machine import runtime
from fova.policy import NORMALISER, Policy, load_policy
from fova.settings import SEEDS, SMALLEST, Within, argument, check_kinds, check_ranges


@dataclass(frozen=True)
class JudgeSettings:
    """How the value of a policy is fitted."""

    rounds: Annotated[int, Within(1, 100_000)] = 60
    """Rounds of the fit."""
    steps: Annotated[int, Within(1, 100_000)] = 100
    """Gradient steps of every critic at every client in a round."""
    critics: Annotated[int, Within(1, 100)] = 4
    """Repetitions of the fit with other first weights and minibatches; their spread is part of the intervals."""
    hidden: Annotated[tuple[int, ...], Within(1, 65_536)] = (64, 64)
    """Widths of the critics' hidden layers."""
    batch_size: Annotated[int, Within(1, 1_000_000)] = 128
    """Transitions in a minibatch."""
    critic_lr: Annotated[float, Within(0)] = 1e-3
    """Adam's learning rate."""
    huber: Annotated[float, Within(0)] = 1.0
    """Error, in units of reward, beyond which the loss is linear; 0 is the squared loss."""
    aggregation: str = "algorithm"
    """How the server combines critics: uniform, size, median, trimmed-mean or krum. algorithm: as the run combined
    its clients if that was median, trimmed-mean or krum, otherwise by rows."""
    seed: Annotated[int, SEEDS] = 0
    """Seed of the fit. The same seed gives the same figures."""

    def __post_init__(self) -> None:
        check_kinds(self, "of the judge")
        check_ranges(self)
        if 0 < self.huber < SMALLEST:  # 0 in single precision, which would mean the squared loss
            raise FovaError(f"huber is {self.huber}, but must be 0 or at least {SMALLEST:g}.")
        aggregation.get(self.aggregation)

    def algorithm(self, scale: Scale) -> Fqe:
        """The algorithm that fits critics."""
        lowest, highest = scale.bounds
        return Fqe(
            discount=scale.discount,
            lowest=lowest,
            highest=highest,
            batch_size=self.batch_size,
            critic_lr=self.critic_lr,
            hidden=self.hidden,
            critics=self.critics,
            huber=self.huber,
        )

    def round_settings(self, privacy: Privacy | None = None) -> RoundSettings:
        return RoundSettings(
            local_steps=self.steps * self.critics,
            seed=self.seed,
            aggregation=aggregation.get(self.aggregation),
            privacy=privacy,
        )

    def combining_like(self, trained_with: str) -> "JudgeSettings":
        """The settings with the robust aggregation that the policy was trained with, unless another is chosen."""
        robust = self.aggregation == "algorithm" and aggregation.get(trained_with).combine is not None
        return replace(self, aggregation=trained_with) if robust else self


@dataclass(frozen=True)
class Promise:
    """What the clients of a run were promised: nothing that tells of a single one leaves it without noise or mask.

    The fit then needs a unit of reward that somebody declared. `privacy` is None with secure aggregation alone.
    """

    reward_unit: float
    privacy: Privacy | None = None

    def scale(self, policy: Policy, discount: float) -> Scale:
        """The scale of the fit without anything that clients tell about their data."""
        return Scale(normaliser_of(policy), discount, self.reward_unit)

    def settings(self, settings: JudgeSettings) -> JudgeSettings:
        """Under privacy every client counts the same; any other mean depends on data that nothing hides."""
        if self.privacy is None:
            return settings
        if settings.aggregation not in ("algorithm", "uniform"):
            raise FovaError(
                f"aggregation is {settings.aggregation}, but only the plain mean keeps the promise of privacy. "
                "Leave --aggregation out."
            )
        return replace(settings, aggregation="uniform")


def judge(
    policy: Policy | str | Path,
    federation: Federation,
    discount: float = 0.99,
    settings: JudgeSettings | None = None,
    tell: Callable[[str], None] = lambda message: None,
    promise: Promise | None = None,
) -> Verdict:
    """How good a policy is for each client of a federation, and how far to trust that.

    `policy` is a policy, a run directory or a policy's file. The policy is judged on the episodes that the
    federation holds out. If it holds out none, it is judged on all episodes, and the verdict says so. `tell`
    receives progress messages. `promise` lets the rounds of the fit keep what clients were promised. Figures are
    exact all the same: whoever simulates holds the data.
    """
    policy = policy if isinstance(policy, Policy) else load_policy(policy)
    federation = argument("federation", federation, Federation)
    discount = argument("discount", discount, Annotated[float, Within(0, 1, below=True)])
    settings = argument("settings", settings, JudgeSettings | None) or JudgeSettings()
    tell = argument("tell", tell, Callable)
    promise = argument("promise", promise, Promise | None)
    if policy.space != federation.space:
        raise FovaError(
            f"The policy has {policy.space.words()}, but the data has {federation.space.words()}, or other bounds. "
            "Judge a policy on data of the space that it was trained in."
        )
    runtime.prepare()
    evidence = evidence_of(federation)
    settings = settings if promise is None else promise.settings(settings)
    fitted = fit(policy, {name: e.judged for name, e in evidence.items()}, discount, settings, tell, promise)
    figures = {}
    for name, own in evidence.items():
        tell(f"{name}: what its data says about the policy")
        figures[name] = client.figures(fitted, own)
    return verdict(policy, figures, discount, bool(federation.held_out), asdict(settings))


def evidence_of(federation: Federation) -> dict[str, Evidence]:
    """What each client judges on."""
    held_out = federation.whole_held_out()
    return {name: Evidence.of(data, held_out.get(name)) for name, data in federation.whole_clients().items()}


def fit(
    policy: Policy,
    clients: Mapping[str, Transitions],
    discount: float,
    settings: JudgeSettings,
    tell: Callable[[str], None] = lambda message: None,
    promise: Promise | None = None,
) -> Fit:
    """Fit critics to the policy in simulated rounds over the clients' raw data."""
    if promise is None:
        scale = scale_of(policy, {name: client.told(data) for name, data in clients.items()}, discount)
    else:
        scale = promise.scale(policy, discount)
    prepared = {name: client.rows_to_fit(policy, scale, data) for name, data in clients.items()}
    algorithm: Any = settings.algorithm(scale)
    rounds = settings.round_settings(promise.privacy if promise else None)
    simulation = Simulation(algorithm, prepared, policy.space, rounds)
    state = simulation.start()
    started = time.monotonic()
    for number in range(settings.rounds):
        tell(in_progress(number, settings.rounds, time.monotonic() - started))
        state, _ = simulation.round(state)
        if number == 0:  # it compiles, and says nothing about the others
            started = time.monotonic()
    return Fit(policy, critics_of(state.broadcast), scale)


def in_progress(done: int, rounds: int, seconds: float) -> str:
    """What the terminal shows during the fit. `seconds` were spent on the rounds that are done, but the first."""
    words = f"fitting the policy's value: round {done + 1} of {rounds}"
    return words if done < 3 else f"{words}, about {seconds / (done - 1) * (rounds - done):.0f} s left"


def scale_of(policy: Policy, clients: Mapping[str, ClientStatistics], discount: float) -> Scale:
    """The scale of the fit from what clients tell about the data that they judge on."""
    normaliser = normaliser_of(policy)
    unit = common_unit(clients, weights_by_returns(clients, discount), discount)[0]
    level = float(np.median([told.step_value(discount) for told in clients.values()])) / unit
    ranges = [told.reward_range for told in clients.values() if told.reward_range is not None]
    lowest, highest = min(r[0] for r in ranges), max(r[1] for r in ranges)
    return Scale(normaliser, discount, unit, level, lowest, highest)


def normaliser_of(policy: Policy) -> Normaliser:
    """The normaliser that the policy was trained with; critics use the same."""
    if NORMALISER[0] not in policy.weights:
        return Normaliser.identity(policy.space.observation)
    return Normaliser(*(policy.weights[name] for name in NORMALISER))


def critics_of(broadcast: Any) -> Critics:
    """The fitted critics in a broadcast, as arrays on the host."""
    critics: Critics = jax.tree.map(np.asarray, broadcast.critic)
    return critics


# --- The federation ---------------------------------------------------------------------------------------


def verdict(
    policy: Policy, clients: Mapping[str, Figures], discount: float, held_out: bool, settings: Mapping[str, Any]
) -> Verdict:
    """The verdict from what every client reported about itself."""
    facts = [str(policy.facts[name]) for name in ("algorithm", "task", "client") if policy.facts.get(name)]
    about = " ".join(facts) or "policy"
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
    return Verdict(about, discount, held_out, clients, federation_figures(list(clients.values())), plain)


def federation_figures(clients: Sequence[Figures]) -> Figures:
    """The figures of all clients' episodes together, from the clients' own figures alone."""
    episodes = [figures.episodes for figures in clients]

    def mean(name: str) -> float:
        return float(np.average([getattr(figures, name) for figures in clients], weights=episodes))

    # Errors of opposite signs at two clients do not cancel where the policy goes its own ways.
    allowance = float(np.average([abs(figures.bias) for figures in clients], weights=episodes))
    value = intervals.combined(
        [Estimate(f.value, f.low, f.high, f.episode_error, f.fit_error) for f in clients], episodes, allowance
    )
    difference = intervals.combined(
        [
            Estimate(f.difference, f.difference_low, f.difference_high, f.difference_error, f.fit_error)
            for f in clients
        ],
        episodes,
        allowance,
    )
    rows = [figures.rows for figures in clients]
    squares = [figures.bellman_error**2 for figures in clients]
    return Figures(
        episodes=sum(episodes),
        rows=sum(rows),
        data_value=mean("data_value"),
        data_return=mean("data_return"),
        value=value.value,
        low=value.low,
        high=value.high,
        difference=difference.value,
        difference_low=difference.low,
        difference_high=difference.high,
        bellman_error=float(np.sqrt(np.average(squares, weights=rows))),
        bias=mean("bias"),
        episode_error=value.episode_error,
        fit_error=value.fit_error,
        difference_error=difference.episode_error,
        inside=_weighted([(f.inside, f.episodes) for f in clients if f.inside is not None]),
        effective_episodes=_total([f.effective_episodes for f in clients]),
    )


def _total(values: Sequence[float | None]) -> float | None:
    """The sum; None if a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _weighted(pairs: Sequence[tuple[float, int]]) -> float | None:
    """The weighted mean of (value, weight) pairs; None if there are none."""
    if not pairs:
        return None
    values, weights = zip(*pairs)
    return float(np.average(values, weights=weights))
