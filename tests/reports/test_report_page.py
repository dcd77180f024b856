"""The page as text; `test_page_in_browser.py` opens it in a browser."""

import base64
import hashlib
import html
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import hospitals
from fova.commands.run_arguments import parse_run
from fova.commands.server import ServerOptions
from fova.commands.train import parse_train
from fova.data.tables.columns import Columns
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.network.server_config import ServerConfig, write_server
from fova.reports.groups import read_groups
from fova.reports.page import page, write_report
from fova.reports.scenes import Scene
from fova.run.config import load_config
from fova.run.directory import RunDirectory
from fova.tasks import registry
from made_runs import CLIENTS, described, entries, interrupt, make_network_run, make_run, result, start_run

VOID = {"meta", "link", "img"}
MINE = """
from dataclasses import dataclass
from fova.algorithms.bc import FedBc

@dataclass(frozen=True)
class Mine(FedBc):
    name = "mine"
"""


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
    text = page_of([make_run(tmp_path / "one")], tmp_path, {"fova": Scene(b"png", "in the maze")})
    balance = Balance()
    balance.feed(text)
    assert balance.open == []
    assert text.startswith("<!doctype html>")
    assert set(re.findall(r'(?:src|href)="([^"]{0,5})', text)) == {"data:"}
    assert 'alt="in the maze"' in text
    assert "default-src 'none'" in html.unescape(text)
    assert "url(" not in text
    assert "@import" not in text


def test_what_users_wrote_stays_text(tmp_path):
    clients = tuple(replace(spec, name=name) for spec, name in zip(CLIENTS, ("<b>north</b>", "s&s")))
    text = page_of([make_run(tmp_path / "<i>run<" / "i>", clients=clients)], tmp_path)
    assert "<i>" not in text
    assert "<b>north" not in text
    assert "&lt;b&gt;north&lt;/b&gt;" in text


def test_clients_with_data_policy_votes_distance_and_weight(tmp_path):
    run = make_run(tmp_path / "one")
    facts, last = described(run)["expert-1"], entries(run)[-1]["clients"]["expert-1"]
    score = registry.get("maze2d-umaze").normalised_score(facts["behaviour_return"])
    written = table_row(page_of([run], tmp_path), "expert-1")
    # weight in the last round, rows, episodes, data, its score, policy, votes (data, own, global), distance
    assert written == [
        "expert-1", f"{last['server_weight']:.0%}", f"{facts['rows']:,}", f"{facts['episodes']:,}",
        f"{facts['behaviour_return']:,.1f}", f"{score:,.1f}", f"{result(run)['expert-1']:,.1f}",
        *(f"{last[f'vote_{voter}']:.0%}" for voter in ("behaviour", "local", "global")),
        f"{last['policy_distance']:.2f}",
    ]  # fmt: skip
    no_vote = make_run(tmp_path / "two", algorithm="fed-bc")
    assert "votes for its data" not in page_of([no_vote], tmp_path)


def test_every_run_of_a_comparison_is_in_its_table(tmp_path):
    a, b = make_run(tmp_path / "a"), interrupt(make_run(tmp_path / "b", algorithm="fed-bc"), after=3)
    text = page_of([a, b], tmp_path)
    final = result(a)
    clients = [final["expert-1"], final["random-1"]]
    score = registry.get("maze2d-umaze").normalised_score(final["server"])
    best = {run: max(line["server"]["return"] for line in entries(run) if "server" in line) for run in (a, b)}
    best[a] = max(best[a], final["server"])
    figures = [
        final["server"], score, best[a], np.mean(clients), final["server"] - np.mean(clients), min(clients)
    ]  # fmt: skip
    # setting, seed, return, score, best, mean client, server minus it, worst client, rounds
    assert table_row(text, "a") == ["a", "fova", "0", *(f"{figure:,.1f}" for figure in figures), "4 of 4"]
    assert table_row(text, "b") == ["b", "fed-bc", "0", "", "", f"{best[b]:,.1f}", "", "", "", "3 of 4"]
    assert 'href="#setting-2"' in text
    assert 'id="setting-2"' in text


def test_a_comparison_has_a_summary_and_every_client_with_its_seeds(tmp_path):
    fova = [make_run(tmp_path / f"fova-{seed}", seed) for seed in range(2)]
    other = make_run(tmp_path / "other", algorithm="fed-bc")
    text = page_of([*fova, other], tmp_path)
    summary = text[text.index("Every setting, the highest return first") :]
    finals = [result(run)["server"] for run in fova]
    row = re.search(r'<tr><th data-value="fova".*?</tr>', summary).group()
    assert f">{np.mean(finals):,.1f}<" in row
    assert f'<span class="detail">({finals[0]:,.1f}, {finals[1]:,.1f})</span>' in row
    order = re.findall(r'<tr><th data-value="(fova|fed-bc)"', summary)[:2]
    assert order == (["fova", "fed-bc"] if np.mean(finals) > result(other)["server"] else ["fed-bc", "fova"])
    clients = summary[summary.index("Return of every client") :]
    row = re.search(r'<tr><th data-value="expert-1".*?</tr>', clients).group()
    own = [result(run)["expert-1"] for run in fova]
    assert f"({own[0]:,.1f}, {own[1]:,.1f})" in row
    assert f">{result(other)['expert-1']:,.1f}<" in row


def test_the_page_names_its_script_and_style_by_their_hash(tmp_path):
    text = page_of([start_run(tmp_path / "one")], tmp_path)
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1))
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "connect-src" not in policy


def test_a_large_run_stays_below_half_a_megabyte(tmp_path):
    (group,) = read_groups([make_run(tmp_path / "one", task=None)])
    record, line = group.first, group.first.rounds[-1]
    names = [f"a-hospital-with-a-long-name-{i}" for i in range(40)]
    metrics = line.clients["expert-1"] | {"td_error": 0.123456, "q_data": 12.3456}
    rounds = tuple(
        replace(line, number=number, clients={name: dict(metrics) for name in names}) for number in range(1, 1001)
    )
    clients = dict.fromkeys(names, record.clients["expert-1"])
    large = replace(record, rounds=rounds, clients=clients, run=replace(record.run, rounds=1000))
    text = page([replace(group, records=(large,))], {})
    assert "Loss of the critics" in text
    assert len(text.encode()) < 500_000


def test_a_federation_over_a_network_tells_who_took_part(tmp_path):
    run = make_network_run(tmp_path / "far")
    text = page_of([run], tmp_path)
    rows = {name: facts["rows"] for name, facts in described(run).items()}
    assert f"fed-bc trained one policy across 3 clients ({sum(rows.values())} logged transitions in all)" in text
    took_part = {name: table_row(text, name)[-3:] for name in rows}  # rounds it counted in, rejected, missed
    assert took_part == {"east": ["3", "", ""], "north": ["2", "1", ""], "south": ["2", "", "1"]}
    assert "Submissions were rejected: north (1 round)." in text
    assert "fova server --config " in text


def test_a_federation_over_a_network_can_be_run_again(tmp_path):
    run = make_network_run(tmp_path / "far away")
    network = ServerConfig(
        min_clients=3, eject_after=0, judge=True, judge_rounds=5, observation=3, action=2, host="127.0.0.1",
        port=9000, certificates="my keys", control_hosts=("10.0.0.7", "10.0.0.8"),
    )  # fmt: skip
    for changed in (network, ServerConfig(observation=3, action=2)):
        write_server(RunDirectory(run), "a number", changed)
        text = html.unescape(page_of([run], tmp_path))
        assert "Flags cannot describe" not in text
        assert "Start every client with fova client" in text
        assert "a number" not in text
        (printed,) = re.findall("<code>(fova server .*?)</code>", text)
        tables = {"server": ("fova.network.server_config", "ServerConfig")}
        again, options = parse_run(shlex.split(printed)[2:], ServerOptions, "fova server", tables)
        assert again == load_config(run / "config.toml")
        assert "To run it again" not in (run / "config.toml").read_text()
        assert options.server == changed
    (run / "server.json").write_text('{"run_id": "a", "host": {}}')
    with pytest.raises(FovaError, match=r"server\.json: host is {}"):
        page_of([run], tmp_path)


def test_returns_of_data_that_are_not_known_are_not_told(tmp_path):
    (group,) = read_groups([make_run(tmp_path / "one")])
    clients = {name: replace(facts, behaviour_return=None) for name, facts in group.first.clients.items()}
    text = page([replace(group, records=(replace(group.first, clients=clients),))], {})
    assert "The clients did not report the return in their data." in text
    assert "return of its data" not in text


def test_a_run_without_a_task_still_shows_its_votes(tmp_path):
    text = page_of([make_run(tmp_path / "files", task=None)], tmp_path)
    assert "there is no task to play it in" in text
    assert "Who won the vote" in text
    assert "Return over training" not in text


def test_a_run_can_be_run_again(tmp_path):
    text = page_of([make_run(tmp_path / "one")], tmp_path)
    assert f"fova train --config {tmp_path}/one/config.toml" in text
    assert "local_steps = 2" in text  # the whole configuration
    assert "fova train --task maze2d-umaze --clients expert random --size 400 --rounds 4" in text


def test_a_run_on_tables_can_be_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clients = tuple(ClientSpec(str(file)) for file in hospitals.write(tmp_path, ("north", "south")))
    columns = Columns.of([*hospitals.COLUMNS, "na=-999,'-'"], ["hr=carry-mean", "la*=mean:1.8"])
    run = start_run(
        tmp_path / "one", "fed-bc", None, clients=clients, columns=columns, action_low=(0.0,), action_high=(2.0,)
    )
    (printed,) = re.findall(r"<code>(fova train --clients .*?)</code>", page_of([run], tmp_path))
    again, _ = parse_train(shlex.split(html.unescape(printed))[2:])
    assert again == load_config(run / "config.toml")
    assert again.columns == columns


def test_no_command_is_told_for_data_in_memory(tmp_path):
    text = page_of([start_run(tmp_path / "one", task=None, clients=())], tmp_path)
    assert "In Python, give fova.train the same data" in text
    assert "fova train --config" not in text
    assert "local_steps = 2" in text


def test_an_algorithm_that_has_moved_is_told_of(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(MINE)
    (tmp_path / "deeper").mkdir()
    # The algorithm is named relative to the run, which moves without it.
    run = start_run(tmp_path / "one", algorithm=str(mine)).rename(tmp_path / "deeper/one")
    text = page_of([run], tmp_path)
    assert f"fova train --config {tmp_path}/deeper/one/config.toml" in text
    assert "This version cannot write the run as one command." in text


def test_named_clients_need_the_configuration(tmp_path):
    run = start_run(tmp_path / "one", clients=(ClientSpec("expert", 400, name="north"),))
    assert "Flags cannot describe this run" in page_of([run], tmp_path)


def test_a_run_under_way_is_a_report_too(tmp_path):
    young = interrupt(make_run(tmp_path / "young"), after=0)
    assert "0 of 4 rounds are done" in page_of([young], tmp_path)
    assert "not finished" in page_of([start_run(tmp_path / "fresh")], tmp_path)
