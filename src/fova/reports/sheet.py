"""A table of words, written as Markdown, CSV or LaTeX, or shown in the terminal, whatever it is about."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from fova.machine.files import write_atomically

LATEX = {
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
}
LATEX |= {
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "−": "$-$",
    "×": r"$\times$",
    "<": "$<$",
    ">": "$>$",
}


@dataclass(frozen=True)
class Sheet:
    """The first column names the row; the others hold figures. A cell in `bold` stands out: (row, column)."""

    title: str
    caption: str  # scale, unit, what the figures in brackets are
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()

    def markdown(self) -> str:
        lines = [self.columns, ("---", *["---:"] * (len(self.columns) - 1)), *self._emphasised("**", "**")]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"**{self.title}**\n\n{table}\n\n*{self.caption}*\n"

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([f"# {self.title}. {self.caption}"])
        writer.writerows([self.columns, *self.rows])
        return out.getvalue()

    def latex(self) -> str:
        """For a document that loads booktabs."""
        rows = [tuple(map(latex, row)) for row in self.rows]
        rows = list(Sheet("", "", (), tuple(rows), self.bold)._emphasised(r"\textbf{", "}"))
        body = "\n".join(f"{' & '.join(row)} \\\\" for row in rows)
        return "\n".join(
            (
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{latex(self.title)}. {latex(self.caption)}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
                r"\toprule",
                f"{' & '.join(map(latex, self.columns))} \\\\",
                r"\midrule",
                body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            )
        )

    def terminal(self) -> Table:
        table = Table(title=self.title, caption=self.caption)
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="left" if number == 0 else "right")
        for row in self._emphasised("[bold]", "[/bold]"):
            table.add_row(*row)
        return table

    def save(self, stem: Path) -> list[Path]:
        """Write STEM.md, STEM.csv and STEM.tex."""
        texts = {".md": self.markdown(), ".csv": self.csv(), ".tex": self.latex()}
        paths = [stem.with_name(stem.name + ending) for ending in texts]
        for path, text in zip(paths, texts.values()):
            write_atomically(path, text.encode())
        return paths

    def _emphasised(self, before: str, after: str) -> Sequence[tuple[str, ...]]:
        return [
            tuple(f"{before}{cell}{after}" if (i, j) in self.bold else cell for j, cell in enumerate(row))
            for i, row in enumerate(self.rows)
        ]


def latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)
