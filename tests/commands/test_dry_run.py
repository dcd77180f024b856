"""`fova train --dry-run`, and mistakes that are found before any data is made."""

import pytest

from fova import algorithms
from fova.federation.client_specs import ClientSpec, complete
from fova.paper import cost
from fova.run.config import Config, RunConfig
from fova.tasks import datasets
from tiny import make_transitions, save_npz

MAZE = ("--task", "maze2d-umaze", "--clients", "2-expert-2-random", "--size", 400)
SMALL = ("--hidden", 8, "--rounds", 10, "--local-steps", 5)


@pytest.fixture
def no_data(monkeypatch):
    def refuse(*_):
        raise AssertionError("data is being made")

    monkeypatch.setattr(datasets, "made", refuse)


def test_a_dry_run_tells_what_it_takes_and_leaves_nothing(fova_command, tmp_path, no_data):
    code, out, err = fova_command("train", *MAZE, *SMALL, "--algorithm", "fed-bc", "--dry-run")
    assert (code, err) == (0, "")
    assert "clients     4: expert-1, expert-2, random-1, random-2" in out
    assert "rows        1,600 in all, 400 at a client" in out
    assert "10 rounds of 5 at every client, 200 in all" in out
    # observations of 4, 8 hidden units, means of 2 actions and, for a Gaussian, as many deviations
    policy = 4 * 8 + 8 + 8 * 2 + 2
    gaussian = 4 * 8 + 8 + 8 * 4 + 4
    assert any(f"parameters  {size} of the policy" in out for size in (policy, gaussian))
    assert "directory   runs/fed-bc-maze2d-umaze-1" in out
    assert list(tmp_path.iterdir()) == []


def test_files_are_counted_as_they_are(fova_command, tmp_path):
    save_npz(tmp_path / "ward-1.npz", make_transitions(0))
    save_npz(tmp_path / "ward-2.npz", make_transitions(1))
    rows = len(make_transitions(0)) + len(make_transitions(1))
    code, out, err = fova_command("train", "--clients", "ward-1.npz", "ward-2.npz", *SMALL, "--dry-run")
    assert (code, err) == (0, "")
    assert "clients     2: ward-1, ward-2" in out
    assert f"rows        {rows:,} in all" in out


def test_the_time_by_hand():
    clients = (ClientSpec("expert", 400), ClientSpec("random", 400))
    run = RunConfig(rounds=20, local_steps=100, evaluate_every=0, final_episodes=3, final_clients=False)
    algorithm = algorithms.configure("fova", hidden=(128, 128), batch_size=128)
    seconds = cost.seconds(Config("hopper", clients, algorithm, "fova", run))
    speeds = cost.speeds()
    by_hand = speeds.compiling + 2 * 20 * 100 / speeds.client_steps["fova"][0]
    assert seconds == pytest.approx(by_hand + 3 * 1000 / speeds.environment_steps)
    own = Config(None, clients, algorithm, "fova", run)
    assert cost.seconds(own) == pytest.approx(by_hand)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("clients", "words"),
    [
        (("expert", "expret"), "Did you mean 'expert'"),
        (("expert", "expert:50+rnadom:50"), "Did you mean 'random'"),
        (("expert", "nowhere/ward.npz"), "There is no file or folder"),
    ],
)
def test_names_are_checked_before_any_data_is_made(fova_command, no_data, clients, words, dry):
    code, _, err = fova_command("train", "--task", "maze2d-umaze", "--clients", *clients, *SMALL, *dry)
    assert code == 2
    assert words in err


def test_a_dry_run_is_not_a_way_to_resume(fova_command, tmp_path):
    code, _, err = fova_command("train", "--resume", "runs/one", "--dry-run")
    assert code == 2
    assert "leave out --dry-run" in err


def test_a_file_with_a_number_keeps_its_name():
    def names(*data):
        return [spec.name for spec in complete([ClientSpec(name) for name in data])]

    assert names("a/ward-1.npz", "a/ward-2.npz") == ["ward-1", "ward-2"]
    assert names("a/ward.npz", "expert", "expert") == ["ward-1", "expert-1", "expert-2"]
    assert names("a/ward-1.npz", "a/ward-1.npz") == ["ward-1-1", "ward-1-2"]  # two parts of one file
    assert names("a/ward.npz", "a/ward-1.npz") == ["ward-1", "ward-1-1"]  # "ward-1" is taken
