"""The live view over a real socket. `test_page_in_browser.py` has a browser look at it."""

import contextlib
import html
import http.client
import json
import re
import shutil
import threading

import pytest

from fova.errors import FovaError
from fova.machine.listener import Limits
from fova.reports import live
from fova.reports.live import Pages, Watcher, watch
from fova.reports.states import duration, state
from fova.run.records import read_record
from made_runs import interrupt, make_run, start_run, write_verdict
from patience import PATIENCE


class Clock:
    now = 1e10  # far later than any file

    def __call__(self):
        Clock.now += 10  # so that a page is never too young to be computed anew
        return Clock.now


@contextlib.contextmanager
def watching(path, **limits):
    watcher = Watcher(Pages(path, Clock()), 0, Limits(**{"seconds": PATIENCE} | limits))
    thread = threading.Thread(target=watcher.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield watcher
    finally:
        watcher.shutdown()
        thread.join()
        watcher.stop()


def ask(watcher, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection(*watcher.server_address, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers


def files_of(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_run_is_served_and_renewed_while_it_trains(tmp_path):
    whole = make_run(tmp_path / "whole")
    run = interrupt(shutil.copytree(whole, tmp_path / "run"), after=2)
    before = files_of(run)
    with watching(run) as watcher:
        status, text, headers = ask(watcher)
        assert status == 200
        assert "2 of 4 rounds, no news for" in text
        version = headers["ETag"]
        assert ask(watcher, **{"If-None-Match": version})[:2] == (304, "")
        assert files_of(run) == before  # nothing is written
        shutil.copy(whole / "metrics.jsonl", run)
        shutil.copy(whole / "result.json", run)
        status, text, headers = ask(watcher, **{"If-None-Match": version})
        assert status == 200
        assert "4 of 4 rounds, finished" in text
        assert headers["ETag"] != version
        assert f'data-version="{headers["ETag"].strip(chr(34))}"' in text


def test_a_page_that_has_just_been_computed_is_not_computed_again(tmp_path, monkeypatch):
    run = interrupt(make_run(tmp_path / "run"), after=2)
    pages = Pages(run, lambda: 1e10)
    monkeypatch.setattr(live, "LEAST_SECONDS", 1e6)
    first = pages.get("/")
    (run / "metrics.jsonl").write_text("")
    assert pages.get("/") == first


def test_a_folder_of_runs_is_a_table_that_leads_to_each(tmp_path):
    make_run(tmp_path / "runs/a b/one")
    interrupt(make_run(tmp_path / "runs/two", algorithm="fed-bc"), after=3)
    start_run(tmp_path / "runs/three")
    broken = make_run(tmp_path / "runs/broken")
    (broken / "metrics.jsonl").write_text("[]\n[]\n")
    with watching(tmp_path / "runs") as watcher:
        status, text, _ = ask(watcher)
        assert status == 200
        rows = {
            re.search(r">([^<]+)</a>", row).group(1): re.sub(r"<[^>]+>", "|", row)
            for row in re.findall(r"<tr><th data.*?</tr>", text, re.DOTALL)
        }
        assert list(rows) == ["a b/one", "broken", "three", "two"]
        assert "4 of 4" in rows["a b/one"]
        assert "finished" in rows["a b/one"]
        assert "3 of 4" in rows["two"]
        assert "fed-bc" in rows["two"]
        assert "0 of 4" in rows["three"]
        assert "cannot be read" in rows["broken"]
        links = re.findall(r'href="(/run/[^"]+)"', text)
        assert links == ["/run/a%20b/one", "/run/broken", "/run/three", "/run/two"]
        pages = [ask(watcher, link) for link in links]
        assert [status for status, _, _ in pages] == [200] * 4
        assert "Return over training" in pages[0][1]
        assert "metrics.jsonl, line 1" in pages[1][1]
        assert all('<a href="/">All runs</a>' in page for _, page, _ in pages)
        status, together, _ = ask(watcher, "/all")
        assert status == 200
        assert "3 runs" in together


def test_an_empty_folder_waits_for_its_first_run(tmp_path):
    with watching(tmp_path) as watcher:
        assert "no run here yet" in ask(watcher)[1]
        start_run(tmp_path / "first")
        assert ">first</a>" in ask(watcher)[1]


def test_a_long_list_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "MOST_RUNS", 2)
    for name in "abc":
        start_run(tmp_path / name)
    with watching(tmp_path) as watcher:
        text = ask(watcher)[1]
    assert "At most 2 runs are shown." in text
    assert ">c</a>" not in text


@pytest.mark.parametrize("path", ["/run/..", "/run/../secret", "/run/%2e%2e/secret", "/config.toml", "/run/"])
def test_nothing_but_pages_is_served(tmp_path, path):
    start_run(tmp_path / "runs/one")
    start_run(tmp_path / "secret")
    with watching(tmp_path / "runs") as watcher:
        assert ask(watcher, path)[0] == 404


def test_what_a_browser_is_allowed(tmp_path):
    start_run(tmp_path / "run")
    with watching(tmp_path / "run") as watcher:
        _, text, headers = ask(watcher)
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "connect-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert 'http-equiv="refresh"' in text  # for browsers without script
        assert ask(watcher, method="HEAD")[:2] == (200, "")
        assert ask(watcher, method="POST")[0] == 501
        # A foreign page can lead a browser here under a name of its own.
        assert ask(watcher, "/config.toml")[0] == 404
        status, text, _ = ask(watcher, Host="elsewhere.example")
        assert status == 403
        assert "<" not in text


def test_a_mistake_of_ours_is_answered(tmp_path, monkeypatch, capsys):
    start_run(tmp_path / "run")
    monkeypatch.setattr(live, "page", lambda *_: 1 / 0)
    with watching(tmp_path / "run") as watcher:
        status, text, _ = ask(watcher)
    assert status == 500
    assert "Traceback" not in text
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_connections_are_bounded(tmp_path):
    with watching(tmp_path, connections=1) as watcher:
        held = http.client.HTTPConnection(*watcher.server_address, timeout=PATIENCE)
        with contextlib.closing(held):
            held.request("GET", "/")
            assert held.getresponse().read()
            assert ask(watcher)[0] == 503


def test_a_port_in_use_and_a_missing_folder_are_named(tmp_path):
    with watching(tmp_path) as watcher:
        port = watcher.server_port
        with pytest.raises(FovaError, match=rf"port {port}: Address already in use\. Choose another .* --port"):
            watch(tmp_path, port, print)
    with pytest.raises(FovaError, match="is not a folder"):
        watch(tmp_path / "none", 0, print)


# --- How far a run is ---


def test_the_time_left_is_that_of_the_rounds_to_come(tmp_path):
    run = interrupt(make_run(tmp_path / "run"), after=3)
    lines = [{"round": i, "seconds": 50.0, "evaluation": 10.0} for i in (1, 2, 3)]
    (run / "timing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = read_record(run)
    last = (run / "timing.jsonl").stat().st_mtime
    assert state(record, last).words == "training, about a minute left"  # 1 round of 60 seconds
    assert state(record, last + 299).words == "training, about a minute left"  # five rounds' time
    assert state(record, last + 301).words == "no news for 5 minutes"
    assert state(record, last).share == 0.75
    assert state(read_record(start_run(tmp_path / "new")), 0).words == "starting"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "5 seconds"),
        (17, "15 seconds"),
        (50, "a minute"),
        (150, "2 minutes"),
        (8000, "2 hours"),
        (2e5, "2 days"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_the_table_of_runs_has_the_columns_that_some_run_fills(tmp_path):
    files = make_run(tmp_path / "files", task=None)
    pages = Pages(tmp_path, Clock())

    def headings():
        return re.findall('<th scope="col">([^<]*)</th>', html.unescape(pages.get("/")[1]))

    assert headings() == ["run", "progress", "state", "algorithm", "seed"]
    write_verdict(files)
    assert headings() == ["run", "progress", "state", "judge's estimate", "algorithm", "seed"]
    make_run(tmp_path / "played")
    assert headings() == list(live.COLUMNS)
