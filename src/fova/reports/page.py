"""The report: one HTML page that opens offline, on any screen, and asks the network for nothing.

It says in words how the runs ended and who won the vote, then shows it. Charts are SVG (`svg.py` says why); a
content security policy in the page itself forbids the browser every request.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fova.errors import FovaError
from fova.machine.files import write_atomically
from fova.reports import charts, palette, story
from fova.reports.groups import Group, comparable, read_groups
from fova.reports.markup import Markup, element
from fova.reports.reproduce import config_command, train_command
from fova.reports.scenes import Scene, scene
from fova.reports.series import client_returns, final_client_returns, votes
from fova.run.config import load_config
from fova.run.records import Record
from fova.tasks import registry
from fova.version import __version__

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

Pictures = Mapping[str, Scene | str | None]  # by the label of a group


def write_report(
    runs: Sequence[Path],
    output: Path,
    pictures: Pictures | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> Path:
    """Write the report of some runs to `output`. Without `pictures` they are drawn, which plays the policies."""
    groups = read_groups(runs)
    if pictures is None:
        pictures = _draw(groups, tell)
    write_atomically(output, page(groups, pictures).encode())
    return output


def _draw(groups: Sequence[Group], tell: Callable[[str], None]) -> Pictures:
    pictures = {}
    for group in groups:
        tell(f"playing {group.label} for its picture")
        pictures[group.label] = scene(group)
    return pictures


def page(groups: Sequence[Group], pictures: Pictures) -> str:
    """The whole page."""
    title = _title(groups)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Markup(_resource("page.css") + palette.css())),
    )
    body = element(
        "body",
        element(
            "header", element("h1", title), element("p", _subtitle(groups), class_="subtitle"), _contents(groups)
        ),
        element(
            "main", _overview(groups) if len(groups) > 1 else "", [_of_group(g, groups, pictures) for g in groups]
        ),
        element("script", Markup(_resource("page.js"))),
    )
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


# --- Parts of the page ---


def _title(groups: Sequence[Group]) -> str:
    if len(groups) == 1:
        return groups[0].first.directory.name if len(groups[0].records) == 1 else groups[0].label
    tasks = dict.fromkeys(group.task or "own data" for group in groups)
    return f"{len(groups)} settings on {', '.join(tasks)}"


def _subtitle(groups: Sequence[Group]) -> str:
    runs = sum(len(group.records) for group in groups)
    tasks = ", ".join(dict.fromkeys(group.task or "own data" for group in groups))
    return f"{tasks} · {runs} {'run' if runs == 1 else 'runs'} · written by fova {__version__}"


def _contents(groups: Sequence[Group]) -> Markup:
    if len(groups) == 1:
        return Markup()
    links = [element("li", element("a", group.label, href=f"#{_anchor(group, groups)}")) for group in groups]
    return element("nav", element("ul", links), aria_label="settings")


def _anchor(group: Group, groups: Sequence[Group]) -> str:
    return f"setting-{groups.index(group) + 1}"


def _overview(groups: Sequence[Group]) -> Markup:
    """Several settings beside one another: in words, as curves, in a table."""
    by_data = comparable(groups)
    parts = []
    for name, alike in by_data.items():
        parts.append(element("h3", name) if len(by_data) > 1 else Markup())
        parts += _paragraphs(story.comparison(alike))
        parts.append(element("div", charts.learning_curves(alike) or "", class_="pair"))
    runs = [_run_row(group, record) for group in groups for record in group.records]
    return element("section", element("h2", "In short"), parts, _table("Every run", _RUN_COLUMNS, runs))


def _of_group(group: Group, groups: Sequence[Group], pictures: Pictures) -> Markup:
    alone = len(groups) == 1
    curves = [charts.learning_curves([group]) if alone else None, charts.clients_over_training(group)]
    return element(
        "section",
        element("h2", "In short" if alone else group.label),
        _paragraphs(story.summary(group)),
        _picture(pictures.get(group.label)),
        element("div", [chart or "" for chart in (*curves, charts.server_against_clients(group))], class_="pair"),
        _votes(group),
        _clients(group),
        _run_again(group),
        id=_anchor(group, groups),
    )


def _picture(picture: Scene | str | None) -> Markup:
    if picture is None:
        return Markup()
    if isinstance(picture, str):
        return element("p", picture, class_="note")
    image = element("img", src=picture.data_uri(), alt=picture.caption)
    region = element("div", image, class_="scroll", tabindex="0", role="group", aria_label="picture")
    return element("figure", region, element("figcaption", picture.caption), class_="scene")


def _votes(group: Group) -> Markup:
    found = votes(group)
    if not found:
        return Markup()
    return element(
        "div",
        element("h3", "Who won the vote"),
        element(
            "p",
            "At every state that follows in a client's data, three actions compete: one from the client's own "
            "policy, the one in its data, one from the global policy. The client's critics pick the one they value "
            "most. Because these critics are kept conservative, they lean towards the data; a narrow win of the "
            "data says little.",
        ),
        element("ul", [element("li", sentence) for sentence in story.vote_summary(group, found)]),
        charts.vote_charts(found),
    )


# --- Tables ---


class Cell(NamedTuple):
    """What a cell shows, and by what it is sorted."""

    text: str
    value: str | float | None


_RUN_COLUMNS = (
    "run", "setting", "seed", "return", "score", "best along training", "mean client", "server minus mean client",
    "worst client", "rounds done",
)  # fmt: skip


def _run_row(group: Group, record: Record) -> list[Cell]:
    clients = list(final_client_returns(record).values())
    mean_client = float(np.mean(clients)) if clients else None
    final = record.final.server if record.final else None
    difference = final.mean_return - mean_client if final is not None and mean_client is not None else None
    return [
        Cell(record.directory.name, record.directory.name),
        Cell(group.label, group.label),
        Cell(str(record.seed), record.seed),
        _number(final.mean_return if final else None),
        _number(final.score if final else None),
        _number(max((played.server.mean_return for played in record.evaluations), default=None)),
        _number(mean_client),
        _number(difference),
        _number(min(clients, default=None)),
        Cell(f"{record.rounds_done} of {record.run.rounds}", record.rounds_done),
    ]


_CLIENT_COLUMNS = (
    "client", "rows", "episodes", "rounds it counted in", "rounds rejected", "rounds missed",
    "return of its data", "score of its data", "return of its own policy",
    "votes for its data", "votes for its own policy", "votes for the global policy",
    "distance from the policy it received", "weight at the server",
)  # fmt: skip


def _clients(group: Group) -> Markup:
    """Every client's data, what became of it, and its votes; columns without any figure are left out."""
    shares = group.first.server_weights or {}
    vote_shares = {client.client: client for client in votes(group)}
    rows = []
    for returns in client_returns(group):
        facts, client = group.first.clients[returns.client], vote_shares.get(returns.client)
        counts = (facts.rows, facts.episodes, facts.counted, facts.rejected, facts.missing)
        rows.append(
            [
                Cell(returns.client, returns.client),
                *(_number(count, "{:,}") for count in counts),
                _number(returns.data),
                _number(_score(group, returns.data)),
                _number(returns.policy),
                *(_percent(client.late(voter) if client else None) for voter in ("behaviour", "local", "global")),
                _number(_last_distance(group, returns.client), "{:.2f}"),
                _percent(shares.get(returns.client)),
            ]
        )
    filled = [i for i in range(len(_CLIENT_COLUMNS)) if any(row[i].value is not None for row in rows)]
    table = _table(
        "Every client: its data and its own policy at the end"
        + ("; votes are those of the last fifth of the run" if vote_shares else ""),
        [_CLIENT_COLUMNS[i] for i in filled],
        [[row[i] for i in filled] for row in rows],
    )
    return element("div", element("h3", "Clients and their data"), table) if rows else Markup()


def _score(group: Group, value: float | None) -> float | None:
    if value is None or group.task is None or group.task not in registry.names():
        return None
    return registry.get(group.task).normalised_score(value)


def _last_distance(group: Group, client: str) -> float | None:
    last = [record.last_round.clients.get(client, {}) for record in group.records if record.last_round]
    distances = [metrics["policy_distance"] for metrics in last if "policy_distance" in metrics]
    return float(np.mean(distances)) if distances else None


def _table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Markup:
    head = element("tr", [element("th", column, scope="col") for column in columns])
    body = [element("tr", _cell("th", row[0], "row"), [_cell("td", cell) for cell in row[1:]]) for row in rows]
    table = element(
        "table", element("caption", caption), element("thead", head), element("tbody", body), class_="sortable"
    )
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label=caption)


def _cell(name: str, cell: Cell, scope: str | None = None) -> Markup:
    return element(name, cell.text, data_value="" if cell.value is None else str(cell.value), scope=scope)


def _number(value: float | None, form: str = "{:,.1f}") -> Cell:
    shown = value is not None and not math.isnan(value)
    return Cell(form.format(value), value) if shown else Cell("", None)


def _percent(share: float | None) -> Cell:
    return Cell("", None) if share is None else Cell(story.percent(share), share)


# --- Running it again ---


def _run_again(group: Group) -> Markup:
    """The exact command, the same from the configuration, and the whole of that to look at."""
    record = group.first
    others = ", ".join(f"--seed {seed}" for seed in group.seeds[1:])
    seeds = f"That is seed {record.seed}. The other runs of this setting add {others}." if others else ""
    return element(
        "div",
        element("h3", "Run it again"),
        _command(record),
        element(
            "p",
            "From its configuration, which also fixes what defaults may become in later versions:",
        ),
        element("pre", element("code", config_command(record)), class_="command"),
        element("p", seeds) if seeds else "",
        element(
            "details",
            element("summary", "The whole configuration"),
            element(
                "pre", element("code", record.config_text), tabindex="0", role="group", aria_label="configuration"
            ),
        ),
    )


def _command(record: Record) -> Markup:
    try:
        command = train_command(load_config(record.directory / "config.toml"))
    except FovaError as error:  # an algorithm's file that has moved, a setting of another version
        return element("p", f"This version cannot write the run as one command. {error}", class_="note")
    if command is None:
        return element("p", "Flags alone cannot describe who took part; the configuration can.", class_="note")
    return element("pre", element("code", command), class_="command")


def _paragraphs(sentences: Iterable[str]) -> list[Markup]:
    return [element("p", sentence) for sentence in sentences]


def _resource(name: str) -> str:
    return resources.files("fova.reports").joinpath(name).read_text()
