"""Minari datasets on this machine, read and written with `minari` (pip install 'fova[minari]').

A dataset is named by its id (`hopper/expert-v0`, looked up in Minari's dataset folder) or by its own folder. It is
downloaded only on request. No environment is ever built from a dataset's metadata.
"""

import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from fova.data.fields import counted, decoding, fault
from fova.data.hdf5_guard import refuse_absurd_size, refuse_links_elsewhere
from fova.data.memory import refuse_too_large
from fova.data.paths import refuse_special_members
from fova.data.rows import Table, joined, table
from fova.data.transitions import Episode, Transitions
from fova.errors import FovaError
from fova.spaces import ActionSpace, Discrete

if TYPE_CHECKING:
    import gymnasium
    import minari

REMEDY = "It is damaged or was not written by Minari: fetch or write the dataset again."
TEXTS = ("dataset_id", "minari_version", "data_format", "observation_space", "action_space")
FORMATS = ("hdf5", "arrow", "parquet")
NO_DATA = ["_", ".", "metadata.json"]  # name prefixes of files that hold no episode
NAMES = "action_names"  # key of metadata.json
ID = re.compile(r"[\w-]+(/[\w-]+)*-v\d+")


def looks_like_id(name: str) -> bool:
    """Whether a name can be a Minari id: words separated by slashes, with a version at the end."""
    return ID.fullmatch(name) is not None


def is_dataset(folder: Path) -> bool:
    """Whether a folder holds a Minari dataset."""
    return _data_folder(folder) is not None


# --- Reading -----------------------------------------------------------------------------------------------


def find(dataset_id: str, download: bool) -> Path:
    """The folder of a dataset. A missing dataset is fetched from Minari's server if `download` is set."""
    library = _minari()
    folder = library.storage.get_dataset_path(dataset_id)
    if not is_dataset(folder) and download:
        with decoding(dataset_id, "", "Check the id and the connection."):
            library.download_dataset(dataset_id)
    if not is_dataset(folder):
        raise FovaError(
            f"There is no file {dataset_id!r} here, nor a Minari dataset in {library.storage.get_dataset_path()}. "
            "Check the spelling, or ask for it to be downloaded (download=True; --download on the command line)."
        )
    return folder


def read_table(folder: Path) -> Table:
    """The steps of all episodes of the Minari dataset in a folder."""
    library = _minari()
    data = _data_folder(folder)
    if data is None:
        raise fault(folder, "metadata.json", f"is missing. {REMEDY}")
    refuse_special_members(data)
    declared_rows = _check_metadata(data, folder, library)
    with decoding(folder, "", REMEDY):
        dataset = library.MinariDataset(data)
    parts = _observation_parts(dataset.observation_space, folder)
    declared = _declared_actions(dataset, folder)
    tables, labels = [], []
    given_rows = 0
    for number, episode in enumerate(_episodes(dataset, folder)):
        given_rows += np.size(episode.rewards) + 1
        label = f"{folder}: episode {number}"
        if np.size(episode.rewards):
            tables.append(_episode_table(episode, parts, declared, label))
            labels.append(label)
    if declared_rows not in (None, given_rows):
        problem = f"hold {declared_rows:,} rows, of which Minari gave {given_rows:,}"
        raise fault(folder, "episodes", f"{problem}. Store each episode as one record batch, or in HDF5.")
    if not tables:
        raise fault(folder, "rewards", "is empty in every episode: there is no step. Leave this dataset out.")
    notes = [f"Observations are these parts, laid end to end: {', '.join(parts)}."] if parts else []
    empty = dataset.total_episodes - len(tables)
    notes += [f"Left out: {counted(empty, 'episode')} without a single step."] if empty else []
    return joined(tables, labels).noting(notes)


def _minari() -> Any:
    try:
        import minari
    except ImportError as error:
        raise FovaError("Minari datasets need minari. Install it: pip install 'fova[minari]'") from error
    return minari


def _data_folder(folder: Path) -> Path | None:
    """The folder with the dataset's files: the subfolder `data`, or `folder` itself. None if neither has them."""
    return next((f for f in (folder / "data", folder) if (f / "metadata.json").is_file()), None)


def _check_metadata(data: Path, folder: Path, library: Any) -> int | None:
    """Refuse metadata that would make Minari build an environment, or read far more than the files hold.

    Returns the number of rows in the files, final observations included, or None if the headers do not give it.
    """
    with decoding(folder, "metadata.json", REMEDY):
        metadata = json.loads((data / "metadata.json").read_text(encoding="utf-8"))
    if not isinstance(metadata, dict):
        raise fault(folder, "metadata.json", f"holds no table of names and values. {REMEDY}")
    for field, kind in (*dict.fromkeys(TEXTS, str).items(), ("total_episodes", int)):
        if not isinstance(metadata.get(field), kind):
            given = repr(metadata[field])[:80] if field in metadata else "missing"
            raise fault(folder, field, f"is {given} in metadata.json. {REMEDY}")
    version, kind_of_file = metadata["minari_version"], metadata["data_format"]
    if version not in library.supported_dataset_versions:
        problem = f"is {version}, which Minari {library.__version__} cannot read. Install the Minari that can."
        raise fault(folder, "minari_version", problem)
    if kind_of_file not in FORMATS:
        raise fault(folder, "data_format", f"is {kind_of_file!r}, but must be one of {', '.join(FORMATS)}.")
    columns = 0
    for field in ("observation_space", "action_space"):
        with decoding(folder, field, REMEDY):
            space = library.serialization.deserialize_space(metadata[field])
            columns += sum(math.prod(part.shape or ()) for part in _parts(space).values())
    if metadata["total_episodes"] < 1:
        raise fault(folder, "total_episodes", "is not 1 or more: there is no episode. Leave this dataset out.")
    if kind_of_file == "hdf5":
        _check_sizes(data / "main_data.hdf5", metadata["total_episodes"], folder)
        return None
    rows = _count_rows(data, kind_of_file, metadata["total_episodes"], folder)
    refuse_too_large(folder, 4 * columns * rows, columns * rows)
    return rows


def _count_rows(data: Path, kind_of_file: str, episodes: int, folder: Path) -> int:
    """Number of rows that the episodes declare. Each episode has its own folder. Only headers are read."""
    try:
        from pyarrow.dataset import dataset
    except ImportError as error:
        remedy = "Install it: pip install 'fova[tables]'"
        raise FovaError(f"{folder}: reading Minari data in {kind_of_file} needs pyarrow. {remedy}") from error
    rows = 0
    for number in range(episodes):
        with decoding(folder, f"episode {number}", REMEDY):
            files = dataset(str(data / str(number)), format=kind_of_file, ignore_prefixes=NO_DATA)
            found = files.count_rows()
        if not found:
            raise fault(folder, f"episode {number}", f"holds no rows. {REMEDY}")
        rows += found
    return rows


def _check_sizes(file: Path, episodes: int, folder: Path) -> None:
    sizes: list[tuple[int, int]] = []

    def check(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            refuse_absurd_size(item, file, name)
            sizes.append((item.nbytes, item.size))

    with decoding(folder, file.name, REMEDY), h5py.File(file, "r") as store:
        refuse_links_elsewhere(store, file)
        store.visititems(check)
        held = len(store)
    refuse_too_large(folder, sum(size for size, _ in sizes), sum(numbers for _, numbers in sizes))
    if episodes != held:
        raise fault(folder, "total_episodes", f"is {episodes:,}, but {file.name} holds {held:,}. {REMEDY}")


def _observation_parts(space: "gymnasium.Space", folder: Path) -> list[str]:
    """The names of the parts of an observation; empty if it is one vector."""
    from gymnasium import spaces

    if not _parts(space):
        raise fault(folder, "observation_space", f"has no parts. {REMEDY}")
    for name, part in _parts(space).items():
        if not isinstance(part, spaces.Box) or len(part.shape) != 1:
            raise fault(
                folder, "observation_space", f"{name} is {part}, but vectors (a Box with one axis) are needed."
            )
    return list(space.spaces) if isinstance(space, spaces.Dict) else []


def _parts(space: "gymnasium.Space") -> Mapping[str, "gymnasium.Space"]:
    """The parts of a space by name."""
    from gymnasium import spaces

    return space.spaces if isinstance(space, spaces.Dict) else {"observations": space}


def _declared_actions(dataset: "minari.MinariDataset", folder: Path) -> dict[str, Any]:
    """The bounds of continuous actions, or the first code and the names of discrete ones."""
    from gymnasium import spaces

    space = dataset.action_space
    if isinstance(space, spaces.Discrete):
        names = dataset.storage.metadata.get(NAMES)
        if names is not None and (not isinstance(names, list) or len(names) != space.n):
            raise fault(folder, NAMES, f"is {names!r} in metadata.json, but must be a list of {space.n} names.")
        return {"first_code": space.start, "action_names": names or [str(space.start + i) for i in range(space.n)]}
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        needed = "one vector of continuous actions (a Box with one axis) or one discrete action is needed"
        raise fault(folder, "action_space", f"is {space}, but {needed}.")
    if np.isfinite(space.low).all() and np.isfinite(space.high).all():
        return {"action_low": space.low, "action_high": space.high}
    return {}


def _episodes(dataset: "minari.MinariDataset", folder: Path) -> Iterator["minari.EpisodeData"]:
    with decoding(folder, "episodes", REMEDY):
        episodes = iter(dataset.iterate_episodes())
    for number in range(dataset.total_episodes):
        with decoding(folder, f"episode {number}", REMEDY):
            episode = next(episodes)
        yield episode


def _episode_table(
    episode: "minari.EpisodeData", parts: Sequence[str], declared: Mapping[str, Any], label: str
) -> Table:
    observations = episode.observations
    if parts:
        with decoding(label, "observations", REMEDY):
            observations = np.concatenate([observations[part] for part in parts], axis=1)
    shape, steps = np.shape(observations), np.size(episode.rewards)
    if shape[:1] != (steps + 1,):
        given = f"has shape {shape}, but there are {counted(steps, 'reward')}"
        raise fault(label, "observations", f"{given}. Minari stores one observation more than rewards.")
    declared = dict(declared)
    actions = episode.actions
    if "action_names" in declared:
        with decoding(label, "actions", REMEDY):
            actions = np.reshape(actions, (-1, 1)) - declared.pop("first_code")
    columns = {
        "rewards": episode.rewards,
        "observations": observations[:-1],
        "actions": actions,
        "terminals": episode.terminations,
        "timeouts": episode.truncations,
        "next_observations": observations[1:],
    }
    return table({**columns, **declared}, {"terminals": "terminations", "timeouts": "truncations"}, label)


# --- Writing -----------------------------------------------------------------------------------------------


def to_minari(
    data: Transitions | Iterable[Episode],
    dataset_id: str,
    action: ActionSpace,
    metadata: Mapping[str, Any] | None = None,
    env_spec: "gymnasium.envs.registration.EnvSpec | None" = None,
) -> Path:
    """Write a Minari dataset and return its folder. The write is atomic and never replaces another dataset.

    The names of discrete actions are kept in metadata.json as `action_names`.

    `metadata` is added to Minari's own fields in the dataset's metadata.json. Minari knows `description`,
    `algorithm_name`, `code_permalink`, and the sets of names `author` and `author_email`.
    """
    library = _minari()
    if not looks_like_id(dataset_id):
        raise FovaError(f"{dataset_id!r} is not a Minari id. Use words, slashes and a version: hopper/expert-v0.")
    with decoding(dataset_id, "", "Use longer words."):
        library.dataset.minari_dataset.parse_dataset_id(dataset_id)
    folder = library.storage.get_dataset_path(dataset_id)
    if folder.exists():
        raise FovaError(
            f"There is a Minari dataset {dataset_id!r} already, in {folder}. Delete it or use a new version."
        )
    unfinished = library.storage.get_dataset_path() / f".{uuid.uuid4().hex}.unfinished"
    try:
        unfinished.mkdir()
        _write(data, unfinished / "data", dataset_id, action, metadata or {}, env_spec)
        _make_namespace(dataset_id)
        os.rename(unfinished, folder)
    except OSError as error:
        raise fault(
            folder, "", f"cannot be written ({error.strerror or error}). Is there room, and permission?"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _write(
    data: Transitions | Iterable[Episode],
    folder: Path,
    dataset_id: str,
    action: ActionSpace,
    metadata: Mapping[str, Any],
    env_spec: "gymnasium.envs.registration.EnvSpec | None",
) -> None:
    from gymnasium import spaces
    from minari import __version__
    from minari.dataset.minari_storage import MinariStorage

    episodes = data.episodes() if isinstance(data, Transitions) else list(data)
    if not episodes:
        raise FovaError(f"There is nothing to write as {dataset_id!r}: no episode was given.")
    storage = MinariStorage.new(
        folder,
        observation_space=spaces.Box(-np.inf, np.inf, episodes[0].observations.shape[1:], np.float32),
        action_space=_gymnasium_space(action),
        env_spec=env_spec,
    )
    names = {NAMES: list(action.names)} if isinstance(action, Discrete) else {}
    storage.update_metadata({"dataset_id": dataset_id, "minari_version": __version__, **names, **metadata})
    storage.update_episodes(_buffer(episode, isinstance(action, Discrete)) for episode in episodes)


def _gymnasium_space(action: ActionSpace) -> "gymnasium.Space":
    from gymnasium import spaces

    if isinstance(action, Discrete):
        return spaces.Discrete(action.count)
    low, high = action.bounds
    return spaces.Box(low, high, dtype=np.float32)


def _buffer(episode: Episode, discrete: bool) -> Any:
    from minari.data_collector import EpisodeBuffer

    last = np.arange(len(episode)) == len(episode) - 1
    return EpisodeBuffer(
        observations=episode.observations,
        actions=episode.actions[:, 0].astype(np.int64) if discrete else episode.actions,
        rewards=episode.rewards,
        terminations=last & episode.terminated,
        truncations=last & (not episode.terminated),
    )


def _make_namespace(dataset_id: str) -> None:
    from minari.namespace import create_namespace, list_local_namespaces

    namespace = dataset_id.rpartition("/")[0]
    if namespace and namespace not in list_local_namespaces():
        create_namespace(namespace)
