"""What a user writes about the clients of a federation: `ClientSpec`, and what texts such as `2-expert` stand for.

A client's data is a quality that a task can make (`expert`, `random`, ...), a mixture of qualities in percent of
its rows (`expert:90+random:10`) or a file. `2-expert-2-random` describes four clients at once. No data is made or
read here; `clients.py` does that.
"""

import os
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np

from fova.data import partition
from fova.data.minari_store import looks_like_id
from fova.data.paths import as_path
from fova.errors import FovaError, unknown
from fova.settings import MOST_ROWS, Within, check_kinds, check_ranges, shown
from fova.tasks.registry import Task

DEFAULT_SIZE = 5000
LONGEST_NAME = 300  # characters; the name of a file has 255 at most


@dataclass(frozen=True)
class ClientSpec:
    """The user's description of one client."""

    data: str
    """A quality of the task (expert, random, ...), a mixture (expert:90+random:10), a data file, or several clients
    at once (2-expert-2-random)."""
    size: Annotated[int | None, Within(2, MOST_ROWS)] = None
    """Transitions to take; by default 5000 of a quality, an even share of a file."""
    offset: Annotated[int | None, Within(0, MOST_ROWS)] = None
    """Row to start from in the source; by default the next episode after the previous client of the same source.
    Each part of a mixture starts at its share of the offset."""
    name: str | None = None
    """Name of the client; by default its source and a number."""
    insist_privacy: str | None = None
    """The least privacy that `fova client` accepts: clip=1,noise=2,epsilon=8. It is not for simulations."""

    def __post_init__(self) -> None:
        check_kinds(self, "of a client")
        check_ranges(self)
        if not self.data:
            raise FovaError("A client's data is an empty name. Name a quality of the task, or a file.")
        if self.name is not None:
            insist_on_name(self.name, f"The client with data {shown(self.data)}")


def insist_on_name(name: str, whose: str) -> None:
    """Refuse a name that is empty, reserved, too long, or that a terminal cannot show."""
    if not isinstance(name, str):
        raise FovaError(f"{whose} is called {shown(name)}, but a name must be a text.")
    if not name.strip():
        raise FovaError(f"{whose} has an empty name. Leave the name out for the default.")
    if name == "server":
        raise FovaError(f"{whose} is called 'server', which is the name of the global policy. Choose another name.")
    if len(name) > LONGEST_NAME or any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise FovaError(
            f"{whose} is called {shown(name)}, but a name has at most {LONGEST_NAME} characters and no control "
            "characters."
        )


def complete(specs: Sequence[ClientSpec]) -> list[ClientSpec]:
    """The descriptions of all clients, each with a unique name: expert-1, expert-2, random-1, ...

    A file that has a number already keeps its name: ward-3.npz is ward-3.
    """
    every = list(chain.from_iterable(map(_each, specs)))
    stems = [Path(spec.data).stem if is_file(spec.data) else spec.data for spec in every]
    times, seen = Counter(stems), Counter[str]()
    numbered = []
    for stem in stems:
        seen[stem] += 1
        numbered.append(f"{stem}-{seen[stem]}")
    taken = {*numbered, *(spec.name for spec in every)}
    named = []
    for spec, stem, name in zip(every, stems, numbered):
        keeps = is_file(spec.data) and stem[-1:].isdigit() and times[stem] == 1 and stem not in taken
        named.append(spec if spec.name else replace(spec, name=stem if keeps else name))
    twice = [name for name, count in Counter(spec.name for spec in named).items() if count > 1]
    if twice:
        raise FovaError(f"Two clients are called {twice[0]!r}. Give each its own name.")
    return named


def sources_of(specs: Sequence[ClientSpec]) -> list[str]:
    """The files and qualities that the clients hold, each once."""
    return list(dict.fromkeys(part.data for spec in complete(specs) for part in parts_of(spec)))


def _each(spec: ClientSpec) -> list[ClientSpec]:
    """The clients that a description stands for: one, or several for a text such as `2-expert-2-random`."""
    if is_file(spec.data) or not spec.data[:1].isdigit():
        return [spec]
    if spec.name is not None or spec.offset is not None:
        raise FovaError(f"{spec.data!r} stands for several clients, which cannot share one name or offset.")
    return [replace(spec, data=quality) for quality in partition.qualities_of(spec.data)]


def parts_of(spec: ClientSpec) -> list[ClientSpec]:
    """The sources of a client's data, with the rows that it takes from each: one, or several for a mixture."""
    if is_file(spec.data) or "+" not in spec.data:
        return [spec]
    shares = partition.shares_of(spec.data)

    def of_each(rows: int) -> list[int]:
        return np.diff(np.round(np.cumsum([0, *shares.values()]) / 100 * rows).astype(int)).tolist()

    sizes = of_each(spec.size or DEFAULT_SIZE)
    offsets = [None] * len(shares) if spec.offset is None else of_each(spec.offset)
    return [replace(spec, data=quality, size=n, offset=at) for quality, n, at in zip(shares, sizes, offsets)]


def is_file(data: str) -> bool:
    """Whether `data` names a file: it has a suffix or a folder, or the path exists. Qualities are single words."""
    return "/" in data or "." in data or os.path.exists(data)


def located(data: str, folder: Path) -> str:
    """The absolute path of a file relative to `folder`. A quality or the id of a Minari dataset is not changed."""
    path = folder / as_path(data)
    if not os.path.exists(path) and (looks_like_id(data) or not ("/" in data or "." in data)):
        return data
    return os.path.join(os.path.realpath(path.parent), path.name)


def insist_on_sources(names: Sequence[str], task: Task | None) -> None:
    """Refuse a quality that the task does not have, or a file that is not there, before any data is made."""
    for name in names:
        if is_file(name):
            if not (os.path.exists(as_path(name)) or looks_like_id(name)):
                raise FovaError(
                    f"There is no file or folder {name!r}. Check the spelling and the current directory."
                )
        elif task is None:
            raise FovaError(f"{name!r} is not a file, and without --task there is nothing to make data from.")
        elif name not in task.qualities:
            raise unknown(f"data of {task.name}", name, task.qualities, "A file is given by its path.")
