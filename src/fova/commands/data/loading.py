"""The data that a command names, loaded, made or checked."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fova.commands.terminal import Terminal
from fova.errors import FovaError

if TYPE_CHECKING:
    from fova.data.action_kind import ActionKind
    from fova.data.sources import Source
    from fova.spaces import ActionSpace
    from fova.tasks.datasets import Kept
    from fova.tasks.registry import Task


def load(name: str, size: int, seed: int, download: bool) -> "Source":
    """The data of a file, folder, Minari dataset or TASK/QUALITY. A file takes precedence over a task."""
    from fova.data import sources
    from fova.tasks import datasets

    if datasets.is_name(name) and not Path(name).exists():
        task, quality = datasets.parse_name(name)
        kept = ensure(task, quality, size, seed, Terminal(stderr=True))
        return replace(sources.load(kept.folder), name=name)
    return sources.load(name, download)


def ensure(task: "Task", quality: str, size: int, seed: int, terminal: Terminal) -> "Kept":
    """The dataset, with a progress bar on the terminal while it is made."""
    from rich.progress import Progress

    from fova.tasks import datasets

    with Progress(console=terminal, transient=True) as bar:
        line = bar.add_task(f"{task.name}/{quality}", total=size)
        return datasets.ensure(task, quality, size, seed, lambda rows: bar.update(line, completed=min(rows, size)))


def check_actions(
    source: "Source", low: tuple[float, ...], high: tuple[float, ...], kind: "ActionKind" = "auto"
) -> "ActionSpace":
    """The action space, after the data has been checked against it."""
    from fova.data.transitions import check, refuse_unbounded
    from fova.federation.action_spaces import agreed_actions
    from fova.spaces import Box

    if bool(low) != bool(high):
        raise FovaError("Give --action-low and --action-high together.")
    action = agreed_actions({source.name: source}, None, (low, high) if low else None, kind, ())
    if action is None:
        given = (low, high) if low else (source.action_low, source.action_high)
        if given[0] is None or given[1] is None:
            refuse_unbounded([source.transitions])
        bounds = (-1.0, 1.0) if given[0] is None or given[1] is None else (given[0], given[1])
        action = Box.of(source.transitions.actions.shape[1], *bounds)
    check(source.transitions, source.name, action)
    return action
