"""The metrics of a run as TensorBoard events: `tensorboard --logdir runs`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tensorboardX import SummaryWriter


class EventLog:
    """Writes each round's entry of metrics.jsonl as scalars; what a resumed run repeats replaces what was there."""

    def __init__(self, directory: Path, after: int) -> None:
        self._writer = SummaryWriter(str(directory), purge_step=after + 1 if after else None)

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def write(self, entry: dict[str, Any]) -> None:
        for name, value in _scalars(entry.get("server", {})):
            self._writer.add_scalar(f"server/{name}", value, entry["round"])
        for group in ("clients", "client_play"):
            for client, metrics in entry.get(group, {}).items():
                for name, value in _scalars(metrics):
                    self._writer.add_scalar(f"{name}/{client}", value, entry["round"])


def _scalars(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The known figures, those that a task adds (`measures`) included."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _scalars(value)
        elif value is not None:
            yield name, value
