"""One poisoned client of five against each aggregation: results/poisoned_clients.json, a table in docs/privacy.md.

python benchmarks/poisoned_clients.py           measure what is missing, then write the table
"""

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from federation_scores import SEEDS, Results, federation, final_score, fova, interval, write_table
from jaxtyping import Array, Int, PRNGKeyArray

from fova.algorithms.base import Batch, Broadcast, Data, Submission, replace
from fova.federation.aggregation import AGGREGATIONS
from fova.federation.engine import State
from fova.spaces import Box, Space

CLIENTS, SIZE, ROUNDS, LOCAL_STEPS, HIDDEN = 5, 2000, 12, 40, (64, 64)
AGGREGATORS = ("uniform", "median", "trimmed-mean", "krum")
POISONED = CLIENTS - 1  # the position of the one that lies


# --- A client that lies ---


def moved_by(factor: float, parameters: Any, broadcast: Any) -> Any:
    return jax.tree.map(lambda own, sent: sent + factor * (own - sent), parameters, broadcast)


def nothing_but_nan(parameters: Any, broadcast: Any) -> Any:
    return jax.tree.map(lambda own: jnp.full_like(own, jnp.nan), parameters)


# Nine times is just below the length at which a submission is rejected: the worst that is let through.
FACTORS = {
    "an honest update": 1.0,
    "its update, sign-flipped, 9 times as long": -9.0,
    "its update, a million times": 1e6,
}
ATTACKS = [*FACTORS, "a random network", "NaN"]


class Member(eqx.Module):
    """A learner, and what it does to its submission: a position in ATTACKS."""

    honest: Any
    attack: Int[Array, ""]


@dataclass(frozen=True)
class WithPoison:
    """An algorithm whose clients may lie when they submit."""

    action_spaces: ClassVar[tuple[type, ...]] = (Box,)

    inner: Any

    @property
    def mergeable(self) -> bool:
        return self.inner.mergeable

    @property
    def client_weights(self) -> str:
        return self.inner.client_weights

    @property
    def batch_size(self) -> int:
        return self.inner.batch_size

    @property
    def stride(self) -> int:
        return self.inner.stride

    def init(self, key: PRNGKeyArray, space: Space) -> Member:
        return Member(self.inner.init(key, space), jnp.zeros((), jnp.int32))

    def start(self, member: Member) -> Any:
        return self.inner.start(member.honest)

    def receive(self, member: Member, broadcast: Broadcast) -> Member:
        return Member(self.inner.receive(member.honest, broadcast), member.attack)

    def step(self, member: Member, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray) -> tuple[Member, Any]:
        honest, metrics = self.inner.step(member.honest, broadcast, batch, key)
        return Member(honest, member.attack), metrics

    def submit(self, member: Member, broadcast: Any, data: Data) -> tuple[Member, Submission]:
        honest, submission = self.inner.submit(member.honest, broadcast, data)
        _, strange = self.inner.submit(self.inner.init(jax.random.key(99), data.space), broadcast, data)
        lies = [partial(moved_by, factor) for factor in FACTORS.values()]
        lies += [lambda *_: strange.parameters, nothing_but_nan]
        parameters = jax.lax.switch(member.attack, lies, submission.parameters, broadcast)
        return Member(honest, member.attack), replace(submission, parameters=parameters)

    def aggregate(self, server: Any, submissions: Submission) -> Any:
        return self.inner.aggregate(server, submissions)

    def policy(self, broadcast: Any) -> Any:
        return self.inner.policy(broadcast)

    def local_policy(self, member: Member) -> Any:
        return self.inner.local_policy(member.honest)

    def networks(self, parameters: Any) -> Any:
        return self.inner.networks(parameters)

    def data_changed(self, member: Member, rescale: Any) -> Member:
        return member


# --- The measurement ---


def one_run(aggregation: str, attack: str, seed: int) -> tuple[float | None, dict[str, Any]]:
    def poison(state: State) -> State:
        state.learners.attack[POISONED] = np.int32(ATTACKS.index(attack))
        return state

    score, reports = final_score(
        WithPoison(fova(hidden=HIDDEN)),
        federation(CLIENTS, SIZE),
        ROUNDS,
        poison,
        local_steps=LOCAL_STEPS,
        seed=seed,
        aggregation=AGGREGATIONS[aggregation],
    )
    names = [f"expert-{i + 1}" for i in range(CLIENTS)]
    counts = [sum(name in report.rejected for report in reports) for name in names]
    return score, {
        "rounds_the_liar_was_rejected": counts.pop(POISONED),
        "rounds_an_honest_client_was_rejected": sum(counts),
    }


def main() -> None:
    setting = {"clients": CLIENTS, "size": SIZE, "rounds": ROUNDS, "local_steps": LOCAL_STEPS, "hidden": HIDDEN}
    results = Results("poisoned_clients", setting)
    # All lines of one seed before the next seed: a table can be had early.
    for seed, aggregation, attack in product(range(SEEDS), AGGREGATORS, ATTACKS):
        about = {"attack": attack, "aggregation": aggregation}
        results.measure(f"{attack} / {aggregation}", about, seed, partial(one_run, aggregation, attack))
    rows = []
    for attack in ATTACKS:
        lines = [results.lines[f"{attack} / {aggregation}"] for aggregation in AGGREGATORS]
        rejected = [count for line in lines for count in line["rounds_the_liar_was_rejected"]]
        spoken = " to ".join(str(count) for count in sorted({min(rejected), max(rejected)}))
        rows.append([attack, *(interval(line["scores"]) for line in lines), f"{spoken} of {ROUNDS}"])
    write_table("poisoned clients", rows, ("the fifth client sends", *AGGREGATORS, "rounds it was rejected"))


if __name__ == "__main__":
    main()
