"""Who takes part in a run over a network: offences that put a member out, and silence that puts it on the bench.

No clock and no network here: the engine says what happened, and asks who is to be asked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LONGEST_BENCH = 64  # rounds
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0  # seconds until a node that was not admitted is asked again


class Refusal(NamedTuple):
    """Why a message cannot be used, and whether that is the member's fault."""

    why: str
    offence: bool = True


@dataclass
class Record:
    """What members did so far."""

    eject_after: int  # so many offences put a member out of the run; 0 never
    offences: dict[str, int] = field(default_factory=dict)
    silences: dict[str, int] = field(default_factory=dict)  # questions in a row without an answer
    benched: dict[str, int] = field(default_factory=dict)  # the first round in which it is asked again

    # --- Offences ---

    def offend(self, name: str) -> bool:
        """Count an offence. Returns whether it is the one that puts the member out."""
        self.offences[name] = self.offences.get(name, 0) + 1
        return self.offences[name] == self.eject_after

    def is_out(self, name: str) -> bool:
        return 0 < self.eject_after <= self.offences.get(name, 0)

    # --- Silence ---

    def answered(self, names: Iterable[str]) -> None:
        for name in names:
            self.silences.pop(name, None)
            self.benched.pop(name, None)

    def missed(self, names: Iterable[str], number: int) -> None:
        """Members that did not answer in round `number` sit out the next 1, 2, 4, ... rounds."""
        for name in names:
            self.silences[name] = self.silences.get(name, 0) + 1
            self.benched[name] = number + 1 + min(2 ** (self.silences[name] - 1), LONGEST_BENCH)

    def playing(self, clients: Mapping[str, Any], number: int, fewest: int) -> dict[str, Any]:
        """The clients that are not on the bench in this round; all of them, if too few would be left."""
        chosen = {name: node for name, node in clients.items() if self.benched.get(name, 0) <= number}
        return chosen if len(chosen) >= min(fewest, len(clients)) else dict(clients)


@dataclass
class Door:
    """Nodes that were not admitted. Each is asked again after a pause, which doubles every time."""

    times: dict[int, int] = field(default_factory=dict)  # node -> how often it was not admitted
    until: dict[int, float] = field(default_factory=dict)  # node -> when it is asked again

    def refuse(self, node: int, now: float) -> None:
        pause = min(FIRST_PAUSE * 2 ** self.times.get(node, 0), LONGEST_PAUSE)
        self.times[node] = self.times.get(node, 0) + 1
        self.until[node] = now + pause

    def closed(self, now: float) -> set[int]:
        return {node for node, until in self.until.items() if now < until}
