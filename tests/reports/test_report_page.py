"""The page as text; `test_page_in_browser.py` opens it in a browser."""

import re
from html.parser import HTMLParser

import pytest

from fova.reports.page import write_report
from fova.reports.scenes import Scene
from made_runs import make_run

VOID = {"meta", "link", "img"}


class Balance(HTMLParser):
    """Insists that every element that is opened is closed again, in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page_of(runs, folder, pictures=()):
    return write_report(runs, folder / "report.html", dict(pictures)).read_text()


def table_row(page, name):
    row = re.search(rf'<tr><th data-value="{name}".*?</tr>', page).group()
    return re.findall(r"<t[hd][^>]*>([^<]*)<", row)


def test_the_page_is_whole_and_asks_the_network_for_nothing(tmp_path):
    page = page_of([make_run(tmp_path / "one")], tmp_path, {"fova": Scene(b"png", "in the maze")})
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert set(re.findall(r'(?:src|href)="([^"]{0,5})', page)) == {"data:"}
    assert 'alt="in the maze"' in page
    assert "url(" not in page
    assert "@import" not in page


def test_what_users_wrote_stays_text(tmp_path):
    clients = '[{ data = "expert", name = "<b>north</b>" }, { data = "random", name = "s&s" }]'
    page = page_of([make_run(tmp_path / "<i>run</i>", clients=clients)], tmp_path)
    assert "<i>" not in page
    assert "<b>north" not in page
    assert "&lt;b&gt;north&lt;/b&gt;" in page


def test_clients_with_data_policy_votes_and_weight(tmp_path):
    page = page_of([make_run(tmp_path / "one", extra="value_weight = 0.1\n")], tmp_path)
    # rows, episodes, data, its score on maze2d-umaze, own policy, votes (data, own, global), distance, weight
    assert table_row(page, "expert-1") == [
        "expert-1", "100", "2", "40.0", "11.7", "36.0", "88%", "7%", "5%", "0.25", "65%",
    ]  # fmt: skip
    assert "votes for its data" not in page_of([make_run(tmp_path / "two", algorithm="fedora")], tmp_path)


def test_every_run_of_a_comparison_is_in_its_table(tmp_path):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", algorithm="fedora", finished=False)]
    page = page_of(runs, tmp_path)
    # setting, seed, return, score, best, mean client, server minus it, worst client, rounds
    assert table_row(page, "a") == ["a", "fova", "0", "30.0", "50.0", "30.0", "25.0", "5.0", "14.0", "10 of 10"]
    assert table_row(page, "b") == ["b", "fedora", "0", "", "", "30.0", "", "", "", "10 of 10"]
    assert 'href="#setting-2"' in page
    assert 'id="setting-2"' in page


def test_a_federation_over_a_network_knows_nothing_of_the_data(tmp_path):
    run = make_run(tmp_path / "far", clients="[]")
    (run / "clients.json").write_text('{"north": {"counted": 10}, "south": {"counted": 7, "missing": 3}}')
    (run / "result.json").write_text('{"server": {"return": 30.0, "score": null}}')
    (run / "server.json").write_text("{}")
    page = page_of([run], tmp_path)
    assert "fova trained one policy on maze2d-umaze across 2 clients: 10 rounds" in page
    assert "they did not tell" in page
    assert "Server against clients" not in page
    assert table_row(page, "south") == ["south", "7", "3"]
    assert "fova server --config " in page


def test_a_run_without_a_task_still_shows_its_votes(tmp_path):
    page = page_of([make_run(tmp_path / "wards", task=None)], tmp_path)
    assert "there is no task to play it in" in page
    assert "Who won the vote" in page
    assert "Return over training" not in page


@pytest.mark.parametrize("algorithm", ["fova", "elsewhere/mine.py"])
def test_a_run_can_be_run_again(tmp_path, algorithm):
    page = page_of([make_run(tmp_path / "one", algorithm=algorithm)], tmp_path)
    assert f"fova train --config {tmp_path}/one/config.toml" in page
    assert "local_steps = 100" in page  # the whole configuration
    by_flags = "fova train --task maze2d-umaze --clients expert random --size 100 --rounds 10" in page
    assert by_flags == (algorithm == "fova")
    assert ("This version cannot write the run as one command." in page) != by_flags


def test_a_run_under_way_is_a_report_too(tmp_path):
    run = make_run(tmp_path / "young", rounds=1, finished=False)
    first_line = (run / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
    (run / "metrics.jsonl").write_text(first_line)
    assert "0 of 1 rounds are done" in page_of([run], tmp_path)
    (run / "metrics.jsonl").unlink()
    (run / "clients.json").unlink()
    assert "not finished" in page_of([run], tmp_path)
