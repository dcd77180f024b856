"""What `fova.train` returns, and how it looks in a terminal and in a notebook."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from fova.evaluation.rollouts import Rollouts
from fova.policy import Policy

HEADER = ("policy", "return", "spread", "score", "episodes")


@dataclass(frozen=True, repr=False)
class Result:
    """The results of a finished run. Everything is also in `directory`."""

    directory: Path
    policy: Policy | None  # the server's; None in local mode, which has no server
    server: Rollouts | None  # None without a task; in local mode, all clients' episodes together
    clients: dict[str, Rollouts]  # each client's own policy at the end
    notes: tuple[str, ...] = ()  # what was left out of the data, and what in it looks like a mistake

    def __repr__(self) -> str:
        """A table of the final evaluation, and where the files are."""
        rows = list(self._rows())
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))] if self.server else []
        table = ["  ".join(_aligned(row, widths)).rstrip() for row in rows] if self.server else []
        return "\n".join([*table, *(f"{name:<8} {value}" for name, value in self._lines())])

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        table = ""
        if self.server is not None:
            header, *rows = self._rows()
            head = "".join(f"<th>{name}</th>" for name in header)
            body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
            table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        lines = "".join(f"<div>{name}: <code>{escape(value)}</code></div>" for name, value in self._lines())
        return f"<div>{table}{lines}</div>"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        yield HEADER
        overall = "server" if self.policy is not None else "all clients"
        for name, played in ({overall: self.server} | self.clients).items():
            if played is not None:
                score = "" if played.score is None else f"{played.score:.1f}"
                spread = f"{played.returns.std():.1f}"
                yield name, f"{played.mean_return:.1f}", spread, score, str(len(played.returns))

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "run", str(self.directory)
        if self.policy is not None:
            yield "policy", str(self.directory / "policy.safetensors")
            yield "takes", self.policy.space.words()
        yield "to read", f"fova report {self.directory}"
        yield from (("note", note) for note in self.notes)


def _aligned(row: tuple[str, ...], widths: list[int]) -> Iterator[str]:
    """The cells of a row; names to the left, figures to the right."""
    for column, (cell, width) in enumerate(zip(row, widths)):
        yield cell.ljust(width) if column == 0 else cell.rjust(width)
