"""The live view in a real browser: it renews itself, and what the reader has done stays."""

import contextlib
import shutil

import pytest
from browser import AXE, browser, find_chromium, violations

from fova.reports import live
from made_runs import interrupt, make_run, write_verdict
from reports.test_live import watching

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
WIDE, NARROW = (1400, False), (390, True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def runs(tmp_path, whole):
    """A folder with a run after two of its four rounds, and a finished one."""
    interrupt(shutil.copytree(whole, tmp_path / "runs/first"), after=2)
    shutil.copytree(whole, tmp_path / "runs/second")
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@contextlib.contextmanager
def visited(tab, folder, path="/"):
    tab.errors.clear()
    tab.requests.clear()
    tab.call("Emulation.setEmulatedMedia", features=[])
    tab.call("Emulation.setDeviceMetricsOverride", width=1400, height=500, deviceScaleFactor=1, mobile=False)
    with watching(folder) as watcher:
        tab.visit(watcher.address + path)
        yield watcher


def renewed(tab):
    """Ask for news at once, as the page does every few seconds."""
    tab.evaluate("renew()")


def test_a_report_renews_itself_and_keeps_what_the_reader_did(tab, runs, whole):
    with visited(tab, runs, "/run/first"):
        assert "2 of 4 rounds" in tab.evaluate("document.querySelector('header').innerText")
        tab.evaluate("document.querySelector('main details').open = true")
        tab.evaluate("document.querySelector('table.sortable th button').click()")
        tab.evaluate("document.querySelector('.legend button').click()")
        tab.evaluate("scrollTo(0, 700)")
        tab.evaluate("document.querySelector('table.sortable th button').focus({preventScroll: true})")
        at = tab.evaluate("scrollY")
        assert at > 300
        shutil.copy(whole / "metrics.jsonl", runs / "first")
        renewed(tab)
        assert "4 of 4 rounds" in tab.evaluate("document.querySelector('header').innerText")
        assert tab.evaluate("scrollY") == at
        assert tab.evaluate("document.querySelector('main details').open")
        assert tab.evaluate("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "ascending"
        assert tab.evaluate("document.activeElement === document.querySelector('table.sortable th button')")
        assert tab.evaluate("document.querySelector('.legend button').getAttribute('aria-pressed')") == "false"
        assert tab.evaluate("document.querySelector('svg.chart g.line').classList.contains('off')")
        assert tab.errors == []


def test_a_column_that_appears_does_not_change_which_one_sorts(tab, runs):
    sorted_by = "document.querySelector('[aria-sort]').innerText"
    with visited(tab, runs):
        heads = "[...document.querySelectorAll('table.sortable th button')]"
        tab.evaluate(f"{heads}.find(each => each.innerText === 'algorithm').click()")
        assert tab.evaluate(sorted_by) == "algorithm"
        write_verdict(runs / "second")
        renewed(tab)
        assert "judge's estimate" in tab.evaluate(f"{heads}.map(each => each.innerText)")
        assert tab.evaluate(sorted_by) == "algorithm"


def test_the_page_asks_by_itself(tab, runs, whole, monkeypatch):
    monkeypatch.setattr(live, "SECONDS", 1)
    with visited(tab, runs, "/run/first"):
        shutil.copy(whole / "metrics.jsonl", runs / "first")
        words = tab.evaluate(
            "new Promise(done => { const look = () => { const text = document.querySelector('header').innerText;"
            "  text.includes('4 of 4') ? done(text) : setTimeout(look, 50); }; look(); })"
        )
        assert "4 of 4 rounds" in words


def test_a_server_that_is_gone_is_told(tab, runs):
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    with visited(tab, runs):
        tab.call("Network.emulateNetworkConditions", offline=True, **network)
        renewed(tab)
        assert "does not answer" in tab.evaluate("document.getElementById('live').innerText")
        tab.call("Network.emulateNetworkConditions", offline=False, **network)
        renewed(tab)
        assert tab.evaluate("document.getElementById('live').innerText") == ""


def test_the_table_leads_to_a_run_and_back(tab, runs):
    with visited(tab, runs) as watcher:
        bars = tab.evaluate("[...document.querySelectorAll('progress')].map(bar => bar.value)")
        assert bars == [0.5, 1]
        links = tab.evaluate("[...document.querySelectorAll('tbody a')].map(link => link.href)")
        assert links == [f"{watcher.address}/run/first", f"{watcher.address}/run/second"]
        tab.visit(links[1])
        assert tab.evaluate("document.querySelector('header a').href") == f"{watcher.address}/"
        assert all(url.startswith((watcher.address, "data:")) for url in tab.requests)


@pytest.mark.parametrize(("width", "mobile"), [WIDE, NARROW])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_table(tab, runs, width, mobile, scheme):
    if not AXE.is_file():
        pytest.skip("axe-core is not on this machine; see .ci/run")
    with visited(tab, runs):
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=mobile)
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(tab) == []
