"""Four episodes small enough to know by heart, and each format's own library to write them with.

Observation o of episode e, step t is (10 e + t, -t); the action there is (0.1 t + 0.01 e, -0.5); its reward is
e + t. Episodes 0 and 2 end, episodes 1 and 3 break off.
"""

from dataclasses import fields
from pathlib import Path

import h5py
import numpy as np

from fova.data.transitions import Episode, Transitions

STEPS = (3, 2, 1, 1)
LOW, HIGH = [-1.0, -1.0], [1.0, 1.0]


def episode(number: int) -> Episode:
    steps = STEPS[number]
    t = np.arange(steps + 1, dtype=np.float32)
    return Episode(
        observations=np.stack([10 * number + t, -t], axis=1),
        actions=np.stack([0.1 * t[:-1] + 0.01 * number, np.full(steps, -0.5)], axis=1).astype(np.float32),
        rewards=(number + t[:-1]).astype(np.float32),
        terminated=number in (0, 2),
    )


def episodes() -> list[Episode]:
    return [episode(number) for number in range(len(STEPS))]


def columns() -> dict[str, np.ndarray]:
    """The episodes as flat arrays, put together without the package's help."""
    those = episodes()
    last = [np.arange(len(one)) == len(one) - 1 for one in those]
    return {
        "observations": np.concatenate([one.observations[:-1] for one in those]),
        "actions": np.concatenate([one.actions for one in those]),
        "rewards": np.concatenate([one.rewards for one in those]),
        "next_observations": np.concatenate([one.observations[1:] for one in those]),
        "terminals": np.concatenate([last[n] & one.terminated for n, one in enumerate(those)]),
        "timeouts": np.concatenate([last[n] & (not one.terminated) for n, one in enumerate(those)]),
    }


def assert_same(one: Transitions, other: Transitions) -> None:
    for field in fields(Transitions):
        left, right = getattr(one, field.name), getattr(other, field.name)
        np.testing.assert_array_equal(left, right, err_msg=field.name)
        assert left.dtype == right.dtype, field.name


# --- Writers -----------------------------------------------------------------------------------------------


def write_npz(file: Path, **changes) -> Path:
    """The episodes as NPZ; a change of None takes an array away."""
    np.savez(file, **_changed(columns(), changes))
    return file


def write_hdf5(file: Path, **changes) -> Path:
    with h5py.File(file, "w") as store:
        for name, values in _changed(columns(), changes).items():
            store.create_dataset(name.replace("__", "/"), data=values)
    return file


def parquet_columns() -> dict[str, object]:
    flat = columns()
    named = {f"observation_{n}": flat["observations"][:, n] for n in range(2)}
    named |= {f"action_{n}": flat["actions"][:, n] for n in range(2)}
    named |= {f"next_observation_{n}": flat["next_observations"][:, n] for n in range(2)}
    return named | {"reward": flat["rewards"], "terminal": flat["terminals"], "truncated": flat["timeouts"]}


def write_parquet(file: Path, metadata: dict | None = None, **changes) -> Path:
    import pyarrow
    import pyarrow.parquet

    content = pyarrow.table(_changed(parquet_columns(), changes))
    pyarrow.parquet.write_table(content.replace_schema_metadata(metadata), file)
    return file


def write_minari(dataset_id: str, data_format: str = "hdf5", changes: dict | None = None, **spaces) -> Path:
    """The episodes as Minari's own writer stores them; `changes` replaces arrays of episode 0."""
    import warnings

    import minari
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer

    buffers = []
    for number, one in enumerate(episodes()):
        last = np.arange(len(one)) == len(one) - 1
        arrays = {
            "observations": one.observations,
            "actions": one.actions,
            "rewards": one.rewards,
            "terminations": last & one.terminated,
            "truncations": last & (not one.terminated),
        }
        buffers.append(EpisodeBuffer(**(arrays | (changes or {} if number == 0 else {}))))
    spaces = {
        "observation_space": Box(-np.inf, np.inf, (2,), np.float32),
        "action_space": Box(-1, 1, (2,), np.float32),
    } | spaces
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari asks for an author, a description and so on
        minari.create_dataset_from_buffers(dataset_id, buffers, data_format=data_format, **spaces)
    return minari.storage.get_dataset_path(dataset_id)


def write_folder(folder: Path) -> Path:
    """One NPZ file per episode, each with its final observation."""
    folder.mkdir()
    for number, one in enumerate(episodes()):
        ended = np.zeros(len(one), bool)
        ended[-1] = one.terminated
        file = folder / f"episode_{number}.npz"
        np.savez(file, observations=one.observations, actions=one.actions, rewards=one.rewards, terminals=ended)
    return folder


def _changed(arrays: dict, changes: dict) -> dict:
    return {name: values for name, values in (arrays | changes).items() if values is not None}
