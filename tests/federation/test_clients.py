import dataclasses

import numpy as np
import pytest

from fova.data.transitions import Episode
from fova.errors import FovaError
from fova.federation import clients
from fova.federation.client_specs import ClientSpec, complete
from fova.federation.clients import Federation
from fova.federation.statistics import client_statistics, common_normaliser
from fova.spaces import Space
from fova.tasks import registry
from fova.tasks.registry import Task
from tiny import make_episode, make_transitions, npz_arrays, save_npz


def numbered(quality, first, seed):
    """Episodes of ten steps whose rewards count up, so that every row can be told from every other."""
    number = first
    while True:
        rewards = np.arange(10 * number, 10 * number + 10, dtype=np.float32)
        rng = np.random.default_rng([seed, number])
        episode = make_episode(rng, 10)
        yield Episode(episode.observations, episode.actions, rewards, terminated=False)
        number += 1


TASK = Task(
    "numbers",
    make=lambda: None,
    space=Space.unit(3, 2),
    time_limit=10,
    qualities=("good", "bad"),
    generate=numbered,
)


def test_clients_of_one_quality_never_overlap():
    specs = [ClientSpec("good", 25), ClientSpec("bad", 10), ClientSpec("good", 15), ClientSpec("good", 5, offset=3)]
    federation = Federation.build(specs, TASK)
    assert list(federation.clients) == ["good-1", "bad-1", "good-2", "good-3"]
    rewards = {name: data.rewards for name, data in federation.clients.items()}
    np.testing.assert_array_equal(rewards["good-1"], np.arange(25))
    np.testing.assert_array_equal(rewards["good-2"], np.arange(30, 45))  # from the next episode on
    np.testing.assert_array_equal(rewards["good-3"], np.arange(3, 8))  # it was asked for
    assert [(s.size, s.offset) for s in federation.specs] == [(25, 0), (10, 0), (15, 30), (5, 3)]


def test_a_federation_can_be_named_at_once():
    federation = Federation.build([ClientSpec("2-good-1-bad", 10), ClientSpec("good", 10)], TASK)
    assert list(federation.clients) == ["good-1", "good-2", "bad-1", "good-3"]
    np.testing.assert_array_equal(federation.clients["good-3"].rewards, np.arange(20, 30))


def test_order_of_the_clients_does_not_change_their_data():
    specs = [ClientSpec("good", 20), ClientSpec("bad", 20), ClientSpec("good", 20)]
    one, other = Federation.build(specs, TASK), Federation.build(specs[1:] + specs[:1], TASK)
    for name in one.clients:
        np.testing.assert_array_equal(one.clients[name].rewards, other.clients[name].rewards)


def test_a_file_is_taken_whole_or_shared_out_evenly(tmp_path):
    data = make_transitions(0)
    save_npz(tmp_path / "log.npz", data)
    file = str(tmp_path / "log.npz")
    alone = Federation.build([ClientSpec(file)])
    np.testing.assert_array_equal(alone.clients["log-1"].rewards, data.rewards)
    halves = Federation.build([ClientSpec(file), ClientSpec(file)])
    size = len(data) // 2
    np.testing.assert_array_equal(halves.clients["log-2"].rewards, data.rewards[size : 2 * size])


def test_data_is_put_into_the_frame_of_the_networks():
    data = make_transitions(1)
    shifted = Federation.of({"a": data}, bounds=(-2.0, 6.0))
    normaliser, _ = common_normaliser({"a": client_statistics(data)}, 3)
    prepared = shifted.prepared(normaliser, {"a": 0.1})["a"]
    np.testing.assert_allclose(prepared.actions, (data.actions + 2) / 4 - 1, atol=1e-6)
    np.testing.assert_allclose(prepared.observations.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(prepared.observations.std(axis=0), 1, atol=5e-3)
    np.testing.assert_allclose(prepared.rewards, data.rewards * 0.1, rtol=1e-6)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Federation.build([], TASK), "No clients"),
        (lambda: Federation.of({}), "at least one client"),
        (lambda: Federation.build([ClientSpec("goud", 5)], TASK), "'good'"),
        (lambda: Federation.build([ClientSpec("good", 5)]), "--task"),
        (lambda: Federation.build([ClientSpec("missing.npz")]), "missing.npz"),
        (lambda: complete([ClientSpec("2-good", name="x")]), "several clients"),
        (lambda: complete([ClientSpec("2-good-bad-3")]), "2-expert-2-random"),
        (lambda: complete([ClientSpec("good", name="x"), ClientSpec("bad", name="x")]), "'x'"),
        (lambda: Federation.build([ClientSpec("good", 20)], TASK, bounds=(-0.1, 0.1)), "actions.*bounds"),
        (lambda: Federation.of({"a": make_transitions(0)}, bounds=(1.0, -1.0)), "below"),
        (lambda: Federation.of({"a": make_transitions(0)}, bounds=((0.0,) * 3, (1.0,) * 3)), "one per column"),
    ],
)
def test_what_cannot_be_built_says_why(build, words):
    with pytest.raises(FovaError, match=words):
        build()


def test_a_file_that_is_too_short_says_so(tmp_path):
    save_npz(tmp_path / "log.npz", make_transitions(0))
    with pytest.raises(FovaError, match="smaller size"):
        Federation.build([ClientSpec(str(tmp_path / "log.npz"), size=10_000)])


def test_every_client_keeps_episodes_aside_and_small_ones_are_named():
    notes = []
    whole = Federation.of({"large": make_transitions(0, episodes=10), "small": make_transitions(1, episodes=1)})
    federation = whole.holding_out(0.2, seed=0, note=notes.append)
    assert set(federation.held_out) == {"large"}
    assert len(federation.clients["large"]) + len(federation.held_out["large"]) == len(whole.clients["large"])
    assert len(federation.clients["small"]) == len(whole.clients["small"])
    assert notes == ["small has too few episodes to keep one aside: it trains on all of its data"]
    assert whole.holding_out(0.0) is whole


@pytest.mark.parametrize("name", ["server", "", " ", "two\nlines", "x" * 301])
def test_a_name_that_files_could_not_tell_is_refused_in_memory_too(name):
    with pytest.raises(FovaError, match="name"):
        Federation.of({"east": make_transitions(0), name: make_transitions(1)})


def test_names_may_be_in_any_language():
    names = ["Süd", "東京", "क्षेत्र", "x" * 300]
    assert list(Federation.of({name: make_transitions(0) for name in names}).clients) == names


# --- Mixtures of qualities inside one client ---


def test_a_mixture_holds_its_shares_and_no_row_of_another_client():
    specs = [
        ClientSpec("expert:75+random:25", 400),
        ClientSpec("expert:25+random:75", 400),
        ClientSpec("expert", 200),
    ]
    built = Federation.build(specs, registry.get("maze2d-umaze"))
    assert list(built.clients) == ["expert:75+random:25-1", "expert:25+random:75-1", "expert-1"]
    assert [len(data) for data in built.clients.values()] == [400, 400, 200]
    expert = Federation.build([ClientSpec("expert", 300, 0)], registry.get("maze2d-umaze")).clients["expert-1"]
    np.testing.assert_array_equal(built.clients["expert:75+random:25-1"].observations[:300], expert.observations)
    rows = [bytes(row) for data in built.clients.values() for row in data.observations]
    assert len(set(rows)) == 1000


@pytest.mark.parametrize(
    "mixture",
    ["expert:50+random:40", "expert+random", "expert:50+expert:50", "expert:100+random:0", "expert:٥٠+random:50"],
)
def test_a_mixture_that_does_not_add_up_is_refused(mixture):
    with pytest.raises(FovaError, match="is not a mixture of data"):
        Federation.build([ClientSpec(mixture, 400)], registry.get("maze2d-umaze"))


def test_the_same_rows_are_dealt_out_by_quality_or_evenly():
    """Each part of a mixture starts at its share of the offset: nothing is left out, nothing given twice."""
    task = registry.get("maze2d-umaze")
    deals = (
        [ClientSpec(quality, 200, start) for quality in ("expert", "random") for start in (0, 200)],
        [ClientSpec("expert:50+random:50", 200, 200 * i) for i in range(4)],
    )
    rows = [
        sorted(
            np.concatenate([data.observations[i], data.actions[i], data.rewards[i : i + 1]]).tobytes()
            for data in Federation.build(specs, task).clients.values()
            for i in range(len(data))
        )
        for specs in deals
    ]
    assert rows[0] == rows[1]
    assert len(set(rows[0])) == 800


def test_an_even_share_of_a_file_is_there_for_every_client(tmp_path):
    """Episodes of 12, 13, 14 and 15 rows. Were each of three clients to start an episode, the last had too few."""
    data = make_transitions(0)
    save_npz(tmp_path / "log.npz", data)
    federation = Federation.build([ClientSpec(str(tmp_path / "log.npz"))] * 3)
    assert [(spec.offset, spec.size) for spec in federation.specs] == [(0, 18), (18, 18), (36, 18)]
    halves = Federation.build([ClientSpec(str(tmp_path / "log.npz"), size=20)] * 2)
    assert [spec.offset for spec in halves.specs] == [0, 25], "there is room for an episode's start"


def test_files_that_declare_different_bounds_are_refused(tmp_path):
    data, files = make_transitions(0), []
    for number, high in enumerate((1.0, 1.0, 2.0)):
        files.append(ClientSpec(str(tmp_path / f"{number}.npz")))
        np.savez(files[-1].data, **npz_arrays(data), action_low=[-1.0, -1.0], action_high=[1.0, high])
    assert Federation.build(files[:2]).space.action.high == (1.0, 1.0)
    with pytest.raises(FovaError, match=r"2.npz declares other bounds of the actions than .*0.npz.*--action-low"):
        Federation.build(files)
    assert Federation.build(files, bounds=(-1.0, 2.0)).space.action.high == (2.0, 2.0)


# --- A part of a federation, and data that is replaced ---


def test_some_clients_alone_have_the_rows_that_they_have_among_all(tmp_path):
    specs = [ClientSpec("good", 25), ClientSpec("bad", 10), ClientSpec("good", 15)]
    whole, part = Federation.build(specs, TASK), Federation.build(specs, TASK, only=["good-2"])
    assert list(part.clients) == ["good-2"]
    np.testing.assert_array_equal(part.clients["good-2"].rewards, whole.clients["good-2"].rewards)
    save_npz(tmp_path / "here.npz", make_transitions(0))
    (tmp_path / "elsewhere.npz").write_text("on another machine")
    files = [ClientSpec(str(tmp_path / name)) for name in ("here.npz", "elsewhere.npz")]
    assert list(Federation.build(files, only=["here-1"]).clients) == ["here-1"], "only its own file is read"


def test_a_sequence_of_sources_is_held_one_after_another():
    specs = [ClientSpec("good", 10, name="east"), ClientSpec("good", 10, name="west")]
    federation = Federation.in_sequence(specs, ["good", "bad", "good"], task=TASK)
    assert [list(turn.clients) for turn in federation.turns()] == [["east", "west"]] * 3
    first, _, third = (turn.clients["east"].rewards for turn in federation.turns())
    np.testing.assert_array_equal(first, np.arange(10))
    np.testing.assert_array_equal(third, np.arange(20, 30))  # the rows after those of the first turn
    assert [turn.specs[1].data for turn in federation.turns()] == ["good", "bad", "good"]
    whole = federation.whole_clients()["west"].rewards
    np.testing.assert_array_equal(whole, [*range(10, 20), *range(10, 20), *range(30, 40)])
    assert federation.turns()[0].later == ()
    only = Federation.in_sequence(specs, ["good", "bad", "good"], only=["west"], task=TASK)
    np.testing.assert_array_equal(only.whole_clients()["west"].rewards, whole)
    assert list(only.clients) == ["west"]


def test_the_data_of_a_run_with_one_turn_is_what_it_holds():
    federation = Federation.of({"a": make_transitions(0, episodes=10)}).holding_out(0.2)
    assert federation.whole_clients() is federation.clients
    assert federation.whole_held_out() is federation.held_out
    later = dataclasses.replace(federation, later=(dataclasses.replace(federation, held_out={}),))
    assert len(later.whole_clients()["a"]) == 2 * len(federation.clients["a"])
    assert len(later.whole_held_out()["a"]) == len(federation.held_out["a"])


def test_a_tenth_of_the_rows_that_are_made_is_told_each_time(monkeypatch):
    """25 rows: at every second one, once each; never more than are wanted."""

    def made(task, source, wanted, seed, progress, tell):
        assert (source, wanted) == ("good", 25)
        for rows in (1, 2, 3, 4, 6, 30):
            progress(rows)
        return make_transitions(0, episodes=3)

    monkeypatch.setattr(clients.datasets, "made", made)
    told = []
    Federation.build([ClientSpec("good", 25)], TASK, tell=told.append)
    assert told == ["good data", *(f"making good data: {rows} of 25 steps" for rows in (2, 4, 6, 25))]


def test_a_task_or_an_action_space_says_what_integers_are():
    codes = dataclasses.replace(make_transitions(0), actions=np.zeros((54, 2), np.int64))
    assert len(make_transitions(0)) == 54
    assert Federation.of({"a": codes}, TASK).space == TASK.space
    assert Federation.of({"a": codes}, action=TASK.space.action).space == TASK.space
    with pytest.raises(FovaError, match="2 columns"):
        Federation.of({"a": codes})
