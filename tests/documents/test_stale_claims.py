"""A page does not say that a result is missing once the result is there."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
WHAT = r"(?:results?|tables?|figures?|numbers|curves|runs|measurements?)"
DENIAL = re.compile(
    rf"\b(?:none|(?:no|without) (?:\w+ )?{WHAT})\b[^.]*\b(?:yet|so far|stand behind)\b"
    r"|\b(?:not|never|nobody has)(?: yet)?(?: been)? (?:run|measured|trained|compared)\b[^.]*\b(?:yet|so far)\b",
    re.IGNORECASE,
)
ENTRY = re.compile(r"`(?:fova paper |results/)?([a-z0-9-]+)(?:\.json)?[^`]*`")


@cache
def measured() -> tuple[frozenset[str], frozenset[str]]:
    """The entries and the algorithms that results/ holds runs of."""
    entries, algorithms = set(), set()
    for file in (ROOT / "results").glob("*.json"):
        entries.add(file.stem)
        content = json.loads(file.read_text())
        runs = content.get("runs") if isinstance(content, dict) else None
        algorithms |= {run["algorithm"] for run in runs or () if isinstance(run, dict) and "algorithm" in run}
    return frozenset(entries), frozenset(algorithms)


def stale_claims(name: str, text: str) -> Iterator[str]:
    """The sentences of a page that deny a result which is there. `name` is the file's name without its ending."""
    entries, algorithms = measured()
    for sentence in re.split(r"(?<=[.!?:])\s", " ".join(text.split())):
        if DENIAL.search(sentence) and (name in algorithms or entries & set(ENTRY.findall(sentence))):
            yield sentence


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_denies_a_result_that_is_there(page):
    assert list(stale_claims(page.stem, page.read_text(encoding="utf-8"))) == []


def test_every_measured_algorithm_has_a_page_that_leads_to_its_results():
    _, algorithms = measured()
    assert {"fova", "fedora", "fed-td3bc", "fed-bc", "fed-iql", "cql-fl", "drpo"} <= algorithms
    for name in algorithms:
        text = (ROOT / "docs" / "algorithms" / f"{name}.md").read_text(encoding="utf-8")
        _, found, results = text.partition("\n## Results\n")
        assert found, name
        assert re.search(r"results/[a-z-]+\.json|study-mixed-quality\.md", results), name


@pytest.mark.parametrize(
    ("name", "sentence", "stale"),
    [
        ("fedora", "There is no table that we stand behind yet.", True),
        ("fedora", "None that we stand behind yet.", True),
        ("fed-bc", "This algorithm has no results\nso far.", True),
        ("fed-iql", "Fed-IQL has not been measured yet.", True),
        ("your-own", "There is no table that we stand behind yet.", False),
        ("study", "`fova paper same-weights --scale small` has no results yet.", True),
        ("study", "`results/size.json` holds no curves yet.", True),
        ("study", "`fova paper an-entry-of-tomorrow` has no results yet.", False),
        ("fedora", "Without LayerNorm the table shows lower returns.", False),
    ],
)
def test_what_counts_as_stale(name, sentence, stale):
    assert bool(list(stale_claims(name, f"Before. {sentence} After."))) == stale
