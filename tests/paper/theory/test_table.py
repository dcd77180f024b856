"""The runner: rows that agree with what is known, a readable table, pictures that can be drawn."""

import json
from pathlib import Path

import pytest

from fova.paper.theory.pictures import (
    heterogeneity_against_difference,
    penalty_against_parameters,
    underestimation_against_alpha,
    vote_against_pull,
)
from fova.paper.theory.statement import Row, Verdict
from fova.paper.theory.table import TOPICS, check, format_markdown, format_table, run


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return check(mdps=3, seed=0, progress=lambda message: None)


def _verdicts(rows: list[Row], label: str, kind: str) -> set[Verdict]:
    return {row.verdict for row in rows if row.label == label and row.kind == kind}


def test_every_statement_has_a_row(rows: list[Row]) -> None:
    assert len(rows) == sum(map(len, TOPICS.values()))
    assert all(row.checked >= 1 for row in rows)


def test_everything_offered_instead_holds(rows: list[Row]) -> None:
    offered = [row for row in rows if row.kind == "instead"]
    assert offered
    assert {row.verdict for row in offered} <= {Verdict.HOLDS, Verdict.SAYS_NOTHING}


def test_known_verdicts(rows: list[Row]) -> None:
    assert _verdicts(rows, "eq:DVCQL", "printed") == {Verdict.HOLDS}
    assert _verdicts(rows, "thm (safe policy improvement)", "printed") == {Verdict.FALSE}
    assert _verdicts(rows, "thm:convergence", "without its premise") == {Verdict.FAILS}
    assert not _verdicts(rows, "thm:convergence", "printed")
    assert _verdicts(rows, "lemma:improving", "printed") == {Verdict.HOLDS, Verdict.FALSE}
    assert Verdict.PROOF_FAILS in _verdicts(rows, "lemma:policy-improvement-local-convergence", "printed")


def test_rows_depend_on_the_seed_alone(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    topic = "Return in the empirical MDP"
    monkeypatch.setattr("fova.paper.theory.table.TOPICS", {topic: TOPICS[topic]})
    assert check(mdps=3, seed=0, progress=lambda message: None) == [row for row in rows if row.topic == topic]
    assert check(mdps=3, seed=1, progress=lambda message: None) != [row for row in rows if row.topic == topic]


def test_table_shows_every_row(rows: list[Row]) -> None:
    text = format_table(rows)
    assert all(topic in text for topic in TOPICS)
    assert max(map(len, text.splitlines())) <= 132
    markdown = format_markdown(rows)
    assert sum(line.startswith("| `") for line in markdown.splitlines()) == len(rows)
    assert "instead:" in markdown


def test_pictures_have_labelled_axes() -> None:
    for figure in (
        underestimation_against_alpha(0, cases=1),
        penalty_against_parameters(0),
        heterogeneity_against_difference(0, draws=1),
        vote_against_pull(0, lams=(1.0,), federations=1),
    ):
        assert all(axes.get_xlabel() for axes in figure.axes if axes.get_label() != "<colorbar>")


@pytest.mark.slow
def test_run_writes_table_and_pictures(tmp_path: Path) -> None:
    messages: list[str] = []
    rows = run(tmp_path, mdps=2, seed=1, progress=messages.append)
    assert {path.name for path in tmp_path.iterdir()} == {
        "theory.md",
        "theory.json",
        "theory-underestimation.png",
        "theory-penalty.png",
        "theory-heterogeneity.png",
        "theory-vote.png",
    }
    assert len(json.loads((tmp_path / "theory.json").read_text())) == len(rows)
    assert messages
