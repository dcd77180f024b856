"""The report in a real browser. Skipped, and reported as skipped, where there is none.

axe-core, which checks accessibility, is not part of this repository: `.ci/run` puts it into a cache folder.
"""

import pytest
from browser import AXE, browser, find_chromium, violations

from fova.reports.groups import read_groups
from fova.reports.page import write_report
from fova.reports.scenes import Scene
from fova.reports.series import data_returns
from made_runs import make_run, result

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

# A picture of one white pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010800000000 3a7e9b550000000a4944415478da63f80f00010101005a4d6f"
    "f10000000049454e44ae426082"
)
SORTED = "[...document.querySelectorAll('table.sortable tbody')[0].rows].map(row => row.cells[0].textContent)"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Three settings, one of them with a vote and three seeds, one unfinished."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        make_run(folder / f"fova-{seed}", seed)
    make_run(folder / "bc-0", algorithm="fed-bc")
    make_run(folder / "bc-scaled-0", algorithm="fed-bc", reward_scale=0.5, finished=False)
    first = read_groups([folder])[0].label
    return write_report([folder], folder / "report.html", {"fova": Scene(PIXEL, "a picture"), first: "No film."})


@pytest.fixture(scope="module")
def tab(report, tmp_path_factory):
    with browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def page(tab, report):
    tab.errors.clear()
    tab.requests.clear()
    tab.call("Emulation.setEmulatedMedia", features=[])
    tab.call("Emulation.setDeviceMetricsOverride", width=1100, height=900, deviceScaleFactor=1, mobile=False)
    tab.open(report)
    return tab


def test_no_complaint_and_no_request(page, report):
    assert page.evaluate("document.querySelectorAll('h2').length") == 4
    assert page.errors == []
    outside = [url for url in page.requests if not url.startswith("data:") and url != report.resolve().as_uri()]
    assert outside == []


def test_the_page_itself_forbids_requests(page):
    blocked = page.evaluate(
        "new Promise(done => { addEventListener('securitypolicyviolation', e => done(e.effectiveDirective));"
        "new Image().src = 'http://127.0.0.1:9/pixel.png'; })"
    )
    assert blocked == "img-src"


def test_the_listener_would_notice_a_request(page, tmp_path):
    (tmp_path / "other.html").write_text('<img src="http://127.0.0.1:9/pixel.png"><script>nonsense()</script>')
    page.open(tmp_path / "other.html")
    assert "http://127.0.0.1:9/pixel.png" in page.requests
    assert any("nonsense" in error for error in page.errors)


def test_every_chart_has_drawn(page, report):
    charts = page.evaluate(
        "[...document.querySelectorAll('svg.chart')].map(chart => ({"
        "  name: chart.getAttribute('aria-label'), width: chart.getBoundingClientRect().width,"
        "  marks: [...chart.querySelectorAll('.line, .area, .dot')].filter("
        "    mark => mark.getBBox().width + mark.getBBox().height > 5).length }))"
    )
    titles = [chart["name"].split(". ")[0] for chart in charts]
    assert titles == [
        "Return over training",
        "Server against clients, at the end",  # fed-bc
        "Server against clients, at the end",  # fed-bc with other rewards
        "Server against clients, at the end",  # fova
        "Votes at expert-1",
        "Votes at random-1",
    ]
    assert all(chart["width"] > 200 and chart["marks"] >= 2 for chart in charts), charts
    curves, votes = charts[0], charts[-1]
    groups = read_groups([report.parent])
    same_data = len({tuple(data_returns(group)) for group in groups}) == 1
    assert curves["marks"] == len(groups) + 2 * same_data  # lines, and two levels if the data is the same
    assert votes["marks"] == 3


def test_a_table_is_sorted_with_the_keyboard_alone(page, report):
    def returns_in(names):
        *finished, unfinished = names
        assert unfinished == "bc-scaled-0"  # a run without a return stays last
        return [result(report.parent / name)["server"] for name in finished]

    heads = page.evaluate(
        "[...document.querySelectorAll('table.sortable')[0].tHead.rows[0].cells].map(h => h.innerText)"
    )
    column = heads.index("return")
    head = f"document.querySelectorAll('table.sortable')[0].tHead.rows[0].cells[{column}]"
    page.evaluate(f"{head}.previousElementSibling.querySelector('button').focus()")
    page.press("Tab", 9)
    assert page.evaluate(f"document.activeElement === {head}.querySelector('button')")
    page.press("Enter", 13, "\r")
    assert page.evaluate(f"{head}.getAttribute('aria-sort')") == "descending"
    assert returns_in(page.evaluate(SORTED)) == sorted(returns_in(page.evaluate(SORTED)), reverse=True)
    page.press("Enter", 13, "\r")
    assert page.evaluate(f"{head}.getAttribute('aria-sort')") == "ascending"
    assert returns_in(page.evaluate(SORTED)) == sorted(returns_in(page.evaluate(SORTED)))
    assert page.evaluate("document.querySelector('[role=status]').textContent") == "sorted by return, ascending"
    page.evaluate("document.querySelector('table.sortable th button').click()")
    assert page.evaluate(SORTED)[0] == "bc-0"
    assert page.evaluate("document.querySelectorAll('[aria-sort]').length") == 1


def test_a_phone_need_not_scroll_sideways(page):
    page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('svg.chart')].map("
        "  chart => 13 * chart.getBoundingClientRect().width / chart.viewBox.baseVal.width))"
    )
    assert smallest >= 9.5  # pixels of a chart's letters


def test_it_prints_on_white_with_everything_unfolded(page):
    page.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every(part => part.open)")


@pytest.mark.parametrize(("scheme", "rules"), [("light", "{}"), ("dark", "{runOnly: ['color-contrast']}")])
def test_contrast_labels_and_structure_pass_axe(page, scheme, rules):
    if not AXE.is_file():
        pytest.skip("axe-core is not on this machine; see .ci/run")
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    white = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert white == (scheme == "light")
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert violations(page, rules) == []
