"""What a run of `fova train` would take: rows, parameters, memory and time. Nothing is made or trained.

Files are read, because they decide the size of the networks. Data of a task is not made.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fova.run.config import Config
    from fova.spaces import Space

BYTES_OF_A_NUMBER = 4
COPIES_OF_DATA = 2  # as logged and as the networks see it


class Rows(NamedTuple):
    """The clients' rows and the space that they live in."""

    clients: dict[str, int]
    space: "Space"


def describe(config: "Config", directory: Path) -> list[str]:
    """The lines that `fova train --dry-run` prints. A mistake in the configuration raises the error of training."""
    from fova.paper import cost
    from fova.reports.states import duration

    rows = _rows(config)
    policy, kept = _numbers(config, rows.space)
    total = sum(rows.clients.values())
    megabytes = BYTES_OF_A_NUMBER * (len(rows.clients) * kept + COPIES_OF_DATA * total * _width(rows.space)) / 1e6
    seconds = cost.seconds(config)
    time = (
        f"about {duration(seconds)} on {cost.speeds().machine}, from measured speeds; making data is not counted"
        if seconds is not None
        else f"not known: no speed of {Path(config.algorithm_name).stem} was measured"
    )
    steps = f"{config.run.rounds:,} rounds of {config.run.local_steps:,} at every client"
    named = ", ".join(list(rows.clients)[:8]) + (", ..." if len(rows.clients) > 8 else "")
    return [
        f"run         {Path(config.algorithm_name).stem} on {config.task or 'own data'}, {config.run.mode}",
        f"clients     {len(rows.clients):,}: {named}",
        f"rows        {total:,} in all, {_range(list(rows.clients.values()))} at a client",
        f"steps       {steps}, {config.gradient_steps:,} in all",
        f"parameters  {policy:,} of the policy; a client keeps {kept:,} numbers (networks, targets, optimizer)",
        f"memory      at least {megabytes:,.0f} MB for clients and data",
        f"time        {time}",
        f"directory   {directory}",
        "Nothing was trained. Leave --dry-run out to train.",
    ]


def _rows(config: "Config") -> Rows:
    from fova.federation.client_specs import DEFAULT_SIZE, complete, insist_on_sources, is_file, sources_of
    from fova.run.training import build_federation
    from fova.tasks import registry

    names = list(config.run.data_sequence) or sources_of(config.clients)
    if not config.clients or config.task is None or any(map(is_file, names)):
        federation = build_federation(config)
        return Rows({name: len(data) for name, data in federation.whole_clients().items()}, federation.space)
    task = registry.get(config.task)
    insist_on_sources(names, task)
    turns = max(1, len(config.run.data_sequence))
    sizes = {str(spec.name): turns * (spec.size or DEFAULT_SIZE) for spec in complete(config.clients)}
    return Rows(sizes, task.space)


def _numbers(config: "Config", space: "Space") -> tuple[int, int]:
    """The numbers of the policy, and all numbers that a client keeps between rounds."""
    import equinox
    import jax

    from fova import algorithms

    algorithm = algorithms.for_space(config.algorithm, space)

    def built(key: Any) -> tuple[Any, Any]:
        learner = algorithm.init(key, space)
        return algorithm.local_policy(learner), learner

    policy, learner = equinox.filter_eval_shape(built, jax.random.key(config.run.seed))
    policy_size, learner_size = (
        sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape"))
        for tree in (policy, learner)
    )
    return policy_size, learner_size


def _width(space: "Space") -> int:
    """Numbers of a transition: two observations, two actions, reward, discount and two flags."""
    return 2 * space.observation + 2 * space.action.size + 4


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
