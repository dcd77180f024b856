import numpy as np
import pytest

from fova.data.hold_out import split
from fova.data.transitions import from_episodes, join
from tiny import make_episode, make_transitions


def episodes_of(data):
    return [(episode.rewards.tolist(), episode.terminated) for episode in data.episodes()]


def test_whole_episodes_are_kept_aside_and_none_is_lost():
    data = make_transitions(0, episodes=10)
    training, held_out = split(data, 0.3, seed=0, client="a")
    assert len(held_out.episode_lengths()) == 3
    kept, aside, every = map(episodes_of, (training, held_out, data))
    assert sorted(kept + aside) == sorted(every)
    assert [e for e in every if e in kept] == kept  # in the order of the log
    assert [e for e in every if e in aside] == aside


def test_the_choice_depends_on_seed_and_client_alone():
    data = make_transitions(0, episodes=20)
    same = [split(data, 0.2, 1, "a").held_out.digest() for _ in range(2)]
    assert same[0] == same[1]
    others = {split(data, 0.2, seed, client).held_out.digest() for seed, client in ((1, "a"), (2, "a"), (1, "b"))}
    assert len(others) == 3


@pytest.mark.parametrize(("share", "episodes", "aside"), [(0.1, 4, 1), (0.1, 20, 2), (0.5, 3, 2), (0.5, 2, 1)])
def test_at_least_one_episode_is_kept_aside_and_one_trains(share, episodes, aside):
    training, held_out = split(make_transitions(0, episodes=episodes), share, 0, "a")
    assert len(held_out.episode_lengths()) == aside
    assert len(training.episode_lengths()) == episodes - aside


def test_too_little_data_keeps_nothing_aside():
    single = make_transitions(0, episodes=1)
    assert split(single, 0.1, 0, "a") == (single, None)
    rng = np.random.default_rng(0)
    short = from_episodes(make_episode(rng, 1) for _ in range(2))  # one row would be left
    assert split(short, 0.1, 0, "a").held_out is None
    enough = from_episodes(make_episode(rng, 2) for _ in range(2))  # two rows are left
    assert [len(part) for part in split(enough, 0.1, 0, "a")] == [2, 2]
    nothing = split(make_transitions(0), 0.0, 0, "a")
    assert nothing.held_out is None


def test_the_parts_join_to_the_same_number_of_rows():
    data = make_transitions(3, episodes=7)
    parts = split(data, 0.4, 5, "c")
    assert len(join(list(parts))) == len(data)
