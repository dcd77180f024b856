"""Checkpoints: everything a run needs to continue, in one file that is either whole or absent.

A checkpoint is one safetensors file with a digest of its contents and of the configuration it belongs to; no pickle
is ever read. The two newest are kept.

If several processes hold the clients, each of them first writes the learners of its own clients to a separate file
(`save_share`). The checkpoint itself is written last and names these files, so it is still either whole or absent.
Any number of processes can continue from it, however many wrote it.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fova.errors import FovaError
from fova.federation.engine import State
from fova.machine.files import insist_on_regular, write_atomically

FORMAT = 2
KEPT = 2


class Rows(NamedTuple):
    """The clients whose learners a process holds."""

    own: range
    clients: int  # of the whole federation


def save_checkpoint(directory: Path, state: State, belongs_to: str = "", shares: Sequence[range] = ()) -> Path:
    """Write the state after `state.round` rounds and drop all but the newest checkpoints.

    `belongs_to` is a digest of the configuration: a run of another configuration refuses the checkpoint. `shares`
    are the clients of each process, if every process has saved its own share before.
    """
    learners = () if shares else state.learners
    about = {"memo": dict(state.memo)} | ({"shares": [[s.start, s.stop] for s in shares]} if shares else {})
    path = directory / f"round-{state.round:06d}.safetensors"
    _write(path, _shared(state) | {"learners": learners}, state.round, belongs_to, about)
    for old in checkpoints(directory)[:-KEPT]:
        old.unlink()
    kept = {path.stem.removeprefix("round-") for path in checkpoints(directory)}
    for share in _shares(directory):
        if share.stem.split("-")[1] not in kept:
            share.unlink()
    return path


def save_share(directory: Path, state: State, belongs_to: str, own: range) -> None:
    """Write the learners of this process's clients, for the checkpoint that is written next."""
    path = _share(directory, state.round, own.start)
    _write(path, {"learners": state.learners}, state.round, belongs_to, {"memo": {}})


def _write(path: Path, tree: Any, rounds: int, belongs_to: str, more: dict[str, Any]) -> None:
    tensors = _named_leaves(tree)
    # One entry: safetensors writes several in no particular order, and equal runs shall leave equal files.
    about = {"format": FORMAT, "round": rounds, "belongs_to": belongs_to, **more, "digest": _digest(tensors)}
    write_atomically(path, save(tensors, metadata={"checkpoint": json.dumps(about)}))


def _share(directory: Path, rounds: int, first: int) -> Path:
    return directory / f"share-{rounds:06d}-{first:07d}.safetensors"


def _shares(directory: Path) -> list[Path]:
    return sorted(directory.glob("share-*.safetensors"))


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(directory.glob("round-*.safetensors"))


def discard_after(directory: Path, rounds: int) -> None:
    """Delete every checkpoint of a later round."""
    for path in [*checkpoints(directory), *_shares(directory)]:
        if int(path.stem.split("-")[1]) > rounds:
            path.unlink()


def load_checkpoint(directory: Path, like: State, belongs_to: str = "", rows: Rows | None = None) -> State | None:
    """The newest state, shaped `like` a fresh one; None if there is none yet.

    `rows` says whose learners these are, if this process holds only some of the clients.
    """
    found = checkpoints(directory)
    if not found:
        return None
    path = found[-1]
    try:
        about, tensors = _read(path)
        _insist_on_whole(path, about, tensors, belongs_to)
        template = _shared(like)
        if not any(name.startswith("['average']") for name in tensors):
            template["average"] = ()  # the run took the last policy until now
        restored = _restored(template, tensors)
        learners = _learners(like.learners, _held(directory, about, tensors, belongs_to), rows)
    except (OSError, ValueError, SafetensorError) as error:
        raise _unusable(path, found, str(error)) from error
    return State(round=about["round"], memo=about["memo"], learners=learners, **restored)


def _shared(state: State) -> dict[str, Any]:
    """The arrays of a state that do not belong to single clients."""
    return {"server": state.server, "average": state.average}


def _held(
    directory: Path, about: dict[str, Any], tensors: dict[str, np.ndarray], belongs_to: str
) -> Iterator[tuple[range | None, dict[str, np.ndarray]]]:
    """The learners in a checkpoint: all at once (None), or one process's clients after another's."""
    if "shares" not in about:
        yield None, tensors
        return
    for start, stop in about["shares"]:
        path = _share(directory, about["round"], start)
        told, held = _read(path)
        _insist_on_whole(path, told, held, belongs_to)
        yield range(start, stop), held


def _learners(like: Any, parts: Iterator[tuple[range | None, dict[str, np.ndarray]]], rows: Rows | None) -> Any:
    """The learners of this process's clients, from the parts of a checkpoint that hold them."""
    template = _named_leaves({"learners": like})
    clients = len(next(iter(template.values()))) if template else 0
    own, everybody = rows or Rows(range(clients), clients)
    restored = {name: np.empty_like(leaf) for name, leaf in template.items()}
    reached = 0
    for held, tensors in parts:
        if held is None and rows is None:  # the usual case, without a copy
            return _restored({"learners": like}, tensors)["learners"]
        held = range(everybody) if held is None else held
        wanted = range(max(own.start, held.start), min(own.stop, held.stop))
        for name, leaf in restored.items():
            _insist_on_fit(name, tensors, (len(held), *leaf.shape[1:]), leaf.dtype)
            here = tensors[name][wanted.start - held.start : wanted.stop - held.start]
            leaf[wanted.start - own.start : wanted.stop - own.start] = here
        reached = held.stop if held.start == reached else -1
    if reached != everybody:
        raise ValueError(f"its shares are not those of {everybody:,} clients")
    return jax.tree.unflatten(jax.tree.structure(like), list(restored.values()))


def _restored(template: Any, tensors: dict[str, np.ndarray]) -> Any:
    expected = _named_leaves(template)
    for name, leaf in expected.items():
        _insist_on_fit(name, tensors, leaf.shape, leaf.dtype)
    return jax.tree.unflatten(jax.tree.structure(template), [tensors[name] for name in expected])


def _insist_on_fit(name: str, tensors: dict[str, np.ndarray], shape: tuple[int, ...], dtype: Any) -> None:
    if name not in tensors or (tensors[name].shape, tensors[name].dtype) != (shape, dtype):
        raise ValueError(f"{name} does not fit the configuration of this run")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with safe_open(insist_on_regular(path), framework="numpy") as file:
        about = json.loads((file.metadata() or {}).get("checkpoint", "{}"))
        if not isinstance(about, dict):
            raise ValueError("its description is not a table")
        if about.get("format") != FORMAT:
            raise ValueError(
                f"it has format {about.get('format', 1)}, this version of fova reads format {FORMAT}. The policy "
                "beside it can still be loaded and played; training has to start again"
            )
        return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _insist_on_whole(path: Path, about: dict[str, Any], tensors: dict[str, np.ndarray], belongs_to: str) -> None:
    if about.get("digest") != _digest(tensors):
        raise ValueError("its contents do not match its digest")
    number = about.get("round")
    if not isinstance(number, int) or path.stem.split("-")[1] != f"{number:06d}":
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
        else "There is no older one: start a new run under another name."
    )
    return FovaError(f"The checkpoint {path} cannot be used: {reason}.\n{remedy}")
