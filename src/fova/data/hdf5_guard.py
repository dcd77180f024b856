"""Before an array of an HDF5 file is read: can the file hold what the array declares?

HDF5 takes a damaged or hostile size at its word and fills memory for hours, so sizes are compared with what is
stored. It also follows references into other files, and ends the whole process on an array that refers to itself,
so an array has to be in the file itself. Only headers are looked at here.
"""

import math
from pathlib import Path

import h5py

from fova.data.fields import fault, refuse_bombs

BYTES_PER_CHUNK = 8  # the least that a file spends on the address of one chunk
FEW_CHUNKS = 1000
COPY = "Copy the numbers into this file, as a plain array."


def refuse_links_elsewhere(store: h5py.File, file: Path) -> None:
    """Refuse links into other files, whatever they are called: a name here may lead through any of them."""

    def elsewhere(name: bytes, link: h5py.h5l.LinkInfo) -> bytes | None:
        return None if link.type in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT) else name

    name = store.id.links.visit(elsewhere, info=True)
    if name is not None:
        raise fault(file, name.decode(errors="replace"), f"is a link into another file. {COPY}")


def unwritten(dataset: h5py.Dataset) -> int:
    """How many pieces of an array were never written. HDF5 makes up their values: zeros, as a rule."""
    if not dataset.chunks:
        return 0 if dataset.id.get_storage_size() or not dataset.size else 1
    return _pieces(dataset) - dataset.id.get_num_chunks()


def _pieces(dataset: h5py.Dataset) -> int:
    return math.prod(-(-size // piece) for size, piece in zip(dataset.shape, dataset.chunks))


def refuse_absurd_size(dataset: h5py.Dataset, file: Path, field: str) -> None:
    """Refuse an array that declares more bytes, or more pieces of them, than its file can hold."""
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
