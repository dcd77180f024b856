import json
import re

import pytest

from fova.files import write_atomically
from fova.reports.curves import run_figure
from fova.reports.page import summary, write_report

CLIENTS = {
    "a": {"rows": 10, "episodes": 2, "behaviour_return": 4.0},
    "b <x>": {"rows": 5, "episodes": 1, "behaviour_return": 2.0},
}
VOTES = {"vote_local": 0.2, "vote_behaviour": 0.5, "vote_global": 0.3}
METRICS = [
    {
        "round": number,
        "clients": dict.fromkeys(CLIENTS, VOTES),
        "server": {"return": 2.0 * number, "score": None},
    }
    for number in range(1, 4)
]
RESULT = {"server": {"return": 6.5, "score": 65.0}, "a": {"return": 5.0, "score": None}}


@pytest.fixture
def run(tmp_path):
    (tmp_path / "config.toml").write_text('task = "<somewhere>"\n')
    write_atomically(tmp_path / "metrics.jsonl", "".join(json.dumps(m) + "\n" for m in METRICS).encode())
    write_atomically(tmp_path / "clients.json", json.dumps(CLIENTS).encode())
    write_atomically(tmp_path / "result.json", json.dumps(RESULT).encode())
    return tmp_path


def test_the_page_is_self_contained_and_escapes_what_users_wrote(run):
    page = write_report(run).read_text()
    assert not re.search(r'(src|href)="(?!data:)', page), "no request may leave the page"
    assert "<x>" not in page
    assert "&lt;somewhere&gt;" in page
    assert page.count("data:image/png;base64,") == 1
    assert re.search(r"<td>server</td><td>6.5</td><td>65</td>", page)


def test_the_run_in_words():
    words = summary(METRICS, CLIENTS, RESULT)
    assert words == (
        "2 clients trained one policy together for 3 rounds. It earns a mean return of 6.5; the behaviour in the "
        "clients' data earned 3.0 on average."
    )
    assert "return" not in summary(METRICS, CLIENTS, {})


def test_the_figure_draws_the_curve_and_every_clients_votes():
    figure = run_figure(METRICS, {"a": 4.0, "b": 2.0})
    curve, *votes = figure.axes
    assert curve.get_lines()[0].get_ydata().tolist() == [2.0, 4.0, 6.0]
    assert [axes.get_title() for axes in votes] == list(CLIENTS)
    without_votes = [{"round": 1, "clients": {"a": {"actor_loss": 1.0}}}]
    assert run_figure(without_votes, {"a": 4.0}).axes == []
