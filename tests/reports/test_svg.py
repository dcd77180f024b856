import re

import pytest

from fova.reports import svg
from fova.reports.markup import Markup, element, join


def test_text_is_escaped_once_and_markup_never():
    assert element("p", "a < b", Markup("<i>c</i>"), title='"x"', class_="y", data_value=None) == (
        '<p title="&quot;x&quot;" class="y">a &lt; b<i>c</i></p>'
    )
    assert join(["<", [Markup("<b></b>"), "&"]]) == "&lt;<b></b>&amp;"
    assert element("circle", cx=1.23456, r=3.0) == '<circle cx="1.23" r="3"></circle>'


def points(path):
    """The places of a path of straight lines."""
    return [tuple(map(float, pair.split())) for pair in re.sub("[MZ]", "", path).split("L")]


def test_a_line_is_where_its_numbers_are():
    chart = svg.line_chart("t", "d", [svg.Line("l", [0, 50, 100], [0, 100, 50], "blue")], [], "x", "y")
    (line,) = re.findall(r'<g class="line blue"[^>]*><path d="([^"]*)"', chart)
    (x0, y0), (x1, y1), (x2, y2) = points(line)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(2 * (y2 - y1), abs=0.2)  # upwards is less
    assert 'aria-label="t. d"' in chart
    assert "<title>l: 100.0 at 50</title>" in chart


def test_a_band_encloses_its_line():
    line = svg.Line("l", [0, 1], [5, 6], "blue", low=[4, 4], high=[7, 9])
    chart = svg.line_chart("t", "d", [line], [svg.Level("level", 3.0, "orange")], "x", "y")
    band = points(re.search(r'<path d="([^"]*)" class="band blue"', chart).group(1))
    middle = points(re.search(r'<g class="line blue"[^>]*><path d="([^"]*)"', chart).group(1))
    assert band[0][1] < middle[0][1] < band[3][1]
    assert band[1][1] < middle[1][1] < band[2][1]
    assert "<title>level: 3.0</title>" in chart


def test_stacked_shares_fill_the_whole():
    chart = svg.share_chart("t", "d", [1, 2], {"a": ("blue", [0.25, 0.5]), "b": ("green", [0.75, 0.5])})
    low, high = (points(path) for path in re.findall(r'<path d="([^"]*)" class="area', chart))
    bottom, top = low[-1][1], high[0][1]
    assert high[0][1] == high[1][1]  # all shares add up to one everywhere
    assert bottom - low[0][1] == pytest.approx(0.25 * (bottom - top), abs=0.1)
    assert low[:2] == high[:1:-1]  # one begins where the other ends
    assert "a: 25% at first, 50% at the end" in chart


def test_one_round_and_equal_numbers_can_be_drawn():
    assert svg.share_chart("t", "d", [3.0], {"a": ("blue", [1.0])}).count("area") == 1
    chart = svg.line_chart("t", "d", [svg.Line("l", [0.0], [7.0], "blue")], [], "x", "y")
    assert "nan" not in chart
    assert svg.dot_chart("t", "d", [svg.Dots("c", 1.0, None)], None, "x").count('class="dot') == 1


def test_a_long_name_is_cut_but_told_whole():
    name = "a-client-with-quite-a-long-name"
    chart = svg.dot_chart("t", "d", [svg.Dots(name, 1.0, 2.0)], 1.5, "x")
    assert f"<title>{name}</title>a-client-with-q…" in chart


def heights(chart):
    """The heights of a label, and of the middle of its diamond and its circle where they are there."""
    label = float(re.search(r'y="([0-9.]+)" text-anchor="end"', chart).group(1)) - 4.5
    marks = re.search(r"M[0-9.]+ ([0-9.]+)l7 7", chart), re.search(r'cy="([0-9.]+)"', chart)
    return label, *(float(mark.group(1)) + above for mark, above in zip(marks, (7, 0)) if mark)


def test_a_mark_alone_is_level_with_its_label_and_two_stand_apart():
    label, data = heights(svg.dot_chart("t", "d", [svg.Dots("c", 1.0, None)], None, "x"))
    assert data == label
    label, policy = heights(svg.dot_chart("t", "d", [svg.Dots("c", None, 1.0)], None, "x"))
    assert policy == label
    for chart in (
        svg.dot_chart("t", "d", [svg.Dots("c", 1.0, 1.0)], None, "x"),
        svg.interval_chart("t", "d", [svg.Interval("c", 1.0, 1.0, 0.0, 2.0)], "x"),
    ):
        label, data, policy = heights(chart)
        assert (data, policy) == (label - 6, label + 6)
