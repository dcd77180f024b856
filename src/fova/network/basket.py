"""The answers of a round, until the round is judged.

A few are kept in memory. The answers of a large round wait on the server's disk, each in a file of its own, so that
memory does not grow with the number of clients. Nothing of them is left when the round is over.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from safetensors.numpy import load_file, save_file

from fova.algorithms.base import Submission, replace
from fova.federation.wire import from_named_arrays, named_arrays


class Basket:
    """Submissions by the names of their clients. With a folder, their parameters wait there."""

    def __init__(self, folder: Path | None = None) -> None:
        """What an earlier attempt left in the folder is removed."""
        self.folder = folder
        self._kept: dict[str, Submission] = {}  # without parameters, if these are on disk
        self._files: dict[str, Path] = {}
        self.clear()
        if folder is not None:
            folder.mkdir()

    def clear(self) -> None:
        """Drop all answers."""
        self._kept, self._files = {}, {}
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __len__(self) -> int:
        return len(self._kept)

    def names(self) -> list[str]:
        """The clients whose answers are here, in the order of their names."""
        return sorted(self._kept)

    def put(self, name: str, sent: Submission) -> None:
        if self.folder is None:
            self._kept[name] = sent
            return
        self._files[name] = self.folder / f"{len(self._files):06d}.safetensors"
        arrays = {at: np.asarray(array, order="C") for at, array in named_arrays(sent.parameters).items()}
        save_file(arrays, self._files[name])
        self._kept[name] = replace(sent, parameters=jax.tree.map(_shape, sent.parameters))

    def stacked(self, names: Sequence[str]) -> Submission:
        """The submissions of these clients along a leading axis."""
        return jax.tree.map(lambda *leaves: np.stack(leaves), *map(self._get, names))

    def _get(self, name: str) -> Submission:
        if self.folder is None:
            return self._kept[name]
        sent = self._kept[name]
        return replace(sent, parameters=from_named_arrays(load_file(self._files[name]), sent.parameters))


def _shape(leaf: np.ndarray) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
