"""Displays for many runs at once: they take the events of every run and show the time left for all of them."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from fova.machine.claims import Sign
from fova.progress import Event, Failed, Finished, Note, Round, Started, Status, returns, spoken_seconds


class RunSize(NamedTuple):
    """The size of a run."""

    gradient_steps: int
    rounds: int


class Display(Protocol):
    def begin(self, sizes: Mapping[str, RunSize], states: Mapping[str, str]) -> None:
        """Announce all runs by name, and the state that each is in before this call."""

    def place(self, name: str, machine: str | None) -> None:
        """Say on which machine a run is trained; None is this one."""

    def __call__(self, name: str, event: Event) -> None:
        """Show an event of a run. `Finished` and `Failed` come once for each run."""

    def end(self) -> None: ...


class Ledger:
    """How much of all runs is done and how long the rest takes, in gradient steps."""

    def __init__(self, sizes: Mapping[str, RunSize], states: Mapping[str, str]) -> None:
        self.sizes = sizes
        self.to_do = [name for name in sizes if states[name] != "finished"]
        self.total = sum(sizes[name].gradient_steps for name in self.to_do)
        self.share = dict.fromkeys(self.to_do, 0.0)  # of each run
        self._first: dict[str, float] = {}  # share of each run at its first event: done in an earlier call
        self._began = time.monotonic()
        self.closed = 0

    def round(self, name: str, number: int) -> None:
        self.share[name] = number / self.sizes[name].rounds
        self._first.setdefault(name, self.share[name])

    def close(self, name: str) -> None:
        self.share[name] = 1.0
        self.closed += 1

    def done(self) -> float:
        return sum(share * self.sizes[name].gradient_steps for name, share in self.share.items())

    def left(self) -> str:
        before = sum(share * self.sizes[name].gradient_steps for name, share in self._first.items())
        gained = self.done() - before
        if gained <= 0:
            return "time left unknown"
        seconds = (time.monotonic() - self._began) / gained * (self.total - self.done())
        return f"about {spoken_seconds(seconds)} left"

    def count(self) -> str:
        return f"{self.closed}/{len(self.to_do)}"


class PlainDisplay:
    """One line for each run that starts or ends, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running: set[str] = set()
        self._machines: dict[str, str] = {}  # where runs are trained, if not here

    def begin(self, sizes: Mapping[str, RunSize], states: Mapping[str, str]) -> None:
        self._ledger = Ledger(sizes, states)
        self._states = states
        kept = len(sizes) - len(self._ledger.to_do)
        if kept:
            self._print(f"{kept} of {len(sizes)} runs are finished already")

    def place(self, name: str, machine: str | None) -> None:
        if machine == self._machines.get(name):
            return
        self._machines |= {name: machine or "this machine"}
        if name in self._running:
            self._moved(name)

    def __call__(self, name: str, event: Event) -> None:
        if name not in self._running:
            self._running.add(name)
            if not isinstance(event, Finished):  # it was finished elsewhere before we could see it
                self._open(name)
        match event:
            case Status(text):
                self._status(name, text)
            case Note(text):
                self._print(f"{name}: {text}")
            case Started(first, _):
                self._round(name, first)
            case Round(entry):
                self._round(name, entry["round"])
            case Finished(server):
                result = returns(server) if server else ""
                self._ledger.close(name)
                self._ended(name, "  ".join(filter(None, (f"{name}: finished", result, self._ledger.left()))))
            case Failed(text):
                self._ledger.close(name)
                self._ended(name, f"{name}: failed: {text.splitlines()[0]}")

    def end(self) -> None:
        pass

    def _open(self, name: str) -> None:
        begun = "going on where it stopped" if self._states[name] == "to resume" else "started"
        machine = self._machines.get(name)
        self._print(f"{name}: {f'under way on {machine}' if machine else begun}")

    def _moved(self, name: str) -> None:
        self._print(f"{name}: going on where it stopped, on {self._machines[name]}")

    def _status(self, name: str, text: str) -> None:
        pass

    def _round(self, name: str, number: int) -> None:
        self._ledger.round(name, number)

    def _ended(self, name: str, text: str) -> None:
        self._print(f"[{self._ledger.count()}] {text}")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


class LiveDisplay(PlainDisplay):
    """The same lines above one bar for everything and one for each run under way."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bars = Bars(
            TextColumn("{task.description}"),
            TextColumn("{task.fields[machine]}", style="cyan"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._bar_of: dict[str, Any] = {}

    def begin(self, sizes: Mapping[str, RunSize], states: Mapping[str, str]) -> None:
        super().begin(sizes, states)
        self._all = self._bars.add_task("all runs", total=self._ledger.total, words="", machine="")
        self._bars.start()

    def end(self) -> None:
        self._bars.stop()

    def _open(self, name: str) -> None:
        rounds, machine = self._ledger.sizes[name].rounds, self._machines.get(name, "")
        self._bar_of[name] = self._bars.add_task(name, total=rounds, words="starting", machine=machine)

    def _moved(self, name: str) -> None:
        self._bars.update(self._bar_of[name], machine=self._machines[name])

    def _status(self, name: str, text: str) -> None:
        self._bars.update(self._bar_of[name], words=text)

    def _round(self, name: str, number: int) -> None:
        super()._round(name, number)
        self._bars.update(self._bar_of[name], completed=number, words=f"round {number}")
        self._update()

    def _ended(self, name: str, text: str) -> None:
        super()._ended(name, text)
        if name in self._bar_of:
            self._bars.remove_task(self._bar_of.pop(name))
        self._update()

    def _update(self) -> None:
        words = f"{self._ledger.count()} runs, {self._ledger.left()}"
        self._bars.update(self._all, completed=self._ledger.done(), words=words)


def show_sign(display: Display, name: str, sign: Sign) -> None:
    """Show what another machine does, from the sign of life that it gave for a run."""
    display.place(name, sign.machine)
    display(name, Status(sign.doing) if sign.doing else Round({"round": sign.round}))


def choose(plain: bool, console: Console) -> Display:
    """The display that fits: live on a terminal, plain lines elsewhere."""
    return PlainDisplay(console) if plain or not console.is_terminal else LiveDisplay(console)
