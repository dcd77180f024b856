"""What members send, before anything believes it: bounds on size come before decoding, and no pickle is read.

A member's message is a tree of Flower objects. It is bounded in three steps: the number and size of the objects
when they are fetched (`limit_messages`), the size of every array before it is decoded (`array`), and the length of
every text before it is shown (`one_line`). Anything else than what was asked for is refused with a reason.
"""

import io
import json
import math
import re
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fova.errors import FovaError

Expected = tuple[tuple[int, ...], Any]  # shape and type of an array
LONGEST_TEXT = 200
LONGEST_NAME = 63
MOST_NAMES_SHOWN = 3
LARGEST_HEADER = 1024  # bytes of the header of a NumPy file
# What a message may hold beyond its arrays: metrics, names, Flower's own wrapping.
WRAPPING_BYTES = 4 * 2**20
WRAPPING_OBJECTS = 64
OBJECTS_OF_AN_ARRAY = 2  # the array and its first chunk
CHUNK = 2**20  # Flower's chunks are larger


class Refused(FovaError):
    """The other side refuses the message. The text gives the reason."""


# --- Text ---


def one_line(text: Any, longest: int = LONGEST_TEXT) -> str:
    """A text of a member as one printable line of limited length."""
    start = (text if isinstance(text, str) else repr(text))[: longest + 1]
    line = "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in start)
    return line if len(line) <= longest else line[: longest - 3] + "..."


def insist_on_name(name: Any) -> str:
    """The name of a client. It names a folder and stands in logs: path parts and control characters are refused."""
    plain = isinstance(name, str) and name.isprintable() and name == name.strip() and 1 <= len(name) <= LONGEST_NAME
    if not plain or re.search(r"[/\\:]", name) or name.startswith("."):
        raise Refused(
            f"{one_line(repr(name))} cannot be the name of a client. Take at most {LONGEST_NAME} printable "
            "characters without slashes, backslashes and colons; the first is no dot."
        )
    return str(name)


# --- Numbers and arrays ---


def number(value: Any, name: str) -> float:
    """A single number; lists, texts and numbers that are not finite are refused."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"{one_line(name)} is {one_line(repr(value), 40)}, but must be a number")
    if not math.isfinite(value) or abs(value) > float(np.finfo(np.float32).max):
        raise Refused(f"its numbers are not finite: {one_line(name)}")
    return float(value)


def insist_on_names(given: Any, expected: Any, what: str) -> None:
    """Refuse a record whose names are not the expected ones."""
    if len(given) == len(expected) and set(given) == set(expected):
        return
    strange = [one_line(name, 60) for name in given if name not in set(expected)]
    missing = [name for name in expected if name not in given]
    said = ", ".join((strange + missing)[:MOST_NAMES_SHOWN])
    raise Refused(f"its {what} are {len(given)} and not the {len(expected)} asked for; on one side only: {said}")


def arrays(record: ArrayRecord, expected: Mapping[str, Expected], what: str) -> dict[str, NDArray[Any]]:
    """The decoded arrays of a record, which must have exactly the expected names, shapes and types."""
    insist_on_names(record, expected, what)
    return {name: array(record[name], name, *expected[name]) for name in expected}


def array(sent: Array, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """The decoded array. Its size and its header are compared with what is expected before memory is taken."""
    dtype = np.dtype(dtype)
    needed = f"{dtype}{list(shape)} is needed"
    if sent.stype != "numpy.ndarray":
        raise Refused(f"{name} is of type {one_line(sent.stype, 40)}, but a NumPy array is needed")
    size = dtype.itemsize * math.prod(shape)
    if len(sent.data) > size + LARGEST_HEADER:
        raise Refused(f"{name} has {len(sent.data):,} bytes, but {needed}: {size:,} bytes")
    stream = io.BytesIO(sent.data)
    try:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version}")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        found_shape, fortran, found = read(stream, max_header_size=LARGEST_HEADER)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, EOFError) as error:
        raise Refused(f"{name} is no NumPy array ({one_line(str(error), 80)})") from error
    if found.hasobject or (found_shape, found) != (shape, dtype):
        raise Refused(f"{name} is {one_line(str(found), 40)}{one_line(str(list(found_shape)), 60)}, but {needed}")
    values = np.frombuffer(sent.data, np.uint8, offset=stream.tell())
    if len(values) != size:
        raise Refused(f"{name} has {len(values):,} bytes of numbers, but {needed}: {size:,} bytes")
    return values.view(dtype).reshape(shape, order="F" if fortran else "C")


# --- Messages ---


def largest_message(payload: int) -> int:
    """The most bytes that an answer with a payload of so many bytes may have."""
    return 2 * payload + WRAPPING_BYTES


def limit_messages(payload: int, count: int) -> None:
    """Let this process fetch only messages that an honest answer of `count` arrays in `payload` bytes could be.

    Flower fetches all objects of a message and puts them together. Both are wrapped: a message of too many or too
    large objects, or one that names the same bytes again and again, is refused before it fills the memory.
    """
    from flwr.superlink.grid import http_grid

    pull, inflate = _without_limits()
    most_bytes = largest_message(payload)
    most_objects = WRAPPING_OBJECTS + OBJECTS_OF_AN_ARRAY * count + most_bytes // CHUNK
    http_grid.pull_objects = limited_pull(pull, most_bytes, most_objects)
    http_grid.inflate_object_from_contents = limited_inflation(inflate, most_bytes)


@cache
def _without_limits() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Flower's own functions, which later limits wrap anew, so that they replace earlier ones."""
    from flwr.superlink.grid import http_grid

    return http_grid.pull_objects, http_grid.inflate_object_from_contents


def limited_pull(pull: Callable[..., Any], most_bytes: int, most_objects: int) -> Callable[..., Any]:
    """Flower's `pull_objects` for at most so many objects of at most so many bytes together."""

    def pull_some(object_ids: list[str], pull_object_fn: Callable[[str], bytes], **options: Any) -> Any:
        if len(object_ids) > most_objects:
            raise Refused(f"its message has {len(object_ids):,} objects, but at most {most_objects:,} are expected")
        lock, total = threading.Lock(), 0

        def counted(object_id: str) -> bytes:
            nonlocal total
            content = pull_object_fn(object_id)
            with lock:
                total += len(content)
            if total > most_bytes:
                raise Refused(f"its message has more than {most_bytes:,} bytes")
            return content

        return pull(object_ids, counted, **options)

    return pull_some


def limited_inflation(inflate: Callable[..., Any], most_bytes: int) -> Callable[..., Any]:
    """Flower's `inflate_object_from_contents` for messages that do not grow beyond so many bytes."""

    def inflate_some(object_id: str, contents: dict[str, bytes], **options: Any) -> Any:
        if inflated_bytes(contents) > most_bytes:
            raise Refused(f"its message unpacks to more than {most_bytes:,} bytes")
        return inflate(object_id, contents, **options)

    return inflate_some


def inflated_bytes(contents: Mapping[str, bytes]) -> int:
    """The size of a message's arrays once they are put together. An array names its chunks by number."""
    total = 0
    for content in contents.values():
        head, _, body = content.partition(b"\x00")
        kind, _, rest = head.partition(b" ")
        if kind == b"Array":
            children = rest.partition(b" ")[0].decode().split(",")
            chunks = json.loads(body)["arraychunk_ids"]
            total += sum(len(contents.get(children[index], b"")) for index in chunks)
    return total
