"""Checkpoints: everything a run needs to go on, in one file that is either whole or absent.

A checkpoint is one safetensors file with a digest of its contents; no pickle is ever read. The two newest are
kept.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fova.errors import FovaError
from fova.federation.simulation import State
from fova.machine.files import write_atomically

KEPT = 2


def save_checkpoint(directory: Path, state: State) -> Path:
    """Write the state after `state.round` rounds and drop all but the newest checkpoints."""
    tensors = _named_leaves({"broadcast": state.broadcast, "learners": state.learners})
    path = directory / f"round-{state.round:06d}.safetensors"
    # One entry: safetensors writes several in no particular order, and equal runs shall leave equal files.
    about = json.dumps({"round": state.round, "digest": _digest(tensors)})
    write_atomically(path, save(tensors, metadata={"checkpoint": about}))
    for old in checkpoints(directory)[:-KEPT]:
        old.unlink()
    return path


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints there are, oldest first."""
    return sorted(directory.glob("round-*.safetensors"))


def discard_after(directory: Path, rounds: int) -> None:
    """Forget every state later than so many rounds."""
    for path in checkpoints(directory):
        if int(path.stem.removeprefix("round-")) > rounds:
            path.unlink()


def load_checkpoint(directory: Path, like: State) -> State | None:
    """The newest state, shaped `like` a fresh one; None if there is none yet."""
    found = checkpoints(directory)
    if not found:
        return None
    path = found[-1]
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("checkpoint", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError) as error:
        raise _unusable(path, found, str(error)) from error
    if about.get("digest") != _digest(tensors):
        raise _unusable(path, found, "its contents do not match its digest")
    template = {"broadcast": like.broadcast, "learners": like.learners}
    expected = _named_leaves(template)
    for name, leaf in expected.items():
        if name not in tensors or tensors[name].shape != leaf.shape:
            raise _unusable(path, found, f"{name} does not fit the configuration of this run")
    leaves = [tensors[name] for name in expected]
    restored = jax.tree.unflatten(jax.tree.structure(template), leaves)
    return State(int(about["round"]), restored["broadcast"], restored["learners"])


def _named_leaves(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    # np.ascontiguousarray would give a scalar an axis
    return {jax.tree_util.keystr(path): np.asarray(leaf, order="C") for path, leaf in leaves}


def _digest(tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].shape} {tensors[name].dtype}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).data)
    return digest.hexdigest()


def _unusable(path: Path, found: list[Path], reason: str) -> FovaError:
    remedy = (
        f"Move it away and resume again to continue from {found[-2].stem}."
        if len(found) > 1
        else "There is no older one: start the run anew under another name."
    )
    return FovaError(f"The checkpoint {path} cannot be used: {reason}.\n{remedy}")
