"""Before an array of an HDF5 file is read: can the file hold what the array declares?

HDF5 takes a damaged or hostile size at its word and fills memory for hours, so sizes are compared with what is
stored. Only headers are looked at here.
"""

import math
from pathlib import Path

import h5py

from fova.data.fields import fault, refuse_bombs

BYTES_PER_CHUNK = 8  # the least that a file spends on the address of one chunk
FEW_CHUNKS = 1000


def refuse_absurd_size(dataset: h5py.Dataset, file: Path, field: str) -> None:
    """Refuse an array that declares more bytes, or more pieces of them, than its file can hold."""
    if dataset.shape is None:
        raise fault(file, field, "is not an array. Store one row per step.")
    refuse_bombs(file, field, dataset.nbytes, stored_bytes=dataset.id.get_storage_size())
    if dataset.chunks:
        chunks = math.prod(-(-size // piece) for size, piece in zip(dataset.shape, dataset.chunks))
        if chunks > max(file.stat().st_size // BYTES_PER_CHUNK, FEW_CHUNKS):
            problem = f"declares {chunks:,} pieces, more than can be there"
            raise fault(file, field, f"{problem}. Fetch or write the file again.")
