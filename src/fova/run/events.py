"""The metrics of a run as TensorBoard events: `tensorboard --logdir runs`.

The server, every client and the mean of all clients are sub-runs of their own. A metric has the same tag in all of
them, so that one chart overlays the clients.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

# A sub-run keeps a file open. In larger federations only the first clients have one; the mean is that of all.
MOST_CLIENTS = 50
SERVER, MEAN = "server", "mean of clients"
EVALUATION, TRAINING = "evaluation", "training"


class EventLog:
    """Writes each round's entry of metrics.jsonl as scalars. A resumed run replaces the rounds that it repeats."""

    def __init__(self, directory: Path, after: int) -> None:
        self._directory = directory
        self._purge = after + 1 if after else None
        self._scalars = Scalars()
        self._files: dict[str, _EventFile] = {}

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            with suppress(OSError) if error else nullcontext():  # the first error is the one to report
                file.close()

    def write(self, entry: Mapping[str, Any]) -> None:
        for sub_run, tag, value in self._scalars.of(entry):
            if sub_run not in self._files:
                self._files[sub_run] = _EventFile(self._directory / sub_run, self._purge)
            self._files[sub_run].add(tag, value, entry["round"])
        for file in self._files.values():
            file.flush()


class _EventFile:
    """The event file of one sub-run, written at once.

    tensorboardX's own SummaryWriter writes in a thread. On a full disk that thread dies with a traceback, and the
    training waits for it for ever.
    """

    def __init__(self, folder: Path, purge: int | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = len(list(folder.glob("events.*")))  # a name has seconds, and a run may be resumed within one
        self._writer = EventsWriter(str(folder / "events"), f".{earlier}")
        if purge is not None:  # what was written for this round and later ones no longer counts
            self._write(Event(session_log=SessionLog(status=SessionLog.START)), purge)

    def add(self, tag: str, value: float, step: int) -> None:
        self._write(Event(summary=scalar(tag, value)), step)

    def _write(self, event: Event, step: int) -> None:
        event.wall_time, event.step = time.time(), step
        self._writer.write_event(event)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


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
