"""A federation's clients: from the user's description to checked data that is ready for training.

A client's data is a quality that a task can make (`expert`, `random`, ...), a mixture of qualities in percent of
its rows (`expert:90+random:10`) or a file. `2-expert-2-random` describes four clients at once. Clients with the
same source get consecutive pieces that do not overlap, unless an offset is given. A piece starts at the start of an
episode if the source has enough data.
"""

import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.table import Table

from fova.data import hold_out, partition, sources
from fova.data.action_kind import ActionKind, LoggedActions, discrete_actions
from fova.data.doubts import remarks
from fova.data.minari_store import looks_like_id
from fova.data.normalise import Normaliser
from fova.data.paths import as_path
from fova.data.tables.arrow import insist_on_table
from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader
from fova.data.transitions import Transitions, check, join, refuse_unbounded
from fova.errors import FovaError, unknown
from fova.federation.action_spaces import Bounds, agreed_actions, bounded, declared_bounds, insist_on_actions
from fova.recipe import Recipe
from fova.settings import Within, check_kinds, check_ranges, shown
from fova.spaces import ActionSpace, Space
from fova.tasks import datasets
from fova.tasks.registry import Task

DEFAULT_SIZE = 5000
MOST_ROWS = 1_000_000_000
LONGEST_NAME = 300  # characters; the name of a file has 255 at most
TURN = ", turn "  # between a client's name and the number of its data in a sequence


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
    """Refuse a name that the files of a run or a terminal could not show as this client's."""
    if not name.strip():
        raise FovaError(f"{whose} has an empty name. Leave the name out for the default.")
    if name == "server":
        raise FovaError(f"{whose} is called 'server', which is the name of the global policy. Choose another name.")
    if len(name) > LONGEST_NAME or any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise FovaError(
            f"{whose} is called {shown(name)}, but a name has at most {LONGEST_NAME} characters and no control "
            "characters."
        )


@dataclass(frozen=True)
class Federation:
    """The clients of a federation and their data. The data is raw: as logged, in the task's units."""

    clients: Mapping[str, Transitions]
    space: Space
    task: Task | None = None
    specs: tuple[ClientSpec, ...] = ()
    later: tuple["Federation", ...] = ()  # the same clients with the data of each later stage, in order
    # Episodes that were kept aside; none for a client with too little data.
    held_out: Mapping[str, Transitions] = field(default_factory=dict)
    recipe: Recipe | None = None  # how records became observations, if the clients hold tables
    notes: tuple[str, ...] = ()  # what was left out of the data, and what in it looks like a mistake

    @staticmethod
    def of(
        clients: Mapping[str, Transitions],
        task: Task | None = None,
        bounds: Bounds = None,
        action: ActionSpace | None = None,
        actions: ActionKind = "auto",
        action_names: Sequence[str] = (),
    ) -> "Federation":
        """A federation of data in memory. Every client's data is checked.

        `action` is the action space. Without it, `bounds` are the lowest and highest action, each one number or one
        number per column. The default is the task's action space, or -1 and 1 without a task. Actions beyond these
        need bounds. A column of integers is taken for codes of discrete actions, unless `actions` says continuous.
        """
        if not clients:
            raise FovaError("A federation needs at least one client.")
        first = next(iter(clients.values()))
        observed, acted = (np.shape(values)[-1] for values in (first.observations, first.actions))
        space = task.space if task else Space.unit(observed, acted)
        if action is None and task is None:
            logged = {
                name: LoggedActions(data.actions, np.asarray(data.actions).dtype.kind in "iub")
                for name, data in clients.items()
            }
            action = discrete_actions(logged, actions, tuple(action_names), bounds is not None)
        if action is not None:
            space = Space(space.observation, action)
        elif bounds is not None:
            space = Space(space.observation, bounded(space.action, bounds))
        elif task is None:
            refuse_unbounded(clients.values())
        for name, data in clients.items():
            insist_on_name(name, "A client")
            check(data, name, space.action, space.observation)
        return Federation(clients, space, task)

    @staticmethod
    def build(
        specs: Sequence[ClientSpec],
        task: Task | None = None,
        seed: int = 0,
        bounds: Bounds = None,
        tell: Callable[[str], None] = lambda message: None,
        note: Callable[[str], None] = lambda message: None,
        action: ActionSpace | None = None,
        reader: TableReader | None = None,
        actions: ActionKind = "auto",
        action_names: Sequence[str] = (),
        only: Collection[str] | None = None,
    ) -> "Federation":
        """Make or load the data of every client that the user described.

        `tell` receives progress messages. `note` receives remarks about the data for the user. `reader` reads
        tables, if the clients hold some. `actions` and `action_names` say what kind of actions the data holds.
        `only` names the clients whose data is kept: each has the rows that it has in the whole federation.
        """
        if not specs:
            raise FovaError("No clients were given. Name them, for instance: --clients expert expert random random")
        specs = complete(specs)
        parts = [part for spec in specs for part in _parts(spec)]
        if only is not None and reader is None:  # tables are all read: the recipe comes from all of them
            needed = {part.data for part in parts if part.name in only}
            parts = [part for part in parts if part.data in needed]
        names = list(dict.fromkeys(part.data for part in parts))
        insist_on_sources(names, task)
        recipe = None
        if reader is not None:
            recipe, found = _read_tables(_reader_for(reader, task), names, tell)
        else:
            found = {name: _load(name, parts, task, seed, tell) for name in names}
        loaded = {name: source.transitions for name, source in found.items()}
        notes = _told(found, note)
        if task is None:
            action = agreed_actions(found, action, bounds, actions, tuple(action_names))
            if action is None:
                actions, bounds = "continuous", bounds or declared_bounds(found)
        else:
            insist_on_actions(task.name, task.space.action, found, actions, tuple(action_names))
        if recipe is not None and task is None and action is None and bounds is None:
            refuse_unbounded(loaded.values(), beyond=0.0)
        counts = Counter(part.data for part in parts)
        even = {source: len(loaded[source]) // count for source, count in counts.items()}
        for spec in parts:
            if spec.size is None and even[spec.data] < 2:
                raise FovaError(
                    f"{spec.data} has {len(loaded[spec.data]):,} transitions, but each of its clients needs at "
                    "least 2. Name it for fewer clients."
                )
        pieces: dict[str, list[Transitions]] = {}
        placed: list[ClientSpec] = []
        for number, spec in enumerate(parts):
            size = spec.size if spec.size is not None else even[spec.data]
            data = loaded[spec.data]
            later = [s for s in parts[number + 1 :] if s.data == spec.data and s.offset is None]
            wanted = size + sum(even[s.data] if s.size is None else s.size for s in later)
            offset = spec.offset if spec.offset is not None else _next_free(data, wanted, spec.data, placed)
            if offset + size > len(data):
                raise FovaError(
                    f"Client {spec.name!r} wants rows {offset} to {offset + size} of {spec.data}, "
                    f"which has {len(data)}. Ask for a smaller size."
                )
            placed.append(replace(spec, size=size, offset=offset))
            if only is not None and spec.name not in only:
                continue
            piece = data if size == len(data) else data[offset : offset + size]
            pieces.setdefault(str(spec.name), []).append(piece)
        clients = {name: join(held) if len(held) > 1 else held[0] for name, held in pieces.items()}
        federation = Federation.of(clients, task, bounds, action, actions)
        return replace(federation, specs=tuple(placed), recipe=recipe, notes=notes)

    @staticmethod
    def of_tables(
        tables: Mapping[str, Any],
        columns: Any,
        task: Task | None = None,
        bounds: Bounds = None,
        private: bool = False,
        note: Callable[[str], None] = lambda message: None,
        actions: ActionKind = "auto",
        action_names: Sequence[str] = (),
    ) -> "Federation":
        """A federation of tables in memory or files, by client: pandas and polars frames, Arrow tables, paths.

        `columns` says what the columns mean, as `--columns` does: {"episode": "patient_id", "time": "hour", ...}.
        """
        if not tables:
            raise FovaError("A federation needs at least one client.")
        agreed, found = _reader_for(TableReader(Columns.of(columns), private), task).load(tables)
        notes = _told(found, note)
        clients = {name: source.transitions for name, source in found.items()}
        if task is None:
            action = agreed_actions(found, None, bounds, actions, tuple(action_names))
        else:
            action = None
            insist_on_actions(task.name, task.space.action, found, actions, tuple(action_names))
        if task is None and action is None and bounds is None:
            refuse_unbounded(clients.values(), beyond=0.0)
        federation = Federation.of(clients, task, bounds, action, "continuous")
        return replace(federation, recipe=agreed.recipe, notes=notes)

    @staticmethod
    def in_sequence(
        specs: Sequence[ClientSpec],
        sequence: Sequence[str],
        task: Task | None = None,
        seed: int = 0,
        bounds: Bounds = None,
        tell: Callable[[str], None] = lambda message: None,
        note: Callable[[str], None] = lambda message: None,
        reader: TableReader | None = None,
        actions: ActionKind = "auto",
        action_names: Sequence[str] = (),
        only: Collection[str] | None = None,
    ) -> "Federation":
        """A federation whose clients all hold the first source of a sequence, then the next one, and so on.

        The sequence replaces the sources in `specs`. If a source occurs again, its next rows are used. `only` is
        that of `build`.
        """
        named = complete(specs)
        every = [
            replace(spec, data=source, name=f"{spec.name}{TURN}{turn}")
            for turn, source in enumerate(sequence)
            for spec in named
        ]
        built = Federation.build(
            every,
            task,
            seed,
            bounds,
            tell,
            note,
            reader=reader,
            actions=actions,
            action_names=action_names,
            only=None if only is None else {str(spec.name) for spec in every if _client_of(spec) in only},
        )
        named = [spec for spec in named if only is None or spec.name in only]
        turns = [
            replace(
                built,
                clients={str(spec.name): built.clients[f"{spec.name}{TURN}{turn}"] for spec in named},
                specs=tuple(replace(spec, data=source) for spec in named),
            )
            for turn, source in enumerate(sequence)
        ]
        return replace(turns[0], later=tuple(turns[1:]))

    def holding_out(
        self, share: float, seed: int = 0, note: Callable[[str], None] = lambda message: None
    ) -> "Federation":
        """The federation with a share of every client's episodes kept aside in `held_out`.

        The same seed keeps the same episodes aside. `note` receives remarks about clients with too little data.
        """
        if not share:
            return self
        parts = {name: hold_out.split(data, share, seed, name) for name, data in self.clients.items()}
        for name, part in parts.items():
            if part.held_out is None:
                note(f"{name} has too few episodes to keep one aside: it trains on all of its data")
        return replace(
            self,
            clients={name: part.training for name, part in parts.items()},
            held_out={name: part.held_out for name, part in parts.items() if part.held_out is not None},
            later=tuple(turn.holding_out(share, seed, note) for turn in self.later),
        )

    def turns(self) -> tuple["Federation", ...]:
        """The federation at the start, and after each replacement of its data."""
        return (replace(self, later=()), *self.later)

    def whole_clients(self) -> Mapping[str, Transitions]:
        """All data of each client over the whole run."""
        return self._joined([turn.clients for turn in self.turns()])

    def whole_held_out(self) -> Mapping[str, Transitions]:
        """All episodes of each client that were kept aside over the whole run."""
        return self._joined([turn.held_out for turn in self.turns()])

    def _joined(self, turns: Sequence[Mapping[str, Transitions]]) -> Mapping[str, Transitions]:
        if len(turns) == 1:
            return turns[0]
        every = {name: [turn[name] for turn in turns if name in turn] for name in self.clients}
        return {name: join(pieces) for name, pieces in every.items() if pieces}

    def pooled(self) -> "Federation":
        """The federation with all data pooled in one client: a reference that a real federation cannot have."""
        return replace(self, clients={"pooled": join(list(self.clients.values()))})

    def summary(self) -> Table:
        """A table of the clients' data: rows, episodes, mean return."""
        return partition.summary(self.clients)

    def prepared(
        self, normaliser: Normaliser, reward_factors: Mapping[str, float] | None = None
    ) -> dict[str, Transitions]:
        """The data for the networks: normalised observations, actions in [-1, 1], rewards times a factor."""
        factors = reward_factors or dict.fromkeys(self.clients, 1.0)

        def frame(data: Transitions, factor: float) -> Transitions:
            return replace(
                data,
                observations=normaliser(data.observations),
                next_observations=normaliser(data.next_observations),
                actions=self.space.action.to_unit(data.actions),
                next_actions=self.space.action.to_unit(data.next_actions),
                rewards=data.rewards * np.float32(factor),
            )

        return {name: frame(data, factors[name]) for name, data in self.clients.items()}


def _client_of(spec: ClientSpec) -> str:
    """The name of the client whose data in a sequence this is."""
    return str(spec.name).rpartition(TURN)[0]


def _reader_for(reader: TableReader, task: Task | None) -> TableReader:
    """The reader that holds choices to the actions of the task."""
    return reader if task is None else replace(reader, task=(task.name, task.space.action))


def _read_tables(
    reader: TableReader, names: Sequence[str], tell: Callable[[str], None]
) -> tuple[Recipe, dict[str, sources.Source]]:
    agreed, found = reader.load({name: insist_on_table(as_path(name)) for name in names}, tell)
    return agreed.recipe, found


def _told(found: Mapping[str, sources.Source], note: Callable[[str], None]) -> tuple[str, ...]:
    """The remarks about the data, after `note` has received each."""
    told = tuple(remarks(found))
    for remark in told:
        note(remark)
    return told


def sources_of(specs: Sequence[ClientSpec]) -> list[str]:
    """The files and qualities that the clients hold, each once."""
    return list(dict.fromkeys(part.data for spec in complete(specs) for part in _parts(spec)))


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


def _load(
    name: str, specs: Sequence[ClientSpec], task: Task | None, seed: int, tell: Callable[[str], None]
) -> sources.Source:
    """The data of a file, or made data of a quality."""
    tell(f"{Path(name).name} data")
    if is_file(name):
        return sources.load(name)
    made = _make(name, [spec for spec in specs if spec.data == name], task, seed, tell)
    return sources.Source(name, sources.MADE, made, ())


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


def _each(spec: ClientSpec) -> list[ClientSpec]:
    """The clients that a description stands for: one, or several for a text such as `2-expert-2-random`."""
    if is_file(spec.data) or not spec.data[:1].isdigit():
        return [spec]
    if spec.name is not None or spec.offset is not None:
        raise FovaError(f"{spec.data!r} stands for several clients, which cannot share one name or offset.")
    return [replace(spec, data=quality) for quality in partition.qualities_of(spec.data)]


def _parts(spec: ClientSpec) -> list[ClientSpec]:
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


def _make(
    source: str, specs: Sequence[ClientSpec], task: Task | None, seed: int, tell: Callable[[str], None]
) -> Transitions:
    if task is None:
        raise FovaError(f"{source!r} is not a file, and without --task there is nothing to make data from.")
    wanted, position = 0, 0
    for spec in specs:
        position = (spec.offset if spec.offset is not None else position) + (spec.size or DEFAULT_SIZE)
        wanted = max(wanted, position)
        position += (
            task.time_limit - 1
        )  # the next client starts at a new episode, so up to one episode may be skipped
    tenth = max(wanted // 10, 1)
    shown = 0

    def progress(rows: int) -> None:
        nonlocal shown
        if rows // tenth > shown:
            shown = rows // tenth
            tell(f"making {source} data: {min(rows, wanted):,} of {wanted:,} steps")

    return datasets.made(task, source, wanted, seed, progress, tell)


def _next_free(data: Transitions, wanted: int, source: str, placed: Sequence[ClientSpec]) -> int:
    """The row where the next client starts: the next start of an episode, or the next row if data is short.

    `wanted` is what this client and the later ones of the source want together.
    """
    ends = [(spec.offset or 0) + (spec.size or 0) for spec in placed if spec.data == source]
    end = ends[-1] if ends else 0
    starts = np.append(0, np.flatnonzero(data.episode_ends) + 1)
    start = int(starts[np.searchsorted(starts, end)]) if end <= len(data) else end
    return start if start + wanted <= len(data) else end
