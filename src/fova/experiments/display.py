"""What a person sees while many runs are under way: one display for all of them, with the time left."""

import time
from collections.abc import Mapping
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fova.progress import spoken_seconds


class Display(Protocol):
    def begin(self, sizes: Mapping[str, tuple[int, int]], there: Mapping[str, str]) -> None:
        """All runs by name, with their gradient steps and rounds, and what is there of each already."""

    def started(self, name: str) -> None: ...

    def status(self, name: str, words: str) -> None: ...

    def note(self, name: str, words: str) -> None:
        """Something about a run that stays on the screen."""

    def round(self, name: str, number: int) -> None:
        """So many rounds of a run are done."""

    def played(self, name: str, server: dict[str, Any] | None) -> None:
        """The final evaluation of a run."""

    def finished(self, name: str) -> None: ...

    def failed(self, name: str, message: str) -> None: ...

    def end(self) -> None: ...


class Ledger:
    """How much is done and how long the rest will take, in gradient steps."""

    def __init__(self, sizes: Mapping[str, tuple[int, int]], there: Mapping[str, str]) -> None:
        self.sizes = sizes
        self.to_do = [name for name in sizes if there[name] != "finished"]
        self.total = sum(sizes[name][0] for name in self.to_do)
        self.share = dict.fromkeys(self.to_do, 0.0)  # of each run
        self._first: dict[str, float] = {}  # share of each run when it was first heard of: done in an earlier call
        self._began = time.monotonic()
        self.closed = 0

    def round(self, name: str, number: int) -> None:
        self.share[name] = number / self.sizes[name][1]
        self._first.setdefault(name, self.share[name])

    def close(self, name: str) -> None:
        self.share[name] = 1.0
        self.closed += 1

    def done(self) -> float:
        return sum(share * self.sizes[name][0] for name, share in self.share.items())

    def left(self) -> str:
        before = sum(share * self.sizes[name][0] for name, share in self._first.items())
        gained = self.done() - before
        if gained <= 0:
            return "time left unknown"
        seconds = (time.monotonic() - self._began) / gained * (self.total - self.done())
        return f"about {spoken_seconds(seconds)} left"

    def count(self) -> str:
        return f"{self.closed}/{len(self.to_do)}"


def spoken_result(server: dict[str, Any] | None) -> str:
    if server is None:
        return ""
    score = "" if server["score"] is None else f" (score {server['score']:.1f})"
    return f"return {server['return']:.1f}{score}"


class PlainDisplay:
    """One line for each run that starts or ends, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._results: dict[str, str] = {}

    def begin(self, sizes: Mapping[str, tuple[int, int]], there: Mapping[str, str]) -> None:
        self._ledger = Ledger(sizes, there)
        self._there = there
        kept = len(sizes) - len(self._ledger.to_do)
        if kept:
            self._say(f"{kept} of {len(sizes)} runs are finished already")

    def started(self, name: str) -> None:
        self._say(f"{name}: {'going on where it stopped' if self._there[name] == 'to resume' else 'started'}")

    def status(self, name: str, words: str) -> None:
        pass

    def note(self, name: str, words: str) -> None:
        self._say(f"{name}: {words}")

    def round(self, name: str, number: int) -> None:
        self._ledger.round(name, number)

    def played(self, name: str, server: dict[str, Any] | None) -> None:
        self._results[name] = spoken_result(server)

    def finished(self, name: str) -> None:
        self._ledger.close(name)
        words = "  ".join(filter(None, (f"{name}: finished", self._results.get(name, ""), self._ledger.left())))
        self._say(f"[{self._ledger.count()}] {words}")

    def failed(self, name: str, message: str) -> None:
        self._ledger.close(name)
        self._say(f"[{self._ledger.count()}] {name}: failed: {message.splitlines()[0]}")

    def end(self) -> None:
        pass

    def _say(self, words: str) -> None:
        self._console.print(words, highlight=False, soft_wrap=True, markup=False)


class LiveDisplay(PlainDisplay):
    """The same lines above one bar for everything and one for each run under way."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._of: dict[str, Any] = {}

    def begin(self, sizes: Mapping[str, tuple[int, int]], there: Mapping[str, str]) -> None:
        super().begin(sizes, there)
        self._all = self._bars.add_task("all runs", total=self._ledger.total, words="")
        self._bars.start()

    def started(self, name: str) -> None:
        self._of[name] = self._bars.add_task(name, total=self._ledger.sizes[name][1], words="starting")

    def status(self, name: str, words: str) -> None:
        self._bars.update(self._of[name], words=words)

    def round(self, name: str, number: int) -> None:
        super().round(name, number)
        self._bars.update(self._of[name], completed=number, words=f"round {number}")
        self._update()

    def finished(self, name: str) -> None:
        super().finished(name)
        self._close(name)

    def failed(self, name: str, message: str) -> None:
        super().failed(name, message)
        self._close(name)

    def end(self) -> None:
        self._bars.stop()

    def _close(self, name: str) -> None:
        self._bars.remove_task(self._of.pop(name))
        self._update()

    def _update(self) -> None:
        words = f"{self._ledger.count()} runs, {self._ledger.left()}"
        self._bars.update(self._all, completed=self._ledger.done(), words=words)


def choose(plain: bool, console: Console) -> Display:
    """The display that fits: live on a terminal, plain lines elsewhere."""
    return PlainDisplay(console) if plain or not console.is_terminal else LiveDisplay(console)
