"""What a person sees while a run is under way: a live line, plain lines for logs, or nothing."""

import time
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

# A plain log gets a line at evaluations and otherwise about this often.
SECONDS_BETWEEN_LINES = 10.0


class Progress(Protocol):
    def status(self, message: str) -> None:
        """What is being done right now, where it is not a round."""

    def note(self, message: str) -> None:
        """Something to remember: it stays on the screen."""

    def start(self, first: int, rounds: int) -> None: ...

    def round(self, entry: dict[str, Any]) -> None:
        """One more round is finished; `entry` is its line of metrics.jsonl."""

    def finish(self) -> None: ...


class Quiet:
    """Says nothing."""

    def status(self, message: str) -> None:
        pass

    def note(self, message: str) -> None:
        pass

    def start(self, first: int, rounds: int) -> None:
        pass

    def round(self, entry: dict[str, Any]) -> None:
        pass

    def finish(self) -> None:
        pass


class Clock:
    """Time left, from the rounds since the first one, which also compiled."""

    def __init__(self, first: int, rounds: int) -> None:
        self.rounds = rounds
        self._finished: list[tuple[int, float]] = []
        self._began = time.monotonic()

    def tick(self, finished: int) -> None:
        self._finished.append((finished, time.monotonic()))

    def left(self) -> str:
        if len(self._finished) < 2:
            return "time left unknown"
        (r0, t0), (r1, t1) = self._finished[0], self._finished[-1]
        return f"{spoken_seconds((t1 - t0) / (r1 - r0) * (self.rounds - r1))} left"


class Plain:
    """One line now and then, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_line = 0.0

    def status(self, message: str) -> None:
        self._console.print(f"... {message}", highlight=False, soft_wrap=True, markup=False)

    def note(self, message: str) -> None:
        self._console.print(message, highlight=False, soft_wrap=True, markup=False)

    def start(self, first: int, rounds: int) -> None:
        self._clock = Clock(first, rounds)

    def round(self, entry: dict[str, Any]) -> None:
        self._clock.tick(entry["round"])
        due = time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES
        if due or "server" in entry or entry["round"] == self._clock.rounds:
            self._last_line = time.monotonic()
            head = f"round {entry['round']}/{self._clock.rounds}"
            self._console.print(
                "  ".join(filter(None, (head, *summary(entry), self._clock.left()))),
                highlight=False,
                soft_wrap=True,
            )

    def finish(self) -> None:
        pass


class Live:
    """A progress bar with round, time left, the server's score and who is winning the vote."""

    def __init__(self, console: Console) -> None:
        self._console = console
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
        self._server = ""
        self._bar.start()

    def status(self, message: str) -> None:
        self._bar.update(self._task, state=escape(message))

    def note(self, message: str) -> None:
        self._bar.console.print(message, highlight=False, markup=False)  # above the bar

    def start(self, first: int, rounds: int) -> None:
        self._clock = Clock(first, rounds)
        self._bar.update(self._task, total=rounds, completed=first, state="starting")

    def round(self, entry: dict[str, Any]) -> None:
        self._clock.tick(entry["round"])
        server, *rest = (*summary(entry), "")
        if "server" in entry:
            self._server = server
        else:
            rest = [server, *rest]
        state = "  ".join(filter(None, ("round", self._server, *rest)))
        self._bar.update(self._task, completed=entry["round"], state=state, left=self._clock.left())

    def finish(self) -> None:
        self._bar.stop()


def summary(entry: dict[str, Any]) -> list[str]:
    """The few figures of a round that a person follows: the server's score, the vote, privacy spent."""
    parts = []
    if "server" in entry:
        server = entry["server"]
        score = "" if server["score"] is None else f" (score {server['score']:.0f})"
        parts.append(f"return {server['return']:.1f}{score}")
    clients = list(entry.get("clients", {}).values())
    if clients and "vote_local" in clients[0]:
        shares = {
            who: sum(c[f"vote_{who}"] for c in clients) / len(clients) for who in ("local", "behaviour", "global")
        }
        parts.append("vote " + " ".join(f"{who} {share:.0%}" for who, share in shares.items()))
    if "privacy" in entry:
        parts.append(f"epsilon {entry['privacy']['epsilon']:.2f}")
    return parts


def spoken_seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def choose(quiet: bool, plain: bool, console: Console) -> Progress:
    """The display that fits: live on a terminal, plain lines elsewhere, nothing when told to be quiet."""
    if quiet:
        return Quiet()
    return Plain(console) if plain or not console.is_terminal else Live(console)
