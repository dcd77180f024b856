import hashlib
import json
from dataclasses import fields, replace
from itertools import islice

import numpy as np
import pytest

from fova.data.transitions import from_episodes
from fova.errors import FovaError
from fova.tasks import datasets, registry
from fova.tasks.locomotion import LOCOMOTION_TASKS


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("FOVA_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def hopper():
    return registry.get("hopper")


def assert_same(one, other):
    for field in fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


def test_what_is_kept_is_what_the_simulator_gave(hopper):
    first = datasets.made(hopper, "random", 200)
    played = datasets.make_episodes(hopper, "random", 200, seed=0)
    assert_same(first, from_episodes(played)[:200])
    told = []
    assert_same(datasets.made(hopper, "random", 200, progress=told.append), first)
    assert told == []  # the second time nothing is played


def test_the_same_command_gives_the_same_bytes(hopper, tmp_path, monkeypatch):
    def digests(cache):
        monkeypatch.setenv("FOVA_CACHE", str(tmp_path / cache))
        folder = datasets.ensure(hopper, "random", 150, seed=3).folder
        return {
            str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        }

    assert digests("one") == digests("two")


def test_more_rows_begin_with_the_rows_there_were(hopper):
    short = datasets.made(hopper, "random", 100)
    kept = datasets.find(hopper, "random")
    long = datasets.made(hopper, "random", 300)
    assert kept.rows < 300 <= datasets.find(hopper, "random").rows
    assert_same(long[:99], short[:99])
    assert len(datasets.kept()) == 1
    assert_same(datasets.made(hopper, "random", 100), short)


def test_seeds_and_qualities_differ(hopper):
    zero, one = (datasets.made(hopper, "random", 50, seed=seed) for seed in (0, 1))
    assert not np.array_equal(zero.actions, one.actions)


def test_data_of_another_recipe_is_made_anew(hopper):
    datasets.made(hopper, "random", 50)
    newer = replace(hopper, recipe=lambda quality: {"recipe": "newer"})
    assert datasets.find(newer, "random") is None
    datasets.made(newer, "random", 50)
    assert datasets.find(newer, "random") is not None
    assert datasets.find(hopper, "random") is None


def test_tasks_that_tell_no_recipe_are_not_kept(hopper):
    silent = replace(hopper, recipe=None)
    assert len(datasets.made(silent, "random", 50)) == 50
    assert datasets.kept() == []


def test_metadata_says_what_made_the_data(hopper):
    kept = datasets.ensure(hopper, "random", 50, seed=2)
    metadata = json.loads((kept.folder / "data" / "metadata.json").read_text())
    told = json.loads(metadata["fova"])
    assert (told["task"], told["quality"], told["seed"]) == ("hopper", "random", 2)
    assert told["recipe"]["environment"] == "Hopper-v5"
    assert set(told["recipe"]["versions"]) == {"gymnasium", "mujoco", "numpy"}
    assert told["mean_return"] == pytest.approx(
        datasets.made(hopper, "random", kept.rows, 2).episode_returns().mean()
    )
    assert metadata["total_steps"] == kept.rows


def test_mazes_are_kept_too():
    maze = registry.get("maze2d-umaze")
    data = datasets.made(maze, "expert", 400)
    assert_same(data, from_episodes(islice(maze.generate("expert", 0, 0), 2))[:400])
    assert datasets.find(maze, "expert").rows == 600


def test_a_mixture_names_all_its_policies(hopper):
    levels = [part["level"] for part in datasets.ensure(hopper, "medium-replay", 20).recipe["behaviour"]]
    assert levels == [f"ladder-{number:02d}" for number in range(len(levels))]


@pytest.mark.slow
def test_expert_data_of_the_hopper_is_expert(hopper):
    data = datasets.made(hopper, "expert", 1000)
    assert data.episode_returns()[0] > 2500
    assert datasets.find(hopper, "expert").recipe["behaviour"][0]["level"] == "expert"


def test_qualities_are_those_the_weights_allow():
    for name, task in LOCOMOTION_TASKS.items():
        qualities = registry.get(name).qualities
        assert "random" in qualities
        assert ("medium-expert" in qualities) == ({"medium", "expert"} <= set(qualities))
        if "medium-expert" in qualities:
            assert task.mixtures()["medium-expert"] == ("medium", "expert")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda task: datasets.made(task, "experts", 10), "'expert'"),
        (lambda task: datasets.made(task, "random", 0), "at least 1"),
        (lambda task: datasets.made(task, "random", 10, seed=-1), "-1"),
        (lambda task: datasets.parse_name("hopper/exprt"), "'expert'"),
        (lambda task: datasets.parse_name("hoper/expert"), "'hopper'"),
    ],
)
def test_what_cannot_be_made_says_why(hopper, call, words):
    with pytest.raises(FovaError, match=words):
        call(hopper)


def test_a_damaged_entry_says_what_to_do(hopper):
    folder = datasets.ensure(hopper, "random", 20).folder
    (folder / "data" / "metadata.json").write_text("{")
    with pytest.raises(FovaError, match="Delete"):
        datasets.made(hopper, "random", 20)


def test_another_writer_may_be_quicker(hopper, tmp_path, monkeypatch):
    """The other's dataset appears after we saw that the place was free: ours, of the same bytes, replaces it."""
    ours, place = tmp_path / "ours", tmp_path / "store" / "place"
    for folder, text in ((ours, "ours"), (place, "theirs")):
        folder.mkdir(parents=True)
        (folder / "file").write_text(text)
    answers = iter([False, True])
    monkeypatch.setattr(datasets.Path, "exists", lambda path: next(answers))
    datasets._put(ours, place, tmp_path / "aside")
    assert (place / "file").read_text() == "ours"


def test_where_nothing_can_be_written_the_data_is_there_all_the_same(hopper, tmp_path, monkeypatch):
    kept = datasets.made(hopper, "random", 50)
    (tmp_path / "file").touch()
    monkeypatch.setenv("FOVA_CACHE", str(tmp_path / "file" / "cache"))  # no folder can be made there
    told = []
    assert_same(datasets.made(hopper, "random", 50, tell=told.append), kept)
    assert len(told) == 1
    assert "hopper/random data was made, but could not be kept" in told[0]
    assert "FOVA_CACHE" in told[0]
    with pytest.raises(FovaError, match=r"hopper/random data cannot be kept in .*Set FOVA_CACHE"):
        datasets.ensure(hopper, "random", 50)


def test_an_interrupted_writer_leaves_nothing(hopper, monkeypatch):
    def fails(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets.minari_store, "to_minari", fails)
    with pytest.raises(KeyboardInterrupt):
        datasets.made(hopper, "random", 20)
    assert list(datasets.store().rglob("*")) == []
