"""How far a run is: rounds done, time left, and whether news still comes. Read from the run's files."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fova.data.fields import counted
from fova.run.directory import STOPPED_EARLY, VERDICT
from fova.run.records import Record

FILES = (
    "config.toml",
    "clients.json",
    "metrics.jsonl",
    "timing.jsonl",
    "result.json",
    "server.json",
    VERDICT,
    STOPPED_EARLY,
)
QUIET_SECONDS = 60.0  # without news, a run is no longer called training; or five of its rounds if these are longer
RECENT = 10  # rounds that the time left is estimated from

Fingerprint = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True)
class State:
    """How far a run is."""

    rounds_done: int
    rounds: int
    words: str

    @property
    def share(self) -> float:
        return self.rounds_done / self.rounds if self.rounds else 1.0


def fingerprint(run: Path) -> Fingerprint:
    """Changes whenever a file of the run changes."""
    return tuple(_seen(run / name) for name in FILES)


def _seen(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def state(record: Record, now: float) -> State:
    """How far the run is at the time `now`, in seconds since the epoch."""
    done, rounds = record.rounds_done, record.run.rounds
    if record.complete:
        words = "finished" if done >= rounds else f"stopped early after {counted(done, 'round')}"
        return State(done, rounds, words)
    seconds = _seconds_of_a_round(record)
    quiet = now - _last_news(record.directory)
    if quiet > max(QUIET_SECONDS, 5 * seconds):
        return State(done, rounds, f"no news for {duration(quiet)}")
    if not done:
        return State(done, rounds, "starting")
    return State(done, rounds, f"training, about {duration(seconds * (rounds - done))} left")


def _seconds_of_a_round(record: Record) -> float:
    recent = [line.seconds + line.evaluation for line in record.timing[-RECENT:]]
    return float(np.mean(recent)) if recent else 0.0


def _last_news(run: Path) -> float:
    return max((seen[0] / 1e9 for seen in fingerprint(run) if seen), default=0.0)


def duration(seconds: float) -> str:
    """A time in the largest unit of which there are two or more."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * length:
            return counted(round(seconds / length), unit)
    return "a minute" if seconds >= 45 else counted(max(5, 5 * round(seconds / 5)), "second")
