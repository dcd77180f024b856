"""benchmarks/odd_records.py: the records are odd in the way that is said, and the page shows what was measured."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tiny import make_transitions

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import odd_records as benchmark  # noqa: E402
from federation_scores import with_table  # noqa: E402


@pytest.fixture
def clients():
    return {"expert-1": make_transitions(0, steps=120), "random-1": make_transitions(1, steps=120)}


def test_all_rewards_become_negative_and_keep_their_distances(clients):
    changed = benchmark.all_negative(clients)
    assert max(data.rewards.max() for data in changed.values()) == pytest.approx(-1.0, abs=1e-6)
    moved = [data.rewards - changed[name].rewards for name, data in clients.items()]
    np.testing.assert_allclose(np.concatenate(moved), moved[0][0], atol=1e-6)


def test_one_kind_of_records_is_cut_into_pieces_of_fifty_steps(clients):
    changed = benchmark.cut_short(clients, "expert")
    assert changed["random-1"] is clients["random-1"]
    lengths = clients["expert-1"].episode_lengths()
    assert lengths.tolist() == [120, 121, 122, 123]
    assert changed["expert-1"].episode_lengths().tolist() == [50, 50, 20, 50, 50, 21, 50, 50, 22, 50, 50, 23]


def test_cutting_changes_no_row_and_invents_no_end(clients):
    before, after = clients["expert-1"], benchmark.cut_short(clients, "expert")["expert-1"]
    for name in ("observations", "actions", "rewards", "next_observations", "terminals"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert np.flatnonzero(after.terminals).tolist() == [119, 362]  # of the first and the third episode


def test_every_algorithm_of_the_table_gets_the_same_weights():
    assert all(
        variant.algorithm == "fova" or variant.run == {"aggregation": "returns"}
        for variant in benchmark.VARIANTS.values()
    )


def test_a_row_has_the_mean_and_the_single_seeds():
    scores = {f"{case} / {label}": {"0": 1.0, "1": 4.0} for case in benchmark.CASES for label in benchmark.VARIANTS}
    assert benchmark.rows(scores)[0] == ["halfcheetah, all rewards negative", *["2.5 (1.0, 4.0)"] * 5]


def test_the_page_shows_what_was_measured():
    page = benchmark.PAGE.read_text(encoding="utf-8")
    rows = benchmark.rows(benchmark.load())
    shown = with_table(page, benchmark.MARKER, rows, ("", *benchmark.VARIANTS))
    assert shown == page, "run benchmarks/odd_records.py"
