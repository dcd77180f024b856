"""What the files of a run over a network say about it: rounds, members, refusals, who is out."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.table import Table

from fova.run.directory import RunDirectory

OUT, REFUSED, JOINED = " is out of the run after ", "not admitted, ", " joined"


@dataclass
class Member:
    """What is known about one member."""

    joined: bool = False
    counted: int = 0  # rounds
    last: int = 0  # the last round that it counted in
    missing: int = 0
    rejected: int = 0
    reason: str = ""  # of the last refusal or rejection
    out: bool = False


@dataclass
class Status:
    """What is known about a run."""

    complete: bool
    rounds: int = 0
    members: dict[str, Member] = field(default_factory=dict)

    def member(self, name: str) -> Member:
        return self.members.setdefault(name, Member())


def status_of(run: RunDirectory) -> Status:
    """The status of a run, from metrics.jsonl and journal.jsonl. Under privacy the log names nobody."""
    status = Status(complete=run.is_complete())
    for entry in run.metrics():
        status.rounds = int(entry["round"])
        for name in entry.get("clients", {}):
            member = status.member(name)
            member.counted, member.last = member.counted + 1, status.rounds
        for name in entry.get("missing", []):
            status.member(name).missing += 1
        for name, why in entry.get("rejected_because", {}).items():
            member = status.member(name)
            member.rejected, member.reason = member.rejected + 1, why
    for note in _notes(run):
        if OUT in note:
            status.member(note.partition(OUT)[0]).out = True
        elif note.startswith(REFUSED):
            name, _, why = note.removeprefix(REFUSED).partition(": ")
            status.member(name).reason = why
        elif note.endswith(JOINED):
            status.member(note.removesuffix(JOINED)).joined = True
    return status


def _notes(run: RunDirectory) -> Iterator[str]:
    file = run.path / "journal.jsonl"
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # a line that is still being written
            continue
        if isinstance(event, dict) and event.get("event") == "note":
            yield str(event.get("text", ""))


def table(status: Status) -> Table:
    """The members of a run as a table."""
    shown = Table(box=None, header_style="", pad_edge=False)
    for heading in ("member", "state", "counted", "last", "missing", "rejected", "last reason"):
        shown.add_column(heading, overflow="fold")
    for name, member in sorted(status.members.items()):
        state = "out" if member.out else "joined" if member.joined else "not admitted"
        numbers = map(str, (member.counted, member.last or "-", member.missing, member.rejected))
        shown.add_row(name, state, *numbers, member.reason)
    return shown
