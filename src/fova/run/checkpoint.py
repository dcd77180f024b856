"""Checkpoints: everything a run needs to go on, in one file that is either whole or absent.

A checkpoint is one safetensors file with a digest of its contents and of the configuration it belongs to; no pickle
is ever read. The two newest are kept.
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
from fova.federation.engine import State
from fova.machine.files import insist_on_regular, write_atomically

FORMAT = 2
KEPT = 2


def save_checkpoint(directory: Path, state: State, belongs_to: str = "") -> Path:
    """Write the state after `state.round` rounds and drop all but the newest checkpoints.

    `belongs_to` is a digest of the configuration: a run of another configuration refuses the checkpoint.
    """
    tensors = _named_leaves(_parts(state))
    path = directory / f"round-{state.round:06d}.safetensors"
    # One entry: safetensors writes several in no particular order, and equal runs shall leave equal files.
    about = {
        "format": FORMAT,
        "round": state.round,
        "belongs_to": belongs_to,
        "memo": dict(state.memo),
        "digest": _digest(tensors),
    }
    write_atomically(path, save(tensors, metadata={"checkpoint": json.dumps(about)}))
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


def load_checkpoint(directory: Path, like: State, belongs_to: str = "") -> State | None:
    """The newest state, shaped `like` a fresh one; None if there is none yet."""
    found = checkpoints(directory)
    if not found:
        return None
    path = found[-1]
    try:
        about, tensors = _read(path)
        _insist_on_whole(path, about, tensors, belongs_to)
        template = _parts(like)
        if not any(name.startswith("['average']") for name in tensors):
            template["average"] = ()  # the run took the last policy until now
        expected = _named_leaves(template)
        for name, leaf in expected.items():
            if name not in tensors or (tensors[name].shape, tensors[name].dtype) != (leaf.shape, leaf.dtype):
                raise ValueError(f"{name} does not fit the configuration of this run")
    except (OSError, ValueError, SafetensorError) as error:
        raise _unusable(path, found, str(error)) from error
    restored = jax.tree.unflatten(jax.tree.structure(template), [tensors[name] for name in expected])
    return State(round=about["round"], memo=about["memo"], **restored)


def _parts(state: State) -> dict[str, Any]:
    """The parts of a state that are arrays."""
    return {"server": state.server, "learners": state.learners, "average": state.average}


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with safe_open(insist_on_regular(path), framework="numpy") as file:
        about = json.loads((file.metadata() or {}).get("checkpoint", "{}"))
        if not isinstance(about, dict):
            raise ValueError("its description is not a table")
        if about.get("format") != FORMAT:
            raise ValueError(
                f"it has format {about.get('format', 1)}, this version of fova reads format {FORMAT}. The policy "
                "beside it can still be loaded and played; training has to start anew"
            )
        return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _insist_on_whole(path: Path, about: dict[str, Any], tensors: dict[str, np.ndarray], belongs_to: str) -> None:
    if about.get("digest") != _digest(tensors):
        raise ValueError("its contents do not match its digest")
    number = about.get("round")
    if not isinstance(number, int) or path.stem != f"round-{number:06d}":
        raise ValueError(f"it holds round {number!r}, which is not what its name says")
    if not isinstance(about.get("memo"), dict):
        raise ValueError("its description has no table of what the engine remembers")
    if about.get("belongs_to") != belongs_to:
        raise ValueError(
            "it belongs to another configuration. Was config.toml changed? A run keeps its seed, algorithm and "
            "settings; start another one with `fova train --config config.toml --name NEW`"
        )


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
