"""Several processes that compute one federation together, on JAX's own multi-process runtime.

Each process joins once (`join`). Afterwards all processes call the same functions of `Cluster` in the same order:
`gather` gives every process what each of them said, `add` the sum of their vectors. On CPUs, Gloo carries the
bytes; on GPUs, NCCL does. A process that fails says so with `end`, and the others stop where they wait for it. If a
process dies without a word, they find its connection closed, or JAX ends them when its heartbeats stay away.

Whoever reaches the ports of these processes can disturb them: use them in a network that you trust.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError
from fova.machine import runtime

LOST_AFTER = 60  # seconds without a heartbeat
STARTS_WITHIN = 300  # seconds between the first process and the last one
FRAME = 256  # bytes of a message that fits into the first exchange, its length included
LENGTH = 8  # bytes
END = "end"

_processes = 1


class Ended(FovaError):
    """Another process of the federation has failed, and its words are the message."""


class Lost(FovaError):
    """Another process of the federation has ended without a word."""


@dataclass(frozen=True)
class Place:
    """Which one of the processes this one is, and where process 0 listens."""

    index: int
    count: int
    coordinator: str


def processes() -> int:
    """Number of processes that the federation of this program is dealt out among."""
    return _processes


def announce(count: int) -> None:
    """Say how many processes there will be, before they have joined."""
    global _processes
    _processes = count


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def join(place: Place | None) -> "Cluster":
    """Meet the other processes. None takes the place from Slurm's or Open MPI's environment."""
    import jax

    runtime.prepare()
    options: dict[str, Any] = {}
    if place is not None:
        options = {
            "coordinator_address": place.coordinator,
            "num_processes": place.count,
            "process_id": place.index,
            "cluster_detection_method": "deactivate",
        }
        host = place.coordinator.rpartition(":")[0]
        if host in ("localhost", "127.0.0.1"):
            options["coordinator_bind_address"] = place.coordinator
    try:
        jax.distributed.initialize(
            **options, initialization_timeout=STARTS_WITHIN, heartbeat_timeout_seconds=LOST_AFTER
        )
    except ValueError as error:
        if place is not None:
            raise
        raise FovaError(
            "--processes auto found neither Slurm nor Open MPI. Start the processes with srun or mpirun, or say "
            "which one this is: --processes 0/2 --coordinator HOST:PORT"
        ) from error
    except jax.errors.JaxRuntimeError as error:
        where = "" if place is None else f" at {place.coordinator}"
        raise FovaError(
            f"The processes of this federation did not meet{where}: {_first_line(error)}\nStart all of them within "
            f"{STARTS_WITHIN} seconds. Process 0 must run on the host of --coordinator, and its port must be free."
        ) from error
    with _without_output():  # Gloo prints who is connected
        cluster = Cluster()
    announce(cluster.count)
    return cluster


class Cluster:
    """The processes of one federation, seen from one of them."""

    def __init__(self) -> None:
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        self.index, self.count = jax.process_index(), jax.process_count()
        first: dict[int, Any] = {}
        for device in jax.devices():
            first.setdefault(device.process_index, device)
        mesh = Mesh(np.array([first[i] for i in range(self.count)]), ("processes",))
        each, alike = PartitionSpec("processes"), PartitionSpec()
        self._own, self._each = first[self.index], NamedSharding(mesh, each)
        self._gather = jax.jit(lambda rows: rows, out_shardings=NamedSharding(mesh, alike))
        self._add = jax.jit(
            jax.shard_map(
                lambda rows: jax.lax.psum(rows[0], "processes"),
                mesh=mesh,
                in_specs=each,
                out_specs=alike,
                check_vma=False,
            )
        )
        self.gather("joined")

    def gather(self, kind: str, message: bytes = b"") -> list[bytes]:
        """What every process says, in the order of processes. `kind` must be the same in all of them."""
        said = [_unpacked(each) for each in self._exchange(_packed(kind, message))]
        for i, (theirs, reason) in enumerate(said):
            if theirs == END != kind:
                raise Ended(reason.decode() or f"Process {i} of {self.count} has ended.")
        for i, (theirs, _) in enumerate(said):
            if theirs != kind:
                raise FovaError(
                    f"Process {self.index} of this federation is at {kind!r}, process {i} at {theirs!r}. Start all "
                    "of them with the same command and the same version of fova."
                )
        return [words for _, words in said]

    def add(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum of all processes' vectors."""
        return self._collective(self._add, vector)

    def end(self, reason: str) -> bool:
        """Tell the others that this process fails. Returns whether it is the first of those that do."""
        said = [_unpacked(each) for each in self._exchange(_packed(END, reason.encode()))]
        return [kind for kind, _ in said].index(END) == self.index

    def leave(self) -> None:
        """Part from the others when all is done."""
        import jax

        jax.distributed.shutdown()

    def _exchange(self, message: bytes) -> list[bytes]:
        """Every process's bytes. Short messages take one exchange, longer ones two."""
        head = np.zeros(FRAME, np.uint8)
        head[:LENGTH] = np.frombuffer(len(message).to_bytes(LENGTH, "little"), np.uint8)
        short = message[: FRAME - LENGTH]
        head[LENGTH : LENGTH + len(short)] = np.frombuffer(short, np.uint8)
        heads = self._collective(self._gather, head)
        lengths = [int.from_bytes(row[:LENGTH].tobytes(), "little") for row in heads]
        longest = max(lengths)
        if longest <= FRAME - LENGTH:
            return [row[LENGTH : LENGTH + length].tobytes() for row, length in zip(heads, lengths)]
        whole = np.zeros(1 << (longest - 1).bit_length(), np.uint8)  # few sizes, so few programs
        whole[: len(message)] = np.frombuffer(message, np.uint8)
        return [row[:length].tobytes() for row, length in zip(self._collective(self._gather, whole), lengths)]

    def _collective(self, function: Any, own: NDArray[Any]) -> NDArray[Any]:
        import jax

        try:
            row = jax.device_put(own[None], self._own)
            rows = jax.make_array_from_single_device_arrays((self.count, *own.shape), self._each, [row])
            return np.asarray(function(rows).addressable_data(0))
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # JAX raises either, depending on the program
            raise Lost(f"Another process of this federation has ended ({_first_line(error)}).") from error


def _packed(kind: str, message: bytes) -> bytes:
    return kind.encode() + b"\n" + message


def _unpacked(said: bytes) -> tuple[str, bytes]:
    kind, _, message = said.partition(b"\n")
    return kind.decode(), message


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip()


@contextmanager
def _without_output() -> Iterator[None]:
    """Drop what libraries write to standard output."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # it is closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def vanish(code: int) -> NoReturn:
    """End this process without waiting for the others, as JAX would do."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
