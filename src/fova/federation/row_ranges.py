"""Which rows of a source each client gets: those that the user described, or the next free ones.

Clients with the same source get consecutive pieces that do not overlap, unless an offset is given. A piece starts
at the start of an episode if the source has enough data.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec


def placed_rows(parts: Sequence[ClientSpec], loaded: Mapping[str, Transitions]) -> list[ClientSpec]:
    """The descriptions with their sizes and offsets. Rows that a source does not have are refused."""
    even = _even_shares(parts, loaded)
    placed: list[ClientSpec] = []
    free = Counter[str]()  # by source, the row after those of its last client
    for number, spec in enumerate(parts):
        size = spec.size if spec.size is not None else even[spec.data]
        data = loaded[spec.data]
        later = [s for s in parts[number + 1 :] if s.data == spec.data and s.offset is None]
        wanted = size + sum(even[s.data] if s.size is None else s.size for s in later)
        offset = spec.offset if spec.offset is not None else _next_free(data, wanted, free[spec.data])
        if offset + size > len(data):
            raise FovaError(
                f"Client {spec.name!r} wants rows {offset} to {offset + size} of {spec.data}, "
                f"which has {len(data)}. Ask for a smaller size."
            )
        placed.append(replace(spec, size=size, offset=offset))
        free[spec.data] = offset + size
    return placed


def _even_shares(parts: Sequence[ClientSpec], loaded: Mapping[str, Transitions]) -> dict[str, int]:
    """By source, the rows of each client that was given no size."""
    counts = Counter(part.data for part in parts)
    even = {source: len(loaded[source]) // count for source, count in counts.items()}
    for spec in parts:
        if spec.size is None and even[spec.data] < 2:
            raise FovaError(
                f"{spec.data} has {len(loaded[spec.data]):,} transitions, but each of its clients needs at "
                "least 2. Name it for fewer clients."
            )
    return even


def _next_free(data: Transitions, wanted: int, free: int) -> int:
    """The row where the next client starts: the next start of an episode, or the next free row if data is short.

    `wanted` is what this client and the later ones of the source want together.
    """
    starts = np.append(0, np.flatnonzero(data.episode_ends) + 1)
    start = int(starts[np.searchsorted(starts, free)])
    return start if start + wanted <= len(data) else free
