"""A federation dealt out among several processes: which clients each holds, and how their rounds are merged.

Every process holds consecutive clients: their data, their learners and their part of a checkpoint. It simulates the
rounds of these clients. Then the processes exchange one mean of parameters and its weight for each process, and for
every client its verdict, its weight and its metrics, a few numbers each. All compute the same server from it.

A share consists of whole cohorts. So the limits for one client (`trust.py`) compare the same clients as in a
simulation on one machine, and the result is the same to rounding.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fova.errors import FovaError
from fova.federation import rounds
from fova.federation.gathered import Gathered


class Processes(Protocol):
    """What the processes of a federation can do together; `fova.machine.cluster.Cluster` is the real one."""

    index: int
    count: int

    def gather(self, kind: str, message: bytes = b"") -> list[bytes]:
        """The messages of all processes, in the order of processes."""

    def add(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum of all processes' vectors."""


def deal_out(clients: int, cohort: int, processes: int) -> list[range]:
    """The clients of every process: whole cohorts, in equal numbers. The first processes may have one more."""
    cohorts = -(-clients // cohort)
    if cohorts < processes:
        if clients < processes:
            held = f"{clients:,} client{'s' if clients > 1 else ''}"
            raise FovaError(f"There are {processes} processes for {held}. Start at most {clients:,}.")
        raise FovaError(
            f"{clients:,} clients make {cohorts} cohort{'s' if cohorts > 1 else ''} of {cohort}, too few for "
            f"{processes} processes. Add --cohort {-(-clients // processes)} or less, or start fewer processes."
        )
    each, more = divmod(cohorts, processes)
    ends = np.cumsum([each + (i < more) for i in range(processes)]) * cohort
    starts = [0, *ends[:-1].tolist()]
    return [range(start, min(int(end), clients)) for start, end in zip(starts, ends)]


class Share(NamedTuple):
    """The clients that one process holds of a federation."""

    names: list[str]  # of all clients of the federation
    all: list[range]  # the clients of every process
    processes: Processes

    @property
    def own(self) -> range:
        return self.all[self.processes.index]

    @property
    def own_names(self) -> list[str]:
        return [self.names[client] for client in self.own]

    def rows_of(self, chosen: Sequence[int]) -> list[int]:
        """The clients among the chosen ones that are here, as rows of this process's arrays."""
        return [client - self.own.start for client in chosen if client in self.own]

    def of_all(self, kind: str, own: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of all clients, in their order. Each process sends those of its own clients as JSON."""
        parts = self.processes.gather(kind, json.dumps(own).encode())
        return {name: table for part in parts for name, table in json.loads(part).items()}

    def merged(self, gathered: Gathered, like: Any) -> Gathered:
        """The results of the clients of all processes. `like` is a pytree with the shapes of their parameters."""
        parts = [load(part) for part in self.processes.gather("round", _packed(gathered, self.own.start))]
        everything = Gathered()
        for part in parts:
            metrics = {name.removeprefix(METRIC): part[name] for name in part if name.startswith(METRIC)}
            if len(part["members"]):
                everything.add(part["members"].tolist(), part["verdicts"], metrics, part["log_weights"])
        log_totals = np.array([float(part["log_total"]) for part in parts])
        everything.log_total = np.logaddexp.reduce(log_totals)
        if everything.log_total > -np.inf:
            weight = np.exp(log_totals[self.processes.index] - everything.log_total)
            mean = like if gathered.submissions is None else rounds.parameters_of(gathered.submissions)
            everything.submissions = rounds.alone(mean_of_all(self.processes, mean, float(weight)))
        return everything


METRIC = "metric "


def _packed(gathered: Gathered, first: int) -> bytes:
    """The numbers of a process's clients as bytes; `first` is the number of its first client."""
    tensors: dict[str, NDArray[Any]] = {
        "members": np.array(gathered.members, np.int64) + first,
        "verdicts": np.array(gathered.verdicts, np.int64),
        "log_weights": gathered.log_weights,
        "log_total": np.asarray(gathered.log_total, np.float32),
    }
    return save(tensors | {METRIC + name: values for name, values in gathered.metrics().items()})


def mean_of_all(processes: Processes, mean: Any, weight: float) -> Any:
    """The mean over all processes of their means. The weights of all processes sum to 1.

    One sum of vectors is all that travels: its size does not depend on the number of clients or processes.
    """
    leaves, structure = jax.tree.flatten(mean)
    arrays = [np.asarray(leaf) for leaf in leaves]
    vector = np.concatenate([array.ravel() for array in arrays]).astype(np.float32)
    # A process without weight must not count, whatever its numbers are: 0 * NaN is NaN.
    total = processes.add(np.float32(weight) * vector if weight > 0 else np.zeros_like(vector))
    parts = np.split(total, np.cumsum([array.size for array in arrays])[:-1])
    return jax.tree.unflatten(
        structure, [part.reshape(array.shape).astype(array.dtype) for part, array in zip(parts, arrays)]
    )
