"""The metrics of a run as TensorBoard events: `tensorboard --logdir runs`.

The server, every client and the mean of all clients are sub-runs of their own. A metric has the same tag in all of
them, so that one chart overlays the clients.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

# A sub-run keeps a file open. In larger federations only the first clients have one; the mean is that of all.
MOST_CLIENTS = 50
SERVER, MEAN = "server", "mean of clients"
EVALUATION, TRAINING = "evaluation", "training"


class EventLog:
    """Writes each round's entry of metrics.jsonl as scalars; what a resumed run repeats replaces what was there."""

    def __init__(self, directory: Path, after: int) -> None:
        self._directory = directory
        self._purge = after + 1 if after else None
        self._scalars = Scalars()
        self._writers: dict[str, SummaryWriter] = {}

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.close()

    def write(self, entry: Mapping[str, Any]) -> None:
        from tensorboardX import SummaryWriter  # not before the first round is over: it takes a while

        for sub_run, tag, value in self._scalars.of(entry):
            if sub_run not in self._writers:
                self._writers[sub_run] = SummaryWriter(str(self._directory / sub_run), purge_step=self._purge)
            self._writers[sub_run].add_scalar(tag, value, entry["round"])


class Scalars:
    """The entries of metrics.jsonl as single figures. Remembers which clients have a sub-run."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def of(self, entry: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
        """Sub-run, tag and value of everything in an entry."""
        for name, value in _known(entry.get("server", {})).items():
            yield SERVER, f"{EVALUATION}/{name}", value
        for name, value in _known(entry.get("clients_mean", {})).items():
            yield MEAN, f"{TRAINING}/{name}", value
        for group, kind in (("clients", TRAINING), ("client_play", EVALUATION)):
            clients = {client: _known(metrics) for client, metrics in entry.get(group, {}).items()}
            for client, metrics in clients.items():
                folder = self._folder(client)
                for name, value in metrics.items() if folder else ():
                    yield f"clients/{folder}", f"{kind}/{name}", value
            for name in dict.fromkeys(name for metrics in clients.values() for name in metrics):
                values = [metrics[name] for metrics in clients.values() if name in metrics]
                yield MEAN, f"{kind}/{name}", sum(values) / len(values)

    def _folder(self, client: str) -> str | None:
        """The folder of a client's sub-run; None for a client that has none."""
        if client not in self._folders and len(self._folders) < MOST_CLIENTS:
            name = re.sub(r"[^\w.-]", "_", client).strip(".") or "client"
            taken = set(self._folders.values())
            self._folders[client] = name if name not in taken else f"{name}-{len(taken)}"
        return self._folders.get(client)


def _known(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The figures that have a value, those that a task adds (`measures`) included."""
    known: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            known |= _known(value)
        elif value is not None:
            known[name] = value
    return known
