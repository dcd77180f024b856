import io
import json
import re

import numpy as np
import pytest
from hand_made import episodes, write_hdf5, write_npz
from rich.console import Console

from fova.data.heterogeneity import Standing
from fova.data.inspect import FederationSummary, inspect, inspect_federation, meaning, render, render_federation
from fova.data.npz import save_npz
from fova.data.sources import Source, load
from fova.data.transitions import Episode, Transitions, from_episodes
from tiny import make_transitions


def source(those, **declared) -> Source:
    return Source("logs/[ward]-3.npz", "NPZ", from_episodes(those), (), **declared)


def one_step(observation, action, reward, following) -> Episode:
    rows = [np.atleast_2d(np.asarray(value, np.float32)) for value in (observation, following)]
    return Episode(
        np.concatenate(rows), np.atleast_2d(np.asarray(action, np.float32)), np.float32([reward]), terminated=False
    )


def drawn(summary, encoding="utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    render(summary, Console(file=stream, width=140))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


# --- Numbers -----------------------------------------------------------------------------------------------


def test_numbers_of_the_hand_made_episodes():
    summary = inspect(source(episodes()))
    assert (summary.episodes, summary.steps) == (4, 7)
    assert (summary.ended, summary.broke_off) == (2, 2)
    # returns are 3, 3, 2, 3
    assert summary.mean_return == summary.returns.mean == 2.75
    assert (summary.returns.min, summary.returns.median, summary.returns.max) == (2, 3, 3)
    assert summary.returns.std == pytest.approx(np.sqrt(0.1875))
    assert (summary.lengths.mean, summary.lengths.min, summary.lengths.max) == (1.75, 1, 3)
    assert summary.rewards.mean == pytest.approx(11 / 7)
    first = summary.observations[0]
    assert (first.min, first.max) == (0, 30)
    assert first.mean == pytest.approx((0 + 1 + 2 + 10 + 11 + 20 + 30) / 7)
    assert summary.actions[1].min == summary.actions[1].max == -0.5


def test_the_histogram_counts_every_episode_once():
    summary = inspect(source(episodes()))
    assert len(summary.return_edges) == len(summary.return_counts) + 1
    assert summary.return_counts == [1, 0, 0, 0, 0, 0, 0, 0, 0, 3]
    assert summary.return_edges[0] == 2
    assert summary.return_edges[-1] == 3


@pytest.mark.parametrize("rewards", [(5.0, 5.0), (1e16, 1e16 + 2**31), (0.0, 0.0)])
def test_returns_that_cannot_be_told_apart_share_one_bar(rewards):
    summary = inspect(source([one_step([0.0], [0.0], reward, [n]) for n, reward in enumerate(rewards)]))
    assert sum(summary.return_counts) == 2
    drawn(summary)


def test_coverage_of_actions_is_the_share_of_their_range_that_was_tried():
    # 20 cells over [-1, 1], each 0.1 wide: -1 and -0.95 lie in the first, 0.05 in the eleventh, 1 in the last.
    those = [one_step([n], [action], n, [n + 1]) for n, action in enumerate([-1, -0.95, 0.05, 1])]
    summary = inspect(source(those, action_low=np.float32([-1]), action_high=np.float32([1])))
    assert summary.action_coverage == [3 / 20]


@pytest.mark.parametrize(
    ("rows", "directions"),
    [
        ([[0, 0], [1, 2], [2, 4], [3, 6]], 1.0),  # in step
        ([[0, 0], [0, 1], [1, 0], [1, 1]], 2.0),  # independent
        ([[0, 5], [1, 5], [2, 5], [3, 5]], 1.0),  # only one moves
        ([[5, 5], [5, 5]], 0.0),
    ],
)
def test_directions_in_which_observations_vary(rows, directions):
    summary = inspect(source([one_step(row, [0], n, row) for n, row in enumerate(rows)]))
    assert summary.observation_directions == pytest.approx(directions)


def test_json_is_for_scripts(tmp_path):
    source_ = load(write_npz(tmp_path / "a.npz", action_low=np.float32(-1), action_high=np.float32(1)))
    read = json.loads(inspect(source_).to_json())
    assert read["mean_return"] == 2.75
    assert read["action_low"] == [-1, -1]
    assert read["problems"] == ["actions: these columns never change, so nothing is learned from them: 1."]


# --- Problems ----------------------------------------------------------------------------------------------


def problems(those, **declared) -> str:
    return "\n".join(inspect(source(those, **declared)).problems)


def test_what_looks_wrong_is_said():
    constant = [one_step([1, n], [0.1 * n], 4, [1, n + 1]) for n in range(3)]
    assert "observations: these columns never change, so nothing is learned from them: 0." in problems(constant)
    assert "rewards: every step earns 4" in problems(constant)
    assert "every one is a single step" in problems(constant)
    assert "a single step; a client needs at least two" in problems(constant[:1])
    twice = [one_step([0], [0.1], 1, [1]), one_step([0], [0.1], 1, [1]), one_step([2], [0.3], 1, [1])]
    assert "exact copies of other steps: 1 of 3" in problems(twice)
    wild = [one_step([n], [4.0 * n], n, [n + 1]) for n in range(3)]
    assert "declares no bounds, and actions reach from 0 to 8" in problems(wild)
    bounds = {"action_low": np.float32([0]), "action_high": np.float32([8])}
    assert "67% of the numbers are at a bound" in problems(wild, **bounds)


def test_good_data_has_no_problems():
    noise = np.random.default_rng(0)
    good = [
        Episode(
            noise.normal(size=(steps + 1, 3)).astype(np.float32),
            noise.uniform(-1, 1, (steps, 2)).astype(np.float32),
            noise.normal(size=steps).astype(np.float32),
            terminated=False,
        )
        for steps in (50, 20)
    ]
    summary = inspect(source(good))
    assert summary.problems == []
    assert "No problems found" in drawn(summary)


# --- Drawing -----------------------------------------------------------------------------------------------


def test_the_drawing_shows_the_name_the_bars_the_bounds_and_the_notes(tmp_path):
    file = write_hdf5(tmp_path / "a.hdf5", next_observations=None, action_low=[-1, -1], action_high=[1, 2])
    text = drawn(inspect(load(file)))
    assert "a.hdf5" in text
    assert "5 steps in 3 episodes: 2 ended, 1 broke off" in text
    assert "██████████████████████████████ 1" in text
    assert "-1 .. 2" in text
    assert "note     Left out: the last step of 2 episodes" in text
    assert "problem  actions: these columns never change" in text


def test_the_drawing_shows_how_returns_lengths_and_rewards_spread():
    lines = [line.split() for line in drawn(inspect(source(episodes()))).splitlines()]
    # Returns 3, 3, 2, 3; lengths 3, 2, 1, 1; rewards 0, 1, 2, 1, 2, 2, 3.
    assert ["mean", "std", "min", "median", "max"] in lines
    assert ["return", "2.75", "0.433", "2", "3", "3"] in lines
    assert ["length", "1.75", "0.8292", "1", "1.5", "3"] in lines
    assert ["reward", "1.571", "0.9035", "0", "2", "3"] in lines


def test_a_name_is_never_taken_for_markup():
    assert "logs/[ward]-3.npz" in drawn(inspect(source(episodes())))


def test_a_terminal_without_blocks_gets_plain_bars():
    text = drawn(inspect(source(episodes())), encoding="ascii")
    assert "############################## 3" in text


def test_wide_observations_are_cut_short_in_the_terminal_only():
    wide = [one_step(np.arange(111) * n, [0.1 * n], n, np.arange(111)) for n in range(3)]
    summary = inspect(source(wide))
    assert len(summary.observations) == 111
    assert "and 81 more" in drawn(summary)


# --- A federation ------------------------------------------------------------------------------------------


def standing(states, actions, mean_return=0.0, alone=0.0):
    return Standing(100, 5, mean_return, 10.0, 0.5, alone, states, actions)


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ([standing(0.05, 0.05), standing(0.05, 0.05)], "more of the same data"),
        ([standing(0.5, 0.05, alone=0.25), standing(0.5, 0.05, alone=0.125)], "38% of the visited cells"),
        ([standing(0.1, 0.4, 200.0), standing(0.1, 0.4, 12.0)], "(a earns 200, b 12): plain averaging mixes good"),
        ([standing(0.1, 0.4, 5.0), standing(0.1, 0.4, 0.0)], "different behaviours of about the same quality"),
        ([standing(1.0, None), standing(1.0, None)], "same order and units"),
        ([standing(None, None), standing(None, None)], "too little data"),
        ([standing(None, None)], "only one client"),
    ],
)
def test_what_the_differences_mean_is_one_sentence(clients, words):
    said = meaning(dict(zip("ab", clients)))
    assert words in said
    assert said.endswith(".")
    assert said.count(". ") == 0


def test_a_federation_is_drawn_and_written_as_json():
    clients = {"[north]": make_transitions(0), "south": make_transitions(0)}
    summary = inspect_federation(clients)
    stream = io.StringIO()
    render_federation(summary, Console(file=stream, width=80))
    text = stream.getvalue()
    row = next(line for line in text.splitlines() if "north" in line)
    assert row.split()[0] == "[north]"
    assert row.split()[1] == "54"
    assert row.split()[-4:] == ["100%", "0%", "0.00", "0.00"]
    assert "alike" in text
    read = json.loads(summary.to_json())
    assert read["clients"]["south"]["mean_return"] == pytest.approx(make_transitions(0).episode_returns().mean())
    assert read["meaning"] == summary.meaning


def test_what_is_not_known_is_drawn_as_a_question_mark():
    stream = io.StringIO()
    render_federation(FederationSummary({"a": standing(1.0, None)}, "."), Console(file=stream, width=80))
    assert "1.00" in stream.getvalue()
    assert "?" in stream.getvalue()


def test_discrete_actions_are_shown_with_names_and_shares(tmp_path):
    data = from_episodes(episodes())
    codes = np.float32([[0], [2], [2], [0], [2], [2], [0]])
    data = Transitions(**(vars(data) | {"actions": codes, "next_actions": 0 * codes}))
    save_npz(data, tmp_path / "doses.npz", action_names=("none", "low", "high"))
    summary = inspect(load(tmp_path / "doses.npz"))
    assert summary.action_shares == pytest.approx({"none": 3 / 7, "low": 0.0, "high": 4 / 7})
    assert summary.action_coverage == pytest.approx([2 / 3])
    assert not any(problem.startswith("actions:") for problem in summary.problems)
    printed = drawn(summary)
    assert "67% of 3 discrete actions occur" in printed
    assert re.search(r"high +2 +57\.1%", printed)


def test_whole_numbers_that_may_be_codes_are_a_problem(tmp_path):
    data = from_episodes(episodes())
    codes = np.float32([[0], [1], [1], [0], [1], [1], [0]])
    save_npz(Transitions(**(vars(data) | {"actions": codes, "next_actions": 0 * codes})), tmp_path / "doses.npz")
    summary = inspect(load(tmp_path / "doses.npz"))
    assert summary.action_shares is None
    assert any("--actions discrete" in problem for problem in summary.problems)
