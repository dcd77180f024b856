"""The documentation as a site: built with warnings as errors, and opened in a real browser where there is one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from patience import PATIENCE
from reports.browser import browser, find_chromium

ROOT = Path(__file__).parents[2]
CHROMIUM = find_chromium()
AXE = Path(os.environ.get("FOVA_AXE", "~/.cache/fova/axe-core/node_modules/axe-core/axe.min.js")).expanduser()
EXTERNAL = re.compile(r"<(?:script|img|iframe|source)[^>]*\bsrc=\"https?://|<link[^>]*\bhref=\"https?://")
SIZES = {"phone": (390, 844), "desktop": (1400, 900)}


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site, built once for all processes that run tests."""
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder = shared / "site"
    with FileLock(shared / "site.lock"):
        if not (folder / "index.html").is_file():
            words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
            environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
            done = subprocess.run(
                words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
            )
            assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_asks_the_network_for_anything(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    assert [page.name for page in pages if EXTERNAL.search(page.read_text(encoding="utf-8"))] == []


def test_the_reference_is_made_from_the_program(site):
    commands = (site / "reference/commands.html").read_text(encoding="utf-8")
    for name in ("train", "judge", "data inspect", "certificates"):
        assert f">fova {name}<" in commands
    assert "--local-steps" in commands
    settings = (site / "reference/settings.html").read_text(encoding="utf-8")
    assert "<code>local_steps</code>" in settings
    assert "<code>vote_order</code>" in settings
    assert "fova.run.training.train" in (site / "reference/api.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def show(tab, page, size, scheme):
    width, height = SIZES[size]
    tab.errors.clear()
    tab.requests.clear()
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
    tab.call("Emulation.setDeviceMetricsOverride", **metrics)
    tab.open(page)


LOOKS = [("index", size, scheme) for size in SIZES for scheme in ("light", "dark")]
LOOKS += [("tutorials/own-data", "desktop", "dark"), ("algorithms/fova", "phone", "light")]


@pytest.mark.parametrize(("page", "size", "scheme"), LOOKS)
def test_a_page_in_browser(tab, site, page, size, scheme):
    show(tab, site / f"{page}.html", size, scheme)
    assert tab.errors == []
    assert [url for url in tab.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    dark = tab.evaluate("document.body.getAttribute('data-md-color-scheme')") == "slate"
    assert dark == (scheme == "dark")
    if not AXE.is_file():
        pytest.skip("axe-core is not on this machine; see .ci/run")
    tab.evaluate(AXE.read_text() + ";0")
    found = tab.evaluate(
        "axe.run({preload: false}).then(found => found.violations.map(v => v.id + ': ' + v.nodes[0].html))"
    )
    assert found == []


def test_search_works_from_the_disk_in_browser(tab, site):
    show(tab, site / "index.html", "desktop", "light")
    results = tab.evaluate(
        """new Promise((done, failed) => {
          const field = document.querySelector('.md-search__input'); field.focus(); field.value = 'expectile';
          for (const kind of ['keyup', 'input']) field.dispatchEvent(new Event(kind, {bubbles: true}));
          let waited = 0;
          const look = () => {
            const found = [...document.querySelectorAll('.md-search-result__item a')].map(link => link.href);
            if (found.length) done(found);
            else if (++waited > 200) failed('no result');
            else setTimeout(look, 100);
          };
          look();
        })"""
    )
    assert any("fed-iql.html" in link for link in results)
