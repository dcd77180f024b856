"""A federation's clients with their data, made or read, checked and ready for training.

`client_specs.py` holds what a user writes about them, `row_ranges.py` which rows of a source each client gets.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.table import Table

from fova.data import hold_out, partition, sources
from fova.data.action_kind import ActionKind, LoggedActions, discrete_actions
from fova.data.doubts import remarks
from fova.data.normalise import Normaliser
from fova.data.paths import as_path
from fova.data.returns import counted_from
from fova.data.tables.arrow import insist_on_table
from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader
from fova.data.transitions import Transitions, check, check_shapes, join, refuse_unbounded
from fova.errors import FovaError
from fova.federation.action_spaces import Bounds, agreed_actions, bounded, declared_bounds, insist_on_actions
from fova.federation.client_specs import (
    DEFAULT_SIZE,
    ClientSpec,
    complete,
    insist_on_name,
    insist_on_sources,
    is_file,
    parts_of,
)
from fova.federation.row_ranges import placed_rows
from fova.recipe import Recipe
from fova.settings import HELD_OUT, SEEDS, argument
from fova.spaces import ActionSpace, Space
from fova.tasks import datasets
from fova.tasks.registry import Task

TURN = ", turn "  # between a client's name and the number of its data in a sequence


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
        _insist_on_transitions(clients)
        task = argument("task", task, Task | None)
        action = argument("action", action, ActionSpace | None)
        actions = argument("actions", actions, ActionKind)
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
        parts = [part for spec in specs for part in parts_of(spec)]
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
        placed = placed_rows(parts, loaded)
        clients = _pieces([spec for spec in placed if only is None or spec.name in only], loaded)
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
        specs: Sequence[ClientSpec], sequence: Sequence[str], only: Collection[str] | None = None, **how: Any
    ) -> "Federation":
        """A federation whose clients all hold the first source of a sequence, then the next one, and so on.

        The sequence replaces the sources in `specs`. If a source occurs again, its next rows are used. `only` and
        `how` are the arguments of `build`.
        """
        named = complete(specs)
        every = [
            replace(spec, data=source, name=f"{spec.name}{TURN}{turn}")
            for turn, source in enumerate(sequence)
            for spec in named
        ]
        kept = None if only is None else {str(spec.name) for spec in every if _client_of(spec) in only}
        built = Federation.build(every, only=kept, **how)
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
        share = argument("share", share, Annotated[float, HELD_OUT])
        seed = argument("seed", seed, Annotated[int, SEEDS])
        if not share:
            return self
        if self.held_out:
            raise FovaError(
                "The federation keeps episodes aside already, and a second choice would lose them. Leave hold_out "
                "out, or give the federation with all its episodes."
            )
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

    def counted_from(self, zeros: Mapping[str, float], discount: float) -> "Federation":
        """The same federation with every client's rewards counted from its zero (`fova.data.returns`)."""
        clients = {name: counted_from(data, zeros[name], discount) for name, data in self.clients.items()}
        return replace(self, clients=clients)

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


def _insist_on_transitions(clients: Any) -> None:
    """Refuse what is no mapping from names to transitions of sound shapes."""
    if not isinstance(clients, Mapping):
        raise FovaError(
            f"clients is a {type(clients).__name__}, but must be a mapping from every client's name to Transitions."
        )
    if not clients:
        raise FovaError("A federation needs at least one client.")
    for name, data in clients.items():
        insist_on_name(name, "A client")
        if not isinstance(data, Transitions):
            raise FovaError(f"The data of client {name!r} is a {type(data).__name__}, but must be Transitions.")
        check_shapes(data, name)


def _pieces(placed: Sequence[ClientSpec], loaded: Mapping[str, Transitions]) -> dict[str, Transitions]:
    """The data of each client: its rows of one source, or of several for a mixture."""
    pieces: dict[str, list[Transitions]] = {}
    for spec in placed:
        assert spec.size is not None
        assert spec.offset is not None
        data = loaded[spec.data]
        piece = data if spec.size == len(data) else data[spec.offset : spec.offset + spec.size]
        pieces.setdefault(str(spec.name), []).append(piece)
    return {name: join(held) if len(held) > 1 else held[0] for name, held in pieces.items()}


def _client_of(spec: ClientSpec) -> str:
    """The name of the client that this entry of a data sequence belongs to."""
    return str(spec.name).rpartition(TURN)[0]


def _reader_for(reader: TableReader, task: Task | None) -> TableReader:
    """The reader, which refuses choices that are not actions of the task."""
    return reader if task is None else replace(reader, task=(task.name, task.space.action))


def _read_tables(
    reader: TableReader, names: Sequence[str], tell: Callable[[str], None]
) -> tuple[Recipe, dict[str, sources.Source]]:
    agreed, found = reader.load({name: insist_on_table(as_path(name)) for name in names}, tell)
    return agreed.recipe, found


def _told(found: Mapping[str, sources.Source], note: Callable[[str], None]) -> tuple[str, ...]:
    """The remarks about the data. Each is also passed to `note`."""
    told = tuple(remarks(found))
    for remark in told:
        note(remark)
    return told


def _load(
    name: str, specs: Sequence[ClientSpec], task: Task | None, seed: int, tell: Callable[[str], None]
) -> sources.Source:
    """The data of a file, or made data of a quality."""
    tell(f"{Path(name).name} data")
    if is_file(name):
        return sources.load(name)
    made = _make(name, [spec for spec in specs if spec.data == name], task, seed, tell)
    return sources.Source(name, sources.MADE, made, ())


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
