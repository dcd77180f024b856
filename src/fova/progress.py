"""Progress of runs: one stream of events, and the displays that show it to a person.

Whoever does the work reports events to a `Progress`. A display is a `Progress` that shows them: a live bar, plain
lines for logs, or nothing. Between processes an event travels as a JSON table (`to_json`, `from_json`).
"""

import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from fova.errors import FovaError
from fova.settings import shown

# --- Events ---


@dataclass(frozen=True)
class Status:
    """What is being done right now, where it is not a round."""

    text: str


@dataclass(frozen=True)
class Note:
    """Something to remember. It stays on the screen."""

    text: str


@dataclass(frozen=True)
class Started:
    """The rounds begin. `first` rounds of `rounds` were finished before."""

    first: int
    rounds: int


@dataclass(frozen=True)
class Round:
    """A round is finished. `entry` is its line of metrics.jsonl."""

    entry: dict[str, Any]


@dataclass(frozen=True)
class Finished:
    """No more events follow. `server` is the final evaluation of the server's policy, where it is known."""

    server: dict[str, Any] | None = None


@dataclass(frozen=True)
class Failed:
    """The run ended with an error."""

    text: str


Event = Status | Note | Started | Round | Finished | Failed
EVENTS: dict[str, type[Event]] = {
    "status": Status,
    "note": Note,
    "started": Started,
    "round": Round,
    "finished": Finished,
    "failed": Failed,
}


def to_json(event: Event) -> dict[str, Any]:
    """The event as a JSON table, for instance {"event": "started", "first": 0, "rounds": 30}."""
    return {"event": type(event).__name__.lower(), **vars(event)}


def from_json(content: Any) -> Event:
    """The event in a JSON table; other keys are ignored. What is not an event is a ValueError."""
    kind = EVENTS.get(str(content.get("event"))) if isinstance(content, Mapping) else None
    if kind is None or not all(field.name in content for field in fields(kind)):
        raise ValueError(f"{content!r} is not an event.")
    return kind(**{field.name: content[field.name] for field in fields(kind)})


class Progress:
    """Takes the events of a run: `progress(Status("compiling"))`, or `progress.status("compiling")` for short.

    Displays override `handle`.
    """

    def handle(self, event: Event) -> None:
        raise NotImplementedError

    def __call__(self, event: Event) -> None:
        self.handle(event)

    def status(self, text: str) -> None:
        self.handle(Status(text))

    def note(self, text: str) -> None:
        self.handle(Note(text))

    def start(self, first: int, rounds: int) -> None:
        self.handle(Started(first, rounds))

    def round(self, entry: dict[str, Any]) -> None:
        self.handle(Round(entry))

    def finish(self) -> None:
        self.handle(Finished())

    def fail(self, text: str) -> None:
        self.handle(Failed(text))


# --- Displays ---

# A plain log gets a line at evaluations and otherwise about this often.
SECONDS_BETWEEN_LINES = 10.0
COUNTED_ROUND = re.compile(r": round (?P<round>\d+) of (?P<rounds>\d+)")  # a status that changes with every round


class Quiet(Progress):
    """Shows nothing."""

    def handle(self, event: Event) -> None:
        pass


class Plain(Progress):
    """Prints a line now and then, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_line = 0.0

    def handle(self, event: Event) -> None:
        match event:
            case Status(text):
                self._status(text)
            case Note(text):
                self._print(text)
            case Started(_, rounds):
                self._clock = Clock(rounds)
            case Round(entry):
                self._round(entry)

    def _status(self, text: str) -> None:
        counted = COUNTED_ROUND.search(text)
        if counted is not None:
            if counted["round"] not in ("1", counted["rounds"]) and not self._due():
                return
            self._last_line = time.monotonic()
        self._print(f"... {text}")

    def _round(self, entry: dict[str, Any]) -> None:
        self._clock.tick(entry["round"])
        if self._due() or "server" in entry or entry["round"] == self._clock.rounds:
            self._last_line = time.monotonic()
            head = f"round {entry['round']}/{self._clock.rounds}"
            self._print("  ".join((head, *summary(entry), self._clock.left())))

    def _due(self) -> bool:
        return time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


class Live(Progress):
    """A progress bar with the round, the time left, the server's score and the shares of the vote."""

    def __init__(self, console: Console) -> None:
        self._bar = Bar(
            TextColumn("{task.fields[state]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, state="starting", left="")
        self._server = ""  # the last evaluation
        self._bar.start()

    def handle(self, event: Event) -> None:
        match event:
            case Status(text):
                self._bar.update(self._task, state=escape(text))
            case Note(text):
                self._bar.console.print(text, highlight=False, markup=False)  # above the bar
            case Started(first, rounds):
                self._clock = Clock(rounds)
                self._bar.update(self._task, total=rounds, completed=first, state="starting")
            case Round(entry):
                self._round(entry)
            case Finished() | Failed():
                self._bar.stop()

    def _round(self, entry: dict[str, Any]) -> None:
        self._clock.tick(entry["round"])
        server, *rest = (*summary(entry), "")
        if "server" in entry:
            self._server = server
        else:
            rest = [server, *rest]
        state = "  ".join(filter(None, ("round", self._server, *rest)))
        self._bar.update(self._task, completed=entry["round"], state=state, left=self._clock.left())


def choose(quiet: bool, plain: bool, console: Console) -> Progress:
    """The display that fits: live on a terminal, plain lines elsewhere, nothing with `quiet`."""
    if quiet:
        return Quiet()
    return Plain(console) if plain or not console.is_terminal else Live(console)


def by_default(progress: Progress | bool | None) -> Progress:
    """The display for a Python program: a given one, or what fits.

    None shows progress in a terminal or a notebook and nothing elsewhere. True shows it everywhere, False nowhere.
    """
    if isinstance(progress, Progress):
        return progress
    if not (progress is None or isinstance(progress, bool)):
        raise FovaError(
            f"progress is {shown(progress)}, but must be True, False, None or a display of fova.progress."
        )
    console = Console(force_jupyter=False)  # a live display in a notebook needs another package
    seen = console.is_terminal or _in_notebook()
    return choose(quiet=not (seen if progress is None else progress), plain=_in_notebook(), console=console)


def _in_notebook() -> bool:
    """Whether IPython shows what is printed below a cell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


# --- Figures for people ---


class Clock:
    """The time left. It leaves out the first round, which also compiled."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self._finished: list[tuple[int, float]] = []

    def tick(self, finished: int) -> None:
        self._finished.append((finished, time.monotonic()))

    def left(self) -> str:
        if len(self._finished) < 2:
            return "time left unknown"
        (r0, t0), (r1, t1) = self._finished[0], self._finished[-1]
        return f"{spoken_seconds((t1 - t0) / (r1 - r0) * (self.rounds - r1))} left"


def summary(entry: dict[str, Any]) -> list[str]:
    """The few figures of a round that a person follows: the server's score, the vote, the privacy spent."""
    parts = []
    if "server" in entry:
        parts.append(returns(entry["server"], digits=0))
    clients = list(entry.get("clients", {}).values())
    if clients and "vote_local" in clients[0]:
        shares = {
            who: sum(c[f"vote_{who}"] for c in clients) / len(clients) for who in ("local", "behaviour", "global")
        }
        parts.append("vote " + " ".join(f"{who} {share:.0%}" for who, share in shares.items()))
    if "privacy" in entry:
        parts.append(f"epsilon {entry['privacy']['epsilon']:.2f}")
    return parts


def returns(server: Mapping[str, Any], digits: int = 1) -> str:
    """An evaluation of the server's policy in words."""
    score = "" if server["score"] is None else f" (score {server['score']:.{digits}f})"
    return f"return {server['return']:.1f}{score}"


def spoken_seconds(seconds: float) -> str:
    """A time as a person says it, for instance 12 s or 1.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
