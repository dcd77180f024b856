"""Datasets generated on this machine. They are stored, and later requests return the same bytes.

A dataset is named TASK/QUALITY and has a seed. It is stored as a Minari dataset in fova's cache directory, with its
recipe in the metadata. A longer dataset starts with the rows of the shorter one. Data of an older recipe (other
policies, another simulator) is generated again. Data is not stored if the task has no recipe, if Minari is not
installed, or if the directory cannot be written.
"""

import errno
import importlib.metadata
import importlib.util
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fova.data import minari_store, sources
from fova.data.fields import decoding
from fova.data.transitions import Episode, Transitions, from_episodes
from fova.errors import FovaError, unknown
from fova.machine import runtime
from fova.tasks import registry
from fova.tasks.registry import Task

# Packages that the data depends on, besides fova. Minari is not one of them, because it only stores the data.
SIMULATION = ("gymnasium", "mujoco", "numpy")

ATTEMPTS = 10  # to move a dataset to its final folder while other processes do the same

Progress = Callable[[int], None]  # called with the number of rows so far


@dataclass(frozen=True)
class Kept:
    """A dataset in the store."""

    task: str
    quality: str
    seed: int
    rows: int
    episodes: int
    mean_return: float
    folder: Path
    recipe: dict[str, Any]


def made(
    task: Task,
    quality: str,
    rows: int,
    seed: int = 0,
    progress: Progress = lambda rows: None,
    tell: Callable[[str], None] = lambda message: None,
) -> Transitions:
    """The first `rows` transitions of a quality, from the store, or generated and stored if possible."""
    if rows < 1:
        raise FovaError(f"{rows} rows of {task.name}/{quality} were asked for, but at least 1 is needed.")
    stored = find(task, quality, seed) if _can_keep(task) else None
    if stored is not None and stored.rows >= rows:
        return sources.load(stored.folder).transitions[:rows]
    episodes = make_episodes(task, quality, rows, seed, progress)
    if _can_keep(task):
        try:
            _keep(episodes, task, quality, seed)
        except OSError as error:
            tell(
                f"{task.name}/{quality} data was made, but could not be kept for the next time ({error}). "
                "Set FOVA_CACHE to a folder that can be written."
            )
    return from_episodes(episodes)[:rows]


def ensure(task: Task, quality: str, rows: int, seed: int = 0, progress: Progress = lambda rows: None) -> Kept:
    """The dataset in the store. It is generated or extended first if needed.

    It holds whole episodes, so it often has a few more rows than requested.
    """
    stored = find(task, quality, seed)
    if stored is not None and stored.rows >= rows:
        return stored
    episodes = make_episodes(task, quality, rows, seed, progress)
    try:
        return _keep(episodes, task, quality, seed)
    except OSError as error:
        raise FovaError(
            f"{task.name}/{quality} data cannot be kept in {store()}: {error}. "
            "Set FOVA_CACHE to a folder that can be written."
        ) from error


def _can_keep(task: Task) -> bool:
    return task.recipe is not None and importlib.util.find_spec("minari") is not None


def make_episodes(
    task: Task, quality: str, rows: int, seed: int, progress: Progress = lambda rows: None
) -> list[Episode]:
    """Whole episodes with at least `rows` rows, straight from the simulator."""
    episodes, have = [], 0
    for episode in task.episodes(quality, rows, seed):
        episodes.append(episode)
        have += len(episode)
        progress(have)
        if have >= rows:
            break
    return episodes


def parse_name(name: str) -> tuple[Task, str]:
    """TASK/QUALITY as a task and one of its qualities."""
    task_name, _, quality = name.partition("/")
    task = registry.get(task_name)
    if quality not in task.qualities:
        raise unknown(f"data of {task_name}", quality, task.qualities, f"For instance: {task_name}/random")
    return task, quality


def is_name(name: str) -> bool:
    """Whether a name is TASK/QUALITY of a known task, not the name of a file."""
    task_name, slash, quality = name.partition("/")
    return bool(slash) and task_name in registry.names() and quality in registry.get(task_name).qualities


# --- The store --------------------------------------------------------------------------------------------


def store() -> Path:
    """The folder of generated datasets."""
    return runtime.cache_directory() / "datasets"


def find(task: Task, quality: str, seed: int = 0) -> Kept | None:
    """The dataset if the store has it and its recipe equals the current one, else None."""
    kept = _read(store() / _dataset_id(task.name, quality, seed))
    return kept if kept is not None and kept.recipe == _recipe(task, quality) else None


def kept() -> list[Kept]:
    """All datasets in the store, including those of older recipes."""
    folders = sorted(file.parents[1] for file in store().glob("*/*/data/metadata.json"))
    return [dataset for folder in folders if (dataset := _read(folder)) is not None]


def _keep(episodes: list[Episode], task: Task, quality: str, seed: int) -> Kept:
    dataset_id = _dataset_id(task.name, quality, seed)
    returns = [float(episode.rewards.sum(dtype=np.float64)) for episode in episodes]
    facts: dict[str, Any] = {
        "task": task.name,
        "quality": quality,
        "seed": seed,
        "rows": sum(map(len, episodes)),
        "episodes": len(episodes),
        "mean_return": float(np.mean(returns)),
        "recipe": _recipe(task, quality),
    }
    metadata = {
        "description": f"{quality} data of {task.name}, made by fova with seed {seed}.",
        "algorithm_name": f"fova {quality} behaviour",
        "fova": json.dumps(facts, sort_keys=True),
    }
    scratch = store() / f".{uuid.uuid4().hex}.unfinished"
    try:
        with _minari_writes_to(scratch):
            written = minari_store.to_minari(episodes, dataset_id, task.space.action, metadata)
        final = store() / dataset_id
        _put(written, final, scratch / "replaced")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Kept(folder=final, **facts)


def _put(written: Path, final: Path, aside: Path) -> None:
    """Move a dataset to its final folder and the previous one aside. Other processes may do the same meanwhile."""
    final.parent.mkdir(parents=True, exist_ok=True)
    aside.mkdir()
    for attempt in range(ATTEMPTS):
        try:
            if final.exists():  # shorter, of an older recipe, or written in the meantime
                final.rename(aside / str(attempt))
            written.rename(final)
            return
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise
    raise FovaError(f"Other processes keep writing {final}. Try again when they are done.")


def _read(folder: Path) -> Kept | None:
    """The dataset in a folder of the store, or None if this version of fova did not write it."""
    file = folder / "data" / "metadata.json"
    if not os.path.isfile(file):  # also without permission to look
        return None
    with decoding(file, "", f"Delete {folder}; it is made again when it is needed."):
        metadata = json.loads(file.read_text(encoding="utf-8"))
        return Kept(folder=folder, **json.loads(metadata["fova"])) if "fova" in metadata else None


def _dataset_id(task_name: str, quality: str, seed: int) -> str:
    return f"{task_name}/{quality}-seed{seed}-v0"


def _recipe(task: Task, quality: str) -> dict[str, Any]:
    """The current recipe, converted to JSON and back so that it can be compared with a stored one."""
    recipe = dict(task.recipe(quality)) if task.recipe else {}
    recipe["versions"] = {name: importlib.metadata.version(name) for name in SIMULATION}
    return dict(json.loads(json.dumps(recipe)))


@contextmanager
def _minari_writes_to(folder: Path) -> Iterator[None]:
    """Make Minari write to `folder`. Minari takes this location only from an environment variable."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    folder.mkdir(parents=True)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before
