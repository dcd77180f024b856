import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from fova.data.partition import NAMED, by_dirichlet, by_return, deal, qualities_of, shares_of, summary
from fova.data.transitions import Episode, from_episodes
from fova.errors import FovaError


def dataset(lengths, returns=None):
    """Episodes whose first observation column numbers the rows, and whose rewards sum to the given returns."""
    episodes, row = [], 0
    for number, length in enumerate(lengths):
        observations = np.zeros((length + 1, 2), np.float32)
        observations[:, 0] = np.arange(row, row + length + 1)
        observations[:, 1] = number
        rewards = np.zeros(length, np.float32)
        rewards[-1] = returns[number] if returns else number
        episodes.append(Episode(observations, np.zeros((length, 1), np.float32), rewards, terminated=True))
        row += length
    return from_episodes(episodes)


def rows(piece):
    return piece.observations[:, 0].astype(int).tolist()


def all_rows(pieces):
    return [row for piece in pieces for row in rows(piece)]


def episodes(piece):
    return piece.observations[:, 1].astype(int)[np.flatnonzero(piece.episode_ends)].tolist()


def test_equal_pieces_are_whole_episodes_in_the_order_of_the_log():
    pieces = deal(dataset([3, 3, 2, 4, 6, 6]), 3)
    assert [episodes(piece) for piece in pieces] == [[0, 1, 2], [3, 4], [5]]
    assert all_rows(pieces) == list(range(24))


def test_given_sizes_are_exact_and_start_with_an_episode():
    pieces = deal(dataset([4, 4, 4, 4]), 2, size=[6, 5])
    assert rows(pieces[0]) == [0, 1, 2, 3, 4, 5]
    assert rows(pieces[1]) == [8, 9, 10, 11, 12]
    assert pieces[0].episode_ends.tolist() == [False, False, False, True, False, True]


def test_shuffled_pieces_hold_whole_episodes_and_nothing_twice():
    data = dataset([2, 3, 4, 5, 6, 7])
    pieces = deal(data, 2, shuffle=True, seed=1)
    assert sorted(all_rows(pieces)) == list(range(27))
    assert all_rows(pieces) != list(range(27))
    again = deal(data, 2, shuffle=True, seed=1)
    assert [rows(piece) for piece in pieces] == [rows(piece) for piece in again]
    assert [rows(piece) for piece in pieces] != [rows(piece) for piece in deal(data, 2, shuffle=True, seed=2)]


def test_clients_share_rows_only_if_asked():
    pieces = deal(dataset([5] * 4), 3, size=15, overlap=True)
    assert [len(piece) for piece in pieces] == [15, 15, 15]
    assert len(set(all_rows(pieces))) <= 20


def test_by_return_ranks_the_episodes():
    data = dataset([2] * 6, returns=[5, 1, 4, 0, 3, 2])
    assert [episodes(piece) for piece in by_return(data, 3)] == [[1, 3], [4, 5], [0, 2]]


def test_dirichlet_mixtures_use_every_episode_once():
    qualities = {"expert": dataset([3] * 40), "random": dataset([2] * 60)}
    pieces = by_dirichlet(qualities, 4, concentration=1.0, seed=0)
    assert sum(map(len, pieces)) == 240
    # Rows of the two datasets carry the same numbers, so each number below 120 is dealt exactly twice.
    assert sorted(all_rows(pieces)) == sorted(2 * list(range(120)))
    shares = [len(piece) for piece in by_dirichlet(qualities, 4, concentration=1e6, seed=0)]
    assert max(shares) - min(shares) <= 10
    pure = by_dirichlet({"only": dataset([1] * 100)}, 2, concentration=0.3, seed=5)
    assert abs(len(pure[0]) - len(pure[1])) > 20


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 12), st.booleans())
def test_even_pieces_never_lose_or_share_a_row(lengths, clients, shuffle):
    data = dataset(lengths)
    if clients > len(lengths):
        with pytest.raises(FovaError, match="fewer clients"):
            deal(data, clients)
        return
    pieces = deal(data, clients, shuffle=shuffle)
    assert len(pieces) == clients
    assert min(map(len, pieces)) > 0
    assert sorted(all_rows(pieces)) == list(range(sum(lengths)))
    assert sum(len(episodes(piece)) for piece in pieces) == len(lengths)
    assert sum(map(len, by_return(data, clients))) == sum(lengths)


def test_federations_by_name():
    assert qualities_of("2-expert-2-random") == ("expert", "expert", "random", "random")
    assert qualities_of("1-medium-replay-2-medium-expert") == ("medium-replay", "medium-expert", "medium-expert")
    assert all(qualities_of(name) == qualities for name, qualities in NAMED.items())


def test_a_name_stands_for_ten_thousand_clients_at_most():
    assert qualities_of("10000-expert") == ("expert",) * 10_000
    assert len(qualities_of("4000-expert-6000-random")) == 10_000
    for name in ("10001-expert", "4000-expert-6001-random", "100000-expert", f"{'9' * 5000}-expert"):
        with pytest.raises(FovaError, match="too many clients"):
            qualities_of(name)


@pytest.mark.parametrize(
    "name", ["", "expert", "2", "2-", "2-expert-", "0-expert", "expert-2", "2--expert", "2-Expert"]
)
def test_names_that_mean_nothing_are_refused(name):
    with pytest.raises(FovaError, match="2-expert-2-random"):
        qualities_of(name)


def test_mixtures_by_name():
    assert shares_of("expert:90+random:10") == {"expert": 90, "random": 10}
    assert shares_of("medium:100") == {"medium": 100}
    assert shares_of("a:1+b:1+c:98") == {"a": 1, "b": 1, "c": 98}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "expert",
        "expert:",
        "expert:99",
        "expert:90+random:11",
        "expert:100+random:0",
        "expert:50+expert:50",
        "expert:100+expert:100",
        "expert:50+random",
        "expert:50.5+random:49.5",
        "expert:-10+random:110",
        "expert:²+random:98",
    ],
)
def test_mixtures_that_do_not_add_up_are_refused(name):
    with pytest.raises(FovaError, match=r"add up to 100: expert:90\+random:10"):
        shares_of(name)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: deal(dataset([5]), 0), "at least 1"),
        (lambda: deal(dataset([5, 5]), 2, size=[5]), "1 sizes"),
        (lambda: deal(dataset([5, 5]), 2, size=6), "Client 2 of 2 wants 6 rows"),
        (lambda: deal(dataset([5, 5]), 2, size=0), "at least 1 row"),
        (lambda: deal(dataset([5, 5]), 2, size=[3, 0]), "A size of 0 was given"),
        (lambda: deal(dataset([5]), 2, size=6, overlap=True), "smaller size"),
        (lambda: by_dirichlet({"a": dataset([5, 5])}, 2, concentration=0), "greater than 0"),
        (lambda: by_dirichlet({"a": dataset([5])}, 2), "got no episode"),
    ],
)
def test_what_cannot_be_dealt_says_why(call, words):
    with pytest.raises(FovaError, match=words):
        call()


def test_the_summary_says_what_each_client_got():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(summary({"a": dataset([2, 4], returns=[10, 20]), "b": dataset([3], returns=[7])}))
    text = console.export_text()
    assert [word for word in text.split() if word in ("6", "2", "15.0", "5.0")] == ["6", "2", "15.0", "5.0"]
    assert "7.0" in text


def test_an_episode_cut_short_does_not_count_in_the_mean():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(summary({"cut": dataset([3, 3], returns=[10, 20])[:5]}))
    assert "10.0" in console.export_text()


# --- Numbers worked out by hand ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "clients", "expected"),
    [
        # Middles 2, 6, 10 of 12 rows. The border is at 6, and who stands on it belongs to the second client.
        ([4, 4, 4], 2, [[0], [1, 2]]),
        # Middles 1.5, 5.5, 10: episode 1 ends at row 8, but its middle is before the border at 6.
        ([3, 5, 4], 2, [[0, 1], [2]]),
        # Middles 2, 7, 11: episode 1 starts at row 4, but its middle is past the border at 6.
        ([4, 6, 2], 2, [[0], [1, 2]]),
        # Middles 1, 3, 5, 7, 9, 11 of 12 rows; borders at 4 and 8.
        ([2] * 6, 3, [[0, 1], [2, 3], [4, 5]]),
        # Middles 0.5, 1.5, 7; borders at 4 and 8: nothing is left for the third client unless two give way.
        ([1, 1, 10], 3, [[0], [1], [2]]),
        # Middles 5, 10.5, 11.5; borders at 4 and 8: the first client has nothing unless the cut moves on.
        ([10, 1, 1], 3, [[0], [1], [2]]),
        ([20, 1, 1, 1], 3, [[0], [1], [2, 3]]),
        ([1, 1, 1, 20], 3, [[0, 1], [2], [3]]),
        ([7, 2, 5], 1, [[0, 1, 2]]),
    ],
)
def test_an_episode_goes_where_its_middle_lies(lengths, clients, expected):
    assert [episodes(piece) for piece in deal(dataset(lengths), clients)] == expected
    rising = by_return(dataset(lengths), clients)  # returns are 0, 1, 2, ...: the same order
    assert [episodes(piece) for piece in rising] == expected


class Chosen:
    """A random generator that draws what it was told to."""

    def __init__(self, order, shares):
        self.order, self.shares = np.array(order), np.array(shares)

    def permutation(self, count):
        assert count == len(self.order)
        return self.order

    def dirichlet(self, concentrations):
        assert len(concentrations) == len(self.shares)
        return self.shares


@pytest.mark.parametrize(
    ("lengths", "order", "shares", "expected"),
    [
        # Middles 1.5, 5.5, 10 of 12 rows; the first client's share ends at row 6.
        ([3, 5, 4], [0, 1, 2], [0.5, 0.5], [[0, 1], [2]]),
        # Middles 2, 7, 11.
        ([4, 6, 2], [0, 1, 2], [0.5, 0.5], [[0], [1, 2]]),
        # In the order 2, 1, 0: middles 3, 8, 11. Shares end at 3 and 12; who stands on the border is within.
        ([2, 4, 6], [2, 1, 0], [0.25, 0.75], [[2], [0, 1]]),
        # Middles 1, 3, 5 of 6 rows; shares end at 1.8, 3.6 and 6.
        ([2, 2, 2], [0, 1, 2], [0.3, 0.3, 0.4], [[0], [1], [2]]),
        # Shares that add up to less than 1, as rounding may make them: what is left goes to the last client.
        ([4, 4, 4], [0, 1, 2], [0.25, 0.25], [[0], [1, 2]]),
    ],
)
def test_dirichlet_shares_by_hand(lengths, order, shares, expected, monkeypatch):
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Chosen(order, shares))
    pieces = by_dirichlet({"only": dataset(lengths)}, len(shares))
    assert [episodes(piece) for piece in pieces] == expected


def test_dirichlet_concentration_and_seed_are_those_given():
    data = {"only": dataset([1] * 200)}
    sizes = [len(piece) for piece in by_dirichlet(data, 3, concentration=2.0, seed=4)]
    rng = np.random.default_rng(4)
    rng.permutation(200)
    shares = 200 * np.cumsum(rng.dirichlet([2.0, 2.0, 2.0]))
    # The middle of row r is r + 0.5: as many rows fall below a border as there are middles below it.
    assert np.cumsum(sizes).tolist() == [int(np.floor(shares[0] + 0.5)), int(np.floor(shares[1] + 0.5)), 200]


def test_what_is_not_given_is_seed_0_and_concentration_one_half():
    data = dataset([1] * 50)
    assert [rows(p) for p in deal(data, 2, shuffle=True)] == [rows(p) for p in deal(data, 2, shuffle=True, seed=0)]
    given = by_dirichlet({"only": data}, 2, concentration=0.5, seed=0)
    assert [rows(p) for p in by_dirichlet({"only": data}, 2)] == [rows(p) for p in given]


@pytest.mark.parametrize("concentration", [0.0, -1.0, float("nan")])
def test_a_concentration_must_be_positive(concentration):
    with pytest.raises(FovaError, match="greater than 0"):
        by_dirichlet({"a": dataset([5, 5])}, 2, concentration=concentration)


def test_sizes_that_are_whole_episodes_leave_nothing_out():
    assert [rows(piece) for piece in deal(dataset([4, 4, 4]), 3, size=4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]


def test_the_smallest_size_is_one_row_at_the_start_of_an_episode():
    assert [rows(piece) for piece in deal(dataset([5, 5]), 2, size=1)] == [[0], [5]]


def test_too_large_a_size_says_what_is_left():
    # Client 1 takes 5 of 12 rows and uses up two episodes of 4; 4 rows are left for client 2.
    with pytest.raises(FovaError, match="Client 2 of 2 wants 5 rows, but of 12 only 4 are left"):
        deal(dataset([4, 4, 4]), 2, size=5)
    with pytest.raises(FovaError, match="of 4 only 0 are left"):
        deal(dataset([4]), 2, size=4)


def test_overlapping_pieces_are_an_even_share_or_up_to_all_there_is():
    data = dataset([5] * 4)
    assert [len(piece) for piece in deal(data, 3, overlap=True)] == [6, 6, 6]  # 20 // 3
    assert [len(piece) for piece in deal(data, 2, size=[20, 5], overlap=True)] == [20, 5]
    assert all(piece.observations[0, 0] % 5 == 0 for piece in deal(data, 3, overlap=True, seed=3))
    whole = deal(data, 2, size=10, overlap=True)[0]
    assert whole.episode_ends.tolist() == 2 * [False, False, False, False, True]


def test_equal_returns_keep_the_order_of_the_log():
    data = dataset([1] * 6, returns=[1, 0, 1, 0, 1, 0])
    assert [episodes(piece) for piece in by_return(data, 2)] == [[1, 3, 5], [0, 2, 4]]


def test_a_piece_keeps_what_belongs_to_each_row():
    data = dataset([2, 3])
    second = deal(data, 2)[1]
    np.testing.assert_array_equal(second.next_observations, data.next_observations[2:])
    assert second.terminals.tolist() == [0, 0, 1]
    assert second.has_next_action.tolist() == [1, 1, 0]
