"""The pages about speed agree with results/bench.json, from which they are made."""

import importlib.util
import json
import re

import pytest
from pages import ROOT


def page_maker():
    specification = importlib.util.spec_from_file_location("made_page", ROOT / "benchmarks/performance_page.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


MAKER = page_maker()
MEASURED = json.loads((ROOT / "results/bench.json").read_text())


def test_pages_are_those_of_the_measured_file():
    for path in MAKER.PAGES:
        page = (ROOT / path).read_text()
        assert MAKER.filled(page, MEASURED) == page, "make it anew: python benchmarks/performance_page.py"


def test_every_section_has_a_place_on_a_page():
    pages = "".join((ROOT / path).read_text() for path in MAKER.PAGES)
    assert set(re.findall(r"<!-- (\w+) -->", pages)) - {"end"} == {*MAKER.TABLES, MAKER.AIMS}
    assert set(MEASURED) <= set(MAKER.TABLES)


@pytest.mark.parametrize(
    ("seconds", "load", "words"),
    [
        (1.9, 0.5, "1.9 | reached |"),
        (2.1, 0.5, "2.1 | **missed** |"),
        (2.1, 9.0, "2.1 | **missed** (load 9 before) |"),
    ],
)
def test_a_miss_is_printed_as_a_miss(seconds, load, words):
    figures = {"seconds_of_a_round": {"median": seconds}}
    results = {"network_rounds": {"figures": figures, "machine": {"load_before": [load]}}}
    table = MAKER.filled("<!-- aims -->\n<!-- end -->", results)
    assert f"| a round over a network, s | at most 2 | {words}" in table
    assert "| the same run again, s | at most 3.5 | - | not measured |" in table
