"""Where the clients of a simulation and their rows are: dealt out among the devices of this machine.

All rows lie in one buffer, one client after another. So a federation takes as much memory as it has rows, however
unequal its clients are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

ALIGNMENT = 64  # bytes


class DealtOut(NamedTuple):
    """Clients dealt out among devices."""

    mesh: Mesh
    slots: int  # places for clients, the same number on each device
    first: jax.Device  # where the server is
    split: NamedSharding  # of arrays with a leading axis of clients
    everywhere: NamedSharding  # of arrays that all clients share

    @staticmethod
    def among(clients: int) -> "DealtOut":
        devices, slots = deal_out(clients)
        mesh = jax.make_mesh((len(devices),), ("clients",), axis_types=(AxisType.Auto,), devices=devices)
        split, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("clients",), ()))
        return DealtOut(mesh, slots, devices[0], split, everywhere)


def deal_out(clients: int) -> tuple[list[jax.Device], int]:
    """The smallest set of devices that balances the clients, and the padded number of clients."""
    devices = jax.local_devices()
    each = -(-clients // len(devices))
    used = -(-clients // each)
    return devices[:used], used * each


class Buffer(NamedTuple):
    """The rows of all clients, one after another, on the host."""

    rows: NDArray[np.float32]  # [rows of all clients, width]
    starts: NDArray[np.int64]  # [clients] the first row of each
    lengths: NDArray[np.int64]  # [clients]

    @property
    def longest(self) -> int:
        return int(self.lengths.max())

    @staticmethod
    def of(sizes: Mapping[str, int], width: int, write: Callable[[str, NDArray[np.float32]], None]) -> "Buffer":
        """The rows of clients of these sizes. `write(name, rows)` writes a client's data into its rows."""
        lengths = np.array(list(sizes.values()))
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        rows = aligned((int(lengths.sum()), width))
        for name, start in zip(sizes, starts):
            write(name, rows[start : start + sizes[name]])
        return Buffer(rows, starts, lengths)


def aligned(shape: tuple[int, int]) -> NDArray[np.float32]:
    """An array of zeros that a device of the CPU can use without a copy. JAX copies arrays that are not aligned."""
    size = 4 * shape[0] * shape[1]
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    first = -raw.ctypes.data % ALIGNMENT
    return raw[first : first + size].view(np.float32).reshape(shape)


class Placed(NamedTuple):
    """A cohort's rows on the devices."""

    rows: Any  # [rows, width], the same on all devices; or [devices, rows, width], each device's own
    starts: Any  # [slots] int32
    lengths: Any  # [slots] int32

    @property
    def shared(self) -> bool:
        """Whether all devices see the same rows."""
        return bool(self.rows.ndim == 2)


def place(buffer: Buffer, members: Sequence[int], devices: "DealtOut") -> Placed:
    """Bring the rows of a cohort to the devices.

    Devices of a CPU share the host's memory: all of them use the one buffer, and nothing is copied. Devices with
    memory of their own get the rows of their own clients, padded to the largest number of rows on one device.
    """
    lengths = buffer.lengths[list(members)].astype(np.int32)
    if devices.first.platform == "cpu":
        rows = jax.device_put(buffer.rows, devices.everywhere)
        starts = buffer.starts[list(members)].astype(np.int32)
    else:
        own, starts = _own_rows(buffer, members, devices)
        rows = jax.device_put(own, devices.split)
    return Placed(rows, *jax.device_put((starts, lengths), devices.split))


def _own_rows(
    buffer: Buffer, members: Sequence[int], devices: "DealtOut"
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The rows of each device's clients, [devices, rows, width], and where each slot's rows start there."""
    count = devices.mesh.size
    slots = np.array_split(np.asarray(members), count)
    starts, used = [], []
    for each in slots:
        first = dict.fromkeys(each.tolist(), 0)
        position = 0
        for client in first:
            first[client] = position
            position += int(buffer.lengths[client])
        starts.append([first[client] for client in each.tolist()])
        used.append(first)
    capacity = max(sum(int(buffer.lengths[client]) for client in first) for first in used)
    rows = np.zeros((count, capacity, buffer.rows.shape[1]), np.float32)
    for device, first in enumerate(used):
        for client, position in first.items():
            begin, length = int(buffer.starts[client]), int(buffer.lengths[client])
            rows[device, position : position + length] = buffer.rows[begin : begin + length]
    return rows, np.concatenate(starts).astype(np.int32)
