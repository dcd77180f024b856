"""The report of a run: one HTML page that opens offline and asks the network for nothing."""

import base64
import html
import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fova.files import write_atomically
from fova.reports.curves import run_figure
from fova.runs import RunDirectory

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d0d7de; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
img { max-width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
pre { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; padding: .8rem; }
"""


def write_report(directory: Path, pictures: tuple[Path, ...] = ()) -> Path:
    """Write `report.html` into a run directory, with the given pictures on top, and return its path."""
    run = RunDirectory.open(directory)
    metrics, clients = run.metrics(), run.read_json("clients.json")
    result = run.read_json("result.json") if run.is_complete() else {}
    figure = run_figure(metrics, {name: client["behaviour_return"] for name, client in clients.items()})
    parts = [
        f"<h1>{html.escape(directory.name)}</h1>",
        f"<p>{html.escape(summary(metrics, clients, result))}</p>",
        *(_image(picture.read_bytes(), picture.stem) for picture in pictures),
        _image(_png(figure), "return over training and vote shares"),
        "<h2>Policies and data</h2>",
        _table(clients, result),
        "<h2>Configuration</h2>",
        f"<pre>{html.escape((directory / 'config.toml').read_text())}</pre>",
    ]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(directory.name)}</title><style>{STYLE}</style></head><body><main>"
        + "\n".join(parts)
        + "</main></body></html>\n"
    )
    path = directory / "report.html"
    write_atomically(path, page.encode())
    return path


def summary(metrics: list[dict[str, Any]], clients: dict[str, Any], result: dict[str, Any]) -> str:
    """The run in words."""
    rounds = metrics[-1]["round"] if metrics else 0
    average = sum(client["behaviour_return"] for client in clients.values()) / len(clients)
    words = f"{len(clients)} clients trained one policy together for {rounds} rounds."
    if "server" in result:
        words += (
            f" It earns a mean return of {result['server']['return']:.1f}; "
            f"the behaviour in the clients' data earned {average:.1f} on average."
        )
    return words


def _table(clients: dict[str, Any], result: dict[str, Any]) -> str:
    head = "<tr><th>policy</th><th>return</th><th>score</th><th>rows of data</th><th>return of the data</th></tr>"
    rows = []
    for name in ("server", *clients):
        played, data = result.get(name, {}), clients.get(name, {})
        figures = (played.get("return"), played.get("score"), data.get("rows"), data.get("behaviour_return"))
        cells = "".join(f"<td>{'' if f is None else f'{f:,.1f}'.removesuffix('.0')}</td>" for f in figures)
        rows.append(f"<tr><td>{html.escape(name)}</td>{cells}</tr>")
    return f"<table>{head}{''.join(rows)}</table>"


def _image(png: bytes, words: str) -> str:
    return f'<p><img alt="{html.escape(words)}" src="data:image/png;base64,{base64.b64encode(png).decode()}"></p>'


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()
