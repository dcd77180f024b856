import json

import gymnasium
import numpy as np
import pytest

from fova.commands import data, main
from fova.data import sources
from fova.errors import FovaError
from fova.machine import runtime
from fova.spaces import Space
from fova.tasks import datasets, registry
from tiny import make_transitions, npz_arrays, save_npz


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("FOVA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def said(capsys, *arguments):
    data.command([str(argument) for argument in arguments])
    return capsys.readouterr().out


def test_make_says_what_was_made_and_keeps_it(capsys):
    first = said(capsys, "make", "maze2d-umaze/random", "--size", 350, "--seed", 1)
    assert "made: 600 rows in 2 episodes" in first
    assert "already there: 600 rows" in said(capsys, "make", "maze2d-umaze/random", "--size", 600, "--seed", 1)
    assert str(datasets.find(registry.get("maze2d-umaze"), "random", 1).folder) in first


def test_list_shows_what_was_made_and_what_can_be(capsys):
    said(capsys, "make", "maze2d-umaze/random", "--size", 300)
    text = said(capsys, "list")
    assert "maze2d-umaze/random" in text
    assert "can be made: maze2d-umaze/{expert,noisy,undirected,near,far,random}" in text


def test_inspect_a_file_and_made_data(capsys, tmp_path):
    data = make_transitions(0)
    save_npz(tmp_path / "log.npz", data)
    told = json.loads(said(capsys, "inspect", "log.npz", "--json"))
    assert told["mean_return"] == pytest.approx(data.episode_returns().mean())
    made = json.loads(said(capsys, "inspect", "maze2d-umaze/expert", "--size", 300, "--json"))
    assert (made["name"], made["steps"]) == ("maze2d-umaze/expert", 300)
    assert "Returns" in said(capsys, "inspect", "log.npz")


def test_inspect_shows_how_clients_differ(capsys, tmp_path):
    for number in range(2):
        save_npz(tmp_path / f"log-{number}.npz", make_transitions(number))
    told = json.loads(said(capsys, "inspect", "log-0.npz", "log-1.npz", "--json"))
    assert set(told["clients"]) == {"log-0.npz", "log-1.npz"}
    (tmp_path / "federation.toml").write_text(
        '[[client]]\nname = "north"\ndata = "log-0.npz"\n'
        '[[client]]\nname = "south"\ndata = "log-1.npz"\nsize = 20\n'
    )
    text = said(capsys, "inspect", "--config", "federation.toml")
    assert "north" in text
    assert "other actions" in text
    told = json.loads(said(capsys, "inspect", "--config", "federation.toml", "--json"))
    assert told["clients"]["south"]["rows"] == 20


def test_validate_is_silent_about_nothing(capsys, tmp_path):
    save_npz(tmp_path / "log.npz", make_transitions(0))
    assert said(capsys, "validate", "log.npz").startswith("ok: log.npz (NPZ), 54 rows in 4 episodes")
    arrays = npz_arrays(make_transitions(0))
    np.savez(tmp_path / "wide.npz", **(arrays | {"actions": 3 * arrays["actions"]}))
    with pytest.raises(FovaError, match=r"The bounds of the actions are not declared.*\n  --action-low -2.*"):
        said(capsys, "validate", "wide.npz")
    assert said(capsys, "validate", "wide.npz", "--action-low", -3, "--action-high", 3).startswith("ok")


def test_import_makes_a_minari_dataset_of_the_same_transitions(capsys, tmp_path):
    data = make_transitions(0)
    save_npz(tmp_path / "log.npz", data)
    assert "54 rows as wards/one-v0" in said(capsys, "import", "log.npz", "--to", "wards/one-v0")
    again = sources.load("wards/one-v0").transitions
    np.testing.assert_array_equal(again.observations, data.observations)
    np.testing.assert_array_equal(again.terminals, data.terminals)
    np.testing.assert_array_equal(again.has_next_action, data.has_next_action)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mke",), "'make'"),
        (("make", "hopper/exprt"), "'expert'"),
        (("make", "hopper"), "hopper/random"),
        (("make", "maze2d-umaze/random", "--size", "0"), "at least 1"),
        (("inspect", "nothing.npz"), "nothing.npz"),
        (("inspect",), "Name the data"),
        (("inspect", "log.npz", "--config", "federation.toml"), "one of the two"),
        (("inspect", "log.npz", "log.npz"), "named twice"),
        (("validate", "nothing.npz"), "nothing.npz"),
        (("import", "nothing.npz"), "--to"),
        (("validate", "log.npz", "--action-low", "-1"), "together"),
        (("train-behaviour", "hoper"), "'hopper'"),
        (("train-behaviour", "hopper", "--environments", "0"), "environments is 0, but must be at least 1"),
        (("train-behaviour", "hopper", "--segment", "0"), "segment is 0, but must be at least 1"),
        (("train-behaviour", "hopper", "--seed", "-1"), "seed is -1, but must be at least 0"),
        (
            ("train-behaviour", "hopper", "--evaluation-episodes", "0"),
            "evaluation_episodes is 0, but must be at least 1",
        ),
        (("train-behaviour", "sepsis"), "25 discrete actions, but this training needs continuous ones"),
    ],
)
def test_mistakes_end_in_one_message(arguments, words, tmp_path):
    save_npz(tmp_path / "log.npz", make_transitions(0))
    with pytest.raises(FovaError, match=words):
        data.command(list(arguments))


class Post(gymnasium.Env):
    """Three steps; the reward is the action."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), float(action[0]), False, self.steps == 3, {}


@pytest.mark.slow
def test_train_behaviour_leaves_snapshots_and_levels(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "prepare", lambda: None)  # what is compiled goes to the cache that all tests share
    monkeypatch.setattr(registry, "_TASKS", {})
    registry.register(registry.Task("post", make=Post, space=Space.unit(1, 1), time_limit=3))
    small = "--steps 48 --segment 24 --warmup 24 --environments 2 --chunk 8 --batch 8 --evaluation-episodes 2"
    widths = "--actor-hidden 8 --critic-hidden 8"
    text = said(capsys, "train-behaviour", "post", "--keep", "kept", *small.split(), *widths.split())
    assert "48 steps" in text
    assert (tmp_path / "runs" / "behaviour-post" / "actor-00000048.safetensors").is_file()
    assert {"expert.safetensors", "medium.safetensors", "policies.json"} <= {
        f.name for f in (tmp_path / "kept").iterdir()
    }


def test_interrupted_making_says_that_nothing_was_written(monkeypatch, capsys):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "ensure", interrupt)
    monkeypatch.setattr("sys.argv", ["fova", "data", "make", "maze2d-umaze/random"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip() == "Stopped; nothing was written."


def test_help_needs_nothing_heavy(capsys):
    out = said(capsys, "--help")
    assert "fova data make hopper/expert" in out
    assert "TABLE is a file with one row per step (.csv" in out
    with pytest.raises(SystemExit) as ended:
        data.command(["make", "--help"])
    assert ended.value.code == 0
    assert "TASK/QUALITY" in capsys.readouterr().out
