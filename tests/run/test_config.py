import shutil
from pathlib import Path

import pytest

from fova import algorithms
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.run import config as config_module
from fova.run.config import (
    Config,
    RunConfig,
    insist_on_memory,
    load_config,
    read_toml,
    sampling_of,
    unit_of_reward,
)

CLIENTS = """
[[client]]
data = "logs/ward-1.npz"
[[client]]
data = "../ward-2.npz"
[[client]]
data = "expert"
[[client]]
data = "2-expert-2-random"
[[client]]
data = "hopper/expert-v0"
"""


def sources_of(config):
    return [client.data for client in config.clients]


@pytest.mark.parametrize("current", [".", "study", "elsewhere"])
def test_paths_count_from_the_file_they_are_in(tmp_path, monkeypatch, current):
    for folder in ("study", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "study" / "federation.toml").write_text(CLIENTS)
    monkeypatch.chdir(tmp_path / current)
    for path in (tmp_path / "study" / "federation.toml", Path("../study" if current != "." else "study")):
        path = path if path.suffix else path / "federation.toml"
        assert sources_of(read_toml(path)) == [
            str(tmp_path / "study/logs/ward-1.npz"),
            str(tmp_path / "ward-2.npz"),
            "expert",
            "2-expert-2-random",
            "hopper/expert-v0",
        ]


def test_what_is_there_is_a_path_whatever_it_looks_like(tmp_path):
    for folder in ("expert", "hopper/expert-v0"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "federation.toml").write_text(CLIENTS)
    *_, expert, _, minari = sources_of(read_toml(tmp_path / "federation.toml"))
    assert (expert, minari) == (str(tmp_path / "expert"), str(tmp_path / "hopper/expert-v0"))


def test_a_configuration_moves_along_with_its_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = tmp_path / "study"
    (study / "runs" / "one").mkdir(parents=True)
    for name in ("ward.npz", "later.npz"):
        (study / name).touch()
    source = Path(algorithms.__file__).parents[3] / "examples" / "fed_awac.py"
    shutil.copy(source, study / "mine.py")
    config = Config(
        task="hopper",
        clients=(ClientSpec("study/ward.npz"), ClientSpec("expert", 10)),
        algorithm=algorithms.configure("study/mine.py"),
        algorithm_name="study/mine.py",
        run=RunConfig(data_sequence=("study/later.npz", "random")),
    )
    text = config.to_toml(study / "runs" / "one")
    assert str(tmp_path) not in text
    (study / "runs" / "one" / "config.toml").write_text(text)
    assert load_config(study / "runs" / "one" / "config.toml") == config
    study.rename(tmp_path / "moved")
    moved = load_config(tmp_path / "moved/runs/one/config.toml")
    assert sources_of(moved) == [str(tmp_path / "moved/ward.npz"), "expert"]
    assert moved.run.data_sequence == (str(tmp_path / "moved/later.npz"), "random")
    assert moved.algorithm_name == str(tmp_path / "moved/mine.py")


def test_the_same_file_named_in_two_ways_is_the_same_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ward.npz").touch()
    one, other = (
        Config(None, (ClientSpec(data),), algorithms.configure("fova"))
        for data in ("ward.npz", str(tmp_path / "ward.npz"))
    )
    assert one == other


def test_gradient_steps_are_those_of_the_clients_that_take_part():
    config = Config(
        "hopper",
        (ClientSpec("2-expert-2-random"),),
        algorithms.configure("fed-bc"),
        "fed-bc",
        RunConfig(rounds=7, local_steps=10, participation=0.5),
    )
    assert config.gradient_steps == 7 * 10 * 2


@pytest.mark.parametrize("name", ["lambda", "lam"])
def test_a_file_may_say_lambda(tmp_path, name):
    path = tmp_path / "config.toml"
    path.write_text(f"[algorithm]\n{name} = 2.0\n")
    config = load_config(path)
    assert config.algorithm.lam == 2.0
    written = config.to_toml()
    assert "\nlambda = 2.0\n" in written
    assert "lam =" not in written.replace("lambda =", "")
    path.write_text(written)
    assert load_config(path) == config


# --- Settings that exclude one another ---


PRIVATE = {
    "privacy": "client",
    "privacy_clip": 1.0,
    "privacy_noise": 2.0,
    "aggregation": "uniform",
    "normalise": False,
}
JUDGED = {"select": "judge", "hold_out": 0.1}


def without(settings, *names):
    return {name: value for name, value in settings.items() if name not in names}


@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": 999_999},
        {"action_low": (0.0,), "action_high": (1.0,)},
        {"data_sequence": ("a", "b"), "rounds": 2},
        JUDGED,
        JUDGED | {"mode": "centralised"},
        PRIVATE,
        PRIVATE | {"privacy": "server"},
        {"select": "last", "mode": "local"},
    ],
)
def test_settings_that_go_together(settings):
    assert RunConfig(**settings).rounds >= 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rounds": 1_000_000}, "rounds"),
        ({"action_low": (0.0,)}, "action_low and action_high together"),
        ({"action_high": (0.0,)}, "action_low and action_high together"),
        ({"data_sequence": ("a", "b", "c"), "rounds": 2}, "names 3 sources for 2 rounds"),
        (without(JUDGED, "hold_out"), "needs episodes that never trained"),
        (JUDGED | {"evaluate_every": 0}, "but evaluate_every is 0"),
        (JUDGED | {"mode": "local"}, "but mode is local, which has no server's policy"),
        (JUDGED | PRIVATE, "but the run is private"),
        (without(PRIVATE, "privacy"), "privacy_clip is given, but privacy is off"),
        ({"privacy_epsilon": 3.0}, "privacy_epsilon is given, but privacy is off"),
        (without(PRIVATE, "privacy_clip"), "Privacy needs a largest norm and noise"),
        (without(PRIVATE, "privacy_noise"), "Privacy needs a largest norm and noise"),
        (PRIVATE | {"mode": "local"}, "mode is local, which sends nothing"),
        (PRIVATE | {"aggregation": "median"}, "aggregation is median, but only the plain mean"),
        (PRIVATE | {"normalise": True}, "normalise sends sums"),
    ],
)
def test_settings_that_exclude_one_another(settings, words):
    with pytest.raises(FovaError, match=words):
        RunConfig(**settings)


def test_the_privacy_of_a_run_and_its_budget():
    assert RunConfig().private(4) is None
    privacy = RunConfig(**PRIVATE, rounds=10, participation=0.5).private(4)
    assert (privacy.clip, privacy.noise, privacy.clients) == (1.0, 2.0, 4)
    spent = privacy.epsilon(10)
    assert RunConfig(**PRIVATE, rounds=10, participation=0.5, privacy_epsilon=spent).private(4) == privacy
    with pytest.raises(FovaError, match=f"10 rounds would spend epsilon {spent:.2f}, the budget is"):
        RunConfig(**PRIVATE, rounds=10, participation=0.5, privacy_epsilon=0.99 * spent).private(4)


@pytest.mark.parametrize(
    ("settings", "averaged"),
    [
        ({"rounds": 5}, 1),
        ({"rounds": 29}, 2),
        ({"rounds": 50}, 5),
        ({"rounds": 900}, 5),
        ({"average_rounds": 7}, 7),
    ],
)
def test_over_how_many_rounds_policies_are_averaged(settings, averaged):
    assert RunConfig(**settings).averaged_rounds == averaged


# --- Derived values ---


FOVA, IQL = algorithms.configure("fova"), algorithms.configure("fed-iql")


@pytest.mark.parametrize(
    ("unit", "algorithm", "expected"),
    [
        ("algorithm", IQL, 1.0),
        ("algorithm", FOVA, None),
        ("federation", IQL, None),
        (2.5, FOVA, 2.5),
        (2, IQL, 2.0),
    ],
)
def test_the_unit_of_reward_where_it_is_known_before_any_data(unit, algorithm, expected):
    assert unit_of_reward(RunConfig(reward_unit=unit), algorithm) == expected


GOOD_EPISODES = algorithms.configure("fova", "good-episodes")


@pytest.mark.parametrize(
    ("sampling", "algorithm", "expected"),
    [
        ("algorithm", IQL, "uniform"),
        ("algorithm", FOVA, "uniform"),
        ("algorithm", GOOD_EPISODES, "returns"),
        ("uniform", GOOD_EPISODES, "uniform"),
        ("returns", IQL, "returns"),
    ],
)
def test_which_rows_are_trained_on_as_the_run_says_or_else_the_algorithm(sampling, algorithm, expected):
    assert sampling_of(RunConfig(sampling=sampling), algorithm) == expected


def test_under_privacy_the_unit_of_reward_must_be_known():
    with pytest.raises(FovaError, match="The unit of reward is a statistic of the clients' data"):
        Config(None, (), FOVA, "fova", RunConfig(**PRIVATE))
    assert Config(None, (), FOVA, "fova", RunConfig(**PRIVATE, reward_unit=1.0)).run.reward_unit == 1.0
    assert Config(None, (), FOVA, "fova", RunConfig()).run.privacy == "off"


def test_at_least_one_client_takes_a_round():
    run = RunConfig(rounds=3, local_steps=10, participation=0.1)
    assert Config(None, (ClientSpec("a.npz"), ClientSpec("b.npz")), IQL, "fed-iql", run).gradient_steps == 30


def fingerprint(task="hopper", algorithm=IQL, name="fed-iql", **run):
    return Config(task, (), algorithm, name, RunConfig(**run)).fingerprint()


def test_settings_without_effect_on_training_do_not_change_the_fingerprint():
    usual = fingerprint()
    for changes in ({"rounds": 99}, {"evaluate_every": 3}, {"episodes": 7}, {"checkpoint_seconds": 1.0}):
        assert fingerprint(**changes) == usual
    for changes in ({"seed": 1}, {"local_steps": 7}, {"aggregation": "median"}, {"participation": 0.5}):
        assert fingerprint(**changes) != usual
    assert fingerprint(task=None) != usual
    assert fingerprint(algorithm=algorithms.configure("fed-iql", expectile=0.9)) != usual
    assert fingerprint(name="somewhere/fed-iql") == usual  # the folder of an algorithm's file does not count
    assert fingerprint(name="other") != usual


def test_it_does_not_matter_who_asked_for_the_sampling():
    """So a run that was started when uniform was the default goes on."""
    assert fingerprint(sampling="uniform") == fingerprint() != fingerprint(sampling="returns")
    assert fingerprint(algorithm=GOOD_EPISODES, sampling="returns") == fingerprint(algorithm=GOOD_EPISODES)
    assert fingerprint(algorithm=GOOD_EPISODES, sampling="uniform") != fingerprint(algorithm=GOOD_EPISODES)


def test_the_number_of_rounds_counts_where_data_comes_in_turns():
    turns = {"data_sequence": ("random", "expert")}
    assert fingerprint(rounds=8, **turns) != fingerprint(rounds=9, **turns)
    assert fingerprint(rounds=8, **turns) == fingerprint(rounds=8, **turns, evaluate_every=3)
    assert fingerprint(rounds=8, **turns) == fingerprint(rounds=8, data_sequence=("expert", "random"))


@pytest.mark.parametrize(
    ("clients", "cohort", "processes", "needed"),
    [
        # Weights 1 x 10 + 10 x 20 + 20 x 1 = 230, three times for each client; activations 8 x 30 at once.
        (3, 2, 1, 4 * (3 * 3 * 230 + 2 * 8 * 30)),
        (3, 64, 1, 4 * (3 * 3 * 230 + 3 * 8 * 30)),
        (3, 64, 2, 4 * (2 * 3 * 230 + 2 * 8 * 30)),  # two clients in the larger share
    ],
)
def test_networks_that_do_not_fit_into_memory_are_refused(monkeypatch, clients, cohort, processes, needed):
    small = algorithms.configure("fed-iql", hidden=(10, 20), batch_size=8)
    monkeypatch.setattr(config_module.cluster, "processes", lambda: processes)
    for free in (needed, None):
        monkeypatch.setattr(config_module, "available", lambda free=free: free)
        assert insist_on_memory(small, clients, cohort) is None
    monkeypatch.setattr(config_module, "available", lambda: needed - 1)
    with pytest.raises(FovaError, match="narrower layers, a smaller batch_size or cohort, or fewer clients"):
        insist_on_memory(small, clients, cohort)
