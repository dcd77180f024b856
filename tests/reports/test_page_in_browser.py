"""The report in a real browser. Skipped, and reported as skipped, where there is none.

axe-core, which checks accessibility, is not part of this repository: `.ci/run` puts it into a cache folder.
"""

import csv
from xml.etree import ElementTree

import pytest
from browser import AXE, browser, find_chromium, violations

from fova.reports.groups import read_groups
from fova.reports.page import write_report
from fova.reports.scenes import Scene
from fova.reports.series import data_returns, learning_curve
from made_runs import make_run, result

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

# A picture of one white pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010800000000 3a7e9b550000000a4944415478da63f80f00010101005a4d6f"
    "f10000000049454e44ae426082"
)
RUNS = "[...document.querySelectorAll('table.sortable')].find(each => each.ariaLabel === 'Every run')"
SORTED = f"[...{RUNS}.tBodies[0].rows].map(row => row.cells[0].textContent)"
CURVES = "document.querySelector('figure')"  # return over training


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
        "What each client's data earned",  # fed-bc with other rewards, which is not finished
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

    heads = page.evaluate(f"[...{RUNS}.tHead.rows[0].cells].map(h => h.innerText)")
    column = heads.index("return")
    head = f"{RUNS}.tHead.rows[0].cells[{column}]"
    page.evaluate(f"{head}.previousElementSibling.querySelector('button').focus()")
    page.press("Tab", 9)
    assert page.evaluate(f"document.activeElement === {head}.querySelector('button')")
    page.press("Enter", 13, "\r")
    assert page.evaluate(f"{head}.getAttribute('aria-sort')") == "descending"
    assert returns_in(page.evaluate(SORTED)) == sorted(returns_in(page.evaluate(SORTED)), reverse=True)
    page.press("Enter", 13, "\r")
    assert page.evaluate(f"{head}.getAttribute('aria-sort')") == "ascending"
    assert returns_in(page.evaluate(SORTED)) == sorted(returns_in(page.evaluate(SORTED)))
    told = page.evaluate(f"{RUNS}.parentElement.nextElementSibling.textContent")
    assert told == "sorted by return, ascending"
    page.evaluate(f"{RUNS}.querySelector('th button').click()")
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


# --- What a reader can do with a chart ---


def readout(page):
    return page.evaluate(f"{CURVES}.querySelector('.readout').innerText")


def lines(page):
    """The visible lines of the first chart, as they are drawn."""
    return page.evaluate(
        f"Object.fromEntries([...{CURVES}.querySelectorAll('g.line')].filter("
        "  line => getComputedStyle(line).display !== 'none').map("
        "  line => [line.dataset.label, line.querySelector('path').getAttribute('d')]))"
    )


def tool(page, words):
    page.evaluate(f"[...{CURVES}.querySelectorAll('.tool')].find(each => each.innerText === '{words}').click()")


def saved(page, words):
    """What a button would save, without leaving a file behind."""
    page.evaluate(
        "HTMLAnchorElement.prototype.click = function () { window.saved = this.download; };"
        "URL.createObjectURL = blob => { window.blob = blob; return 'blob:nowhere'; }; 0"
    )
    tool(page, words)
    return page.evaluate("window.blob.text().then(text => [window.saved, text])")


def test_the_arrow_keys_show_values_and_intervals(page, report):
    group = next(group for group in read_groups([report.parent]) if group.label == "fova")
    curve = learning_curve(group)
    page.evaluate(f"{CURVES}.querySelector('.plot').focus()")
    page.press("End", 35)
    words = readout(page)
    assert words.startswith(f"{curve.steps[-1]:g} gradient steps of each client")
    value, low, high = (f"{each[-1]:.1f}".removesuffix(".0") for each in (curve.mean, curve.low, curve.high))
    assert f"fova: {value} [{low}, {high}]" in words
    page.press("ArrowLeft", 37)
    assert readout(page).startswith(f"{curve.steps[-2]:g} gradient steps")
    assert page.evaluate(f"{CURVES}.querySelectorAll('.crosshair').length") == 1
    page.press("Escape", 27)
    assert readout(page) == ""


def test_the_mouse_shows_the_nearest_values_and_a_drag_zooms(page):
    chart = f"{CURVES}.querySelector('svg.chart').getBoundingClientRect()"
    box = page.evaluate(f"(box => [box.x, box.y, box.width, box.height])({chart})")

    def mouse(kind, across):
        at = {"x": box[0] + across * box[2], "y": box[1] + 0.4 * box[3]}
        page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    before = lines(page)
    mouse("mouseMoved", 0.9)
    assert readout(page).startswith("8 gradient steps")
    for kind, across in (("mousePressed", 0.2), ("mouseMoved", 0.4), ("mouseReleased", 0.6)):
        mouse(kind, across)
    assert lines(page).keys() == before.keys()
    assert lines(page) != before
    mouse("mouseMoved", 0.99)
    assert readout(page).startswith("4 gradient steps")  # the last evaluation is outside
    tool(page, "Show all")
    assert lines(page) == before


def test_zoom_with_the_keyboard(page):
    before = lines(page)
    page.evaluate(f"{CURVES}.querySelector('.plot').focus()")
    page.press("Home", 36)
    page.press("+", 187, "+")
    assert lines(page) != before
    page.press("-", 189, "-")
    assert lines(page) == before
    page.press("+", 187, "+")
    page.press("0", 48, "0")
    assert lines(page) == before


def test_the_legend_hides_a_series_and_brings_it_back(page):
    before = lines(page)
    button = f"[...{CURVES}.querySelectorAll('.legend button')].find(each => each.innerText === 'fova')"
    page.evaluate(f"{button}.focus()")
    page.press("Enter", 13, "\r")
    assert page.evaluate(f"{button}.getAttribute('aria-pressed')") == "false"
    assert lines(page).keys() == before.keys() - {"fova"}
    assert page.evaluate(f"{CURVES}.querySelectorAll('.band.off').length") == 1
    page.press("Enter", 13, "\r")
    assert lines(page) == before


def test_a_chart_is_saved_as_csv_with_its_intervals(page, report):
    name, text = saved(page, "Save CSV")
    assert name == "3-settings-on-maze2d-umaze-return-over-training.csv"
    rows = list(csv.DictReader(text.splitlines()))
    group = next(group for group in read_groups([report.parent]) if group.label == "fova")
    curve = learning_curve(group)
    assert [float(row["gradient steps of each client"]) for row in rows] == curve.steps
    for column, values in (("fova", curve.mean), ("fova low", curve.low), ("fova high", curve.high)):
        assert [float(row[column]) for row in rows] == pytest.approx(values, rel=1e-4)


def test_a_chart_is_saved_as_svg_that_needs_no_page(page, tmp_path):
    page.evaluate(f"[...{CURVES}.querySelectorAll('.legend button')][0].click()")
    hidden = page.evaluate(f"{CURVES}.querySelector('.legend button').innerText")
    name, text = saved(page, "Save SVG")
    assert name.endswith(".svg")
    root = ElementTree.fromstring(text)
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "gradient steps of each client" in words
    assert "fova" in words
    assert hidden not in words
    assert "class=" not in text
    assert "data-" not in text
    (tmp_path / "saved.svg").write_text(text)
    page.open(tmp_path / "saved.svg")
    drawn = page.evaluate("[...document.querySelectorAll('path')].filter(p => p.getBBox().width > 100).length")
    assert drawn >= 2


def test_commands_are_copied(page):
    page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.call("Page.bringToFront")
    page.evaluate(
        "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); };"
        "document.querySelector('pre.command + .tools .tool').click(); 0"
    )
    assert page.evaluate("window.copied") == page.evaluate("document.querySelector('pre.command').innerText")
    assert page.evaluate("document.querySelector('pre.command + .tools .said').innerText") == "copied"


def test_without_script_the_page_says_the_same(page, report):
    words = page.evaluate("document.querySelectorAll('svg.chart .line').length")
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(report)
        tree = page.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
        found = page.call("DOM.querySelectorAll", nodeId=tree, selector="svg.chart .line")["nodeIds"]
        tools = page.call("DOM.querySelectorAll", nodeId=tree, selector=".tools, .readout")["nodeIds"]
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)
    assert len(found) == words
    assert tools == []


def test_the_tables_fit_their_boxes(page):
    page.call("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)
    wide = page.evaluate(
        "[...document.querySelectorAll('table.sortable')].filter("
        "  table => table.offsetWidth > table.parentElement.clientWidth).map(table => table.ariaLabel)"
    )
    assert wide == []
    heads = page.evaluate(
        "[...document.querySelectorAll('table.sortable')].map(each => each.tHead.rows[0].cells[1].innerText)"
    )
    assert "weight" in heads  # the second column of a table of clients


@pytest.mark.parametrize(("width", "mobile"), [(1400, False), (390, True)])
@pytest.mark.parametrize(("scheme", "rules"), [("light", "{}"), ("dark", "{runOnly: ['color-contrast']}")])
def test_contrast_labels_and_structure_pass_axe(page, scheme, rules, width, mobile):
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=mobile)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if not AXE.is_file():
        pytest.skip("axe-core is not on this machine; see .ci/run")
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    white = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert white == (scheme == "light")
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    page.evaluate(f"{CURVES}.querySelector('.legend button').click(); {CURVES}.querySelector('.plot').focus()")
    page.press("End", 35)
    assert violations(page, rules) == []
