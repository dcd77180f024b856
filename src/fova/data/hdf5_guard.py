"""Checks of HDF5 arrays before they are read: can the file hold what the array declares?

HDF5 trusts a damaged or hostile size and fills memory for hours, so these checks compare declared sizes with stored
sizes. HDF5 also follows references into other files, and crashes the whole process on an array that refers to
itself, so every array must be stored in the file itself. Only headers are read here.
"""

import math
from pathlib import Path

import h5py

from fova.data.fields import fault, refuse_bombs

BYTES_PER_CHUNK = 8  # minimum size of the address of one chunk in a file
FEW_CHUNKS = 1000
COPY = "Copy the numbers into this file, as a plain array."


def refuse_links_elsewhere(store: h5py.File, file: Path) -> None:
    """Refuse all links into other files. A field's name may lead through any of them."""

    def elsewhere(name: bytes, link: h5py.h5l.LinkInfo) -> bytes | None:
        return None if link.type in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT) else name

    name = store.id.links.visit(elsewhere, info=True)
    if name is not None:
        raise fault(file, name.decode(errors="replace"), f"is a link into another file. {COPY}")


def unwritten(dataset: h5py.Dataset) -> int:
    """Number of chunks of an array that were never written. HDF5 returns a fill value for them, usually 0."""
    if not dataset.chunks:
        return 0 if dataset.id.get_storage_size() or not dataset.size else 1
    return _pieces(dataset) - dataset.id.get_num_chunks()


def _pieces(dataset: h5py.Dataset) -> int:
    return math.prod(-(-size // piece) for size, piece in zip(dataset.shape, dataset.chunks))


def refuse_absurd_size(dataset: h5py.Dataset, file: Path, field: str) -> None:
    """Refuse an array that declares more bytes or more chunks than its file can hold."""
    if dataset.shape is None:
        raise fault(file, field, "is not an array. Store one row per step.")
    if dataset.is_virtual or dataset.external:
        kind = "a virtual dataset" if dataset.is_virtual else "stored outside the file"
        raise fault(file, field, f"is {kind}, so its numbers are elsewhere. {COPY}")
    refuse_bombs(file, field, dataset.nbytes, stored_bytes=dataset.id.get_storage_size())
    if dataset.chunks:
        chunks = _pieces(dataset)
        if chunks > max(file.stat().st_size // BYTES_PER_CHUNK, FEW_CHUNKS):
            problem = f"declares {chunks:,} pieces, more than can be there"
            raise fault(file, field, f"{problem}. Fetch or write the file again.")
