import shutil
from pathlib import Path

import pytest

from fova import algorithms
from fova.federation.client_specs import ClientSpec
from fova.run.config import Config, RunConfig, load_config, read_toml

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
