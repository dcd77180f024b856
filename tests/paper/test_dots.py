"""The picture of all runs: every run is a dot at its score, and variants with fewer runs are left out."""

from xml.etree import ElementTree

import pytest

from fova.errors import FovaError
from fova.paper.dots import RIGHT, dots
from made_results import made_results, made_run

SVG = "{http://www.w3.org/2000/svg}"
SCORES = {("a", "x"): (0.0, 100.0), ("a", "y"): (50.0, 50.0), ("b", "x"): (20.0, 40.0), ("b", "y"): (80.0, 60.0)}


def drawn(runs):
    return ElementTree.fromstring(dots(made_results(runs)))


@pytest.fixture(scope="module")
def picture():
    runs = [
        made_run(case, variant, seed, 1.0, score=score)
        for (case, variant), scores in SCORES.items()
        for seed, score in enumerate(scores)
    ]
    return drawn([*runs, made_run("a", "once", 0, 1.0, score=500.0), made_run("b", "once", 0, 1.0, score=500.0)])


def test_every_run_is_a_dot_at_its_score(picture):
    groups = picture.findall(f"{SVG}g")
    assert [group.find(f"{SVG}title").text for group in groups] == [
        "a, x: 50.0 (0.0, 100.0)",
        "a, y: 50.0 (50.0, 50.0)",
        "b, x: 30.0 (20.0, 40.0)",
        "b, y: 70.0 (80.0, 60.0)",
    ]
    places = [[float(dot.get("cx")) for dot in group.findall(f"{SVG}circle")] for group in groups]
    (first, last), (middle, _) = places[0], places[1]
    assert middle == pytest.approx((first + last) / 2, abs=0.2)
    assert places[2] == pytest.approx([first + 0.2 * (last - first), first + 0.4 * (last - first)], abs=0.2)
    assert last == pytest.approx(RIGHT, abs=0.2), "100 is the last number of the axis"


def test_the_mean_stands_among_its_runs_and_each_variant_has_its_own_shape(picture):
    groups = picture.findall(f"{SVG}g")
    marks = [group.find(f"{SVG}path").get("d") for group in groups]
    for group, mark in zip(groups, marks):
        across = [float(dot.get("cx")) for dot in group.findall(f"{SVG}circle")]
        assert float(mark[1:].split(" ")[0]) == pytest.approx(sum(across) / 2, abs=0.2)
    shapes = [mark[mark.index("m") :] for mark in marks]
    assert shapes[0] == shapes[2] != shapes[1] == shapes[3]


def test_lanes_of_one_row_do_not_meet_and_rows_follow_one_another(picture):
    heights = [float(group.find(f"{SVG}circle").get("cy")) for group in picture.findall(f"{SVG}g")]
    assert heights == sorted(set(heights))


def test_a_variant_with_fewer_runs_is_left_out(picture):
    written = {text.text for text in picture.iter(f"{SVG}text")}
    assert {"a", "b", "x", "y"} <= written
    assert "once" not in written


def test_of_more_variants_than_shapes_the_best_are_drawn_in_their_order():
    scores = {"u": (9, 9), "v": (1, 0), "w": (0, 8), "x": (5, 5), "y": (6, 6), "z": (2, 2)}  # v has the lowest mean
    runs = [
        made_run(case, variant, 0, 1.0, score=float(score))
        for variant, both in scores.items()
        for case, score in zip("ab", both)
    ]
    titles = [group.find(f"{SVG}title").text for group in drawn(runs).findall(f"{SVG}g")]
    assert [title[:4] for title in titles] == [f"{case}, {variant}" for case in "ab" for variant in "uwxyz"]


def test_results_that_cannot_be_drawn_are_named():
    with pytest.raises(FovaError, match="has no scores of x for a"):
        drawn([made_run("a", "x", 0, 1.0)])
