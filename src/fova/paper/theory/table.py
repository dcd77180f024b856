"""Check every statement of the paper on many random MDPs: the rows, the table and the pictures of `fova theory`.

`run` is the only entry point: it checks the statements, draws the pictures and writes the files. Verdicts come from
`statement.judge`. This module does not depend on the content of a statement.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from types import MappingProxyType

import numpy as np
from rich.console import Console
from rich.table import Table

from fova.paper.theory import conservatism, convergence, heterogeneity, improvement, projection, returns, safety
from fova.paper.theory.case import random_case
from fova.paper.theory.pictures import draw_all
from fova.paper.theory.statement import Row, Sides, Statement, Verdict, judge

TOPICS: MappingProxyType[str, tuple[Statement, ...]] = MappingProxyType(
    {
        "Conservatism": conservatism.STATEMENTS,
        "Return in the empirical MDP": returns.STATEMENTS,
        "What the updates solve": projection.STATEMENTS,
        "Improvement over the data": improvement.STATEMENTS,
        "Heterogeneity and averaging": heterogeneity.STATEMENTS,
        "Safe improvement": safety.STATEMENTS,
        "Convergence": convergence.STATEMENTS,
    }
)

WIDTH = 132  # of the printed table
HEADINGS = ("statement", "claim", "MDPs", "violated", "smallest margin", "verdict")
NUMBERS = ("MDPs", "violated", "smallest margin")


def run(directory: Path, mdps: int, seed: int, progress: Callable[[str], None]) -> list[Row]:
    """Check every statement on `mdps` random MDPs; write theory.md, theory.json and the pictures to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = check(mdps, seed, progress)
    (directory / "theory.md").write_text(format_markdown(rows), encoding="utf-8")
    (directory / "theory.json").write_text(json.dumps([_plain(row) for row in rows], indent=1), encoding="utf-8")
    draw_all(directory, seed, progress)
    return rows


def check(mdps: int, seed: int, progress: Callable[[str], None]) -> list[Row]:
    """The rows of all statements. MDP number i depends only on (seed, i), so a longer run extends a shorter one."""
    statements = [(topic, statement) for topic, group in TOPICS.items() for statement in group]
    seen: list[list[Sides]] = [[] for _ in statements]
    for number in range(mdps):
        case = random_case(np.random.default_rng([seed, number]))
        for (_, statement), sides in zip(statements, seen, strict=True):
            if number % statement.every == 0:
                sides.append(statement.check(case))
        if (number + 1) % 10 == 0 or number + 1 == mdps:
            progress(f"checked {len(statements)} statements on {number + 1} of {mdps} MDPs")
    rows: list[Row] = []
    false_steps: dict[str, bool] = {}
    for (topic, statement), sides in zip(statements, seen, strict=True):
        row = judge(topic, statement, sides, false_steps)
        if statement.kind == "proof step":
            false_steps[statement.claim] = row.verdict is Verdict.FALSE
        rows.append(row)
    return rows


# --- Showing rows -----------------------------------------------------------------------------------------


def format_table(rows: Sequence[Row]) -> str:
    """The rows as text for a terminal, with one table per topic."""
    text = StringIO()
    console = Console(file=text, width=WIDTH, markup=False)
    for topic, group in _by_topic(rows).items():
        table = Table(*HEADINGS, title=topic, title_justify="left")
        for column, heading in zip(table.columns, HEADINGS, strict=True):
            column.overflow = "fold"
            column.justify = "right" if heading in NUMBERS else "left"
        for row in group:
            table.add_row(row.label, *_cells(row))
        console.print(table)
    return text.getvalue()


def format_markdown(rows: Sequence[Row]) -> str:
    """The rows as Markdown, with one table per topic."""
    blocks = []
    for topic, group in _by_topic(rows).items():
        lines = [f"### {topic}", "", f"| {' | '.join(HEADINGS)} |"]
        lines.append("|" + "|".join("--:" if heading in NUMBERS else "---" for heading in HEADINGS) + "|")
        for row in group:
            cells = [cell.replace("|", "\\|") for cell in (f"`{row.label}`", *_cells(row))]
            lines.append(f"| {' | '.join(cells)} |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _by_topic(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.topic, []).append(row)
    return groups


def _cells(row: Row) -> tuple[str, ...]:
    claim = row.claim if row.kind == "printed" else f"{row.kind}: {row.claim}"
    violated = "" if row.verdict in (Verdict.SHOWN, Verdict.NOT_SHOWN) else str(row.violated)
    return claim, str(row.checked), violated, _margin(row), row.finding


def _margin(row: Row) -> str:
    """The smallest margin on random MDPs, and the margin of the counter-example if there is one."""
    shown = _number(row.smallest_margin)
    if row.counter_example_margin is not None:
        shown += f" ({_number(row.counter_example_margin)})"
    return shown


def _number(value: float) -> str:
    return "0" if abs(value) < 1e-9 else f"{value:.2g}"


def _plain(row: Row) -> dict[str, str | int | float | None]:
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in asdict(row).items()}
