"""The running mean of the server's policies: by hand, in a run, and across a resume."""

import numpy as np
import pytest
from test_training import TINY, contents, federation

import fova
from fova.machine.interrupts import Interrupted
from fova.policy import load_policy
from fova.progress import Quiet
from fova.run.averaging import running_mean
from fova.run.config import Config, RunConfig


def test_the_mean_by_hand():
    mean = {"w": np.array([7.0, 7.0], np.float32)}
    for rounds, policy, expected in ((1, 1.0, 1.0), (2, 3.0, 2.0), (3, 8.0, 5.0), (4, 1.0, 3.0)):
        mean = running_mean(mean, {"w": np.full(2, policy, np.float32)}, rounds, horizon=2)
        np.testing.assert_allclose(mean["w"], expected)


def weights(policy):
    return np.concatenate([policy.weights[name].ravel() for name in sorted(policy.weights)])


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    seen = []
    directory = tmp_path_factory.mktemp("runs") / "averaged"
    fova.train(
        clients=federation(),
        directory=directory,
        on_round=lambda it: seen.append(it.policy),
        average_rounds=3,
        **TINY,
    )
    return directory, seen


def test_the_saved_policy_is_the_mean_and_training_is_unchanged(averaged, tmp_path):
    directory, means = averaged
    plain = []
    fova.train(
        clients=federation(), directory=tmp_path / "plain", on_round=lambda it: plain.append(it.policy), **TINY
    )
    expected = weights(plain[0])
    for rounds, (policy, mean) in enumerate(zip(plain, means), start=1):
        expected += (weights(policy) - expected) / min(rounds, 3)
        np.testing.assert_allclose(weights(mean), expected, atol=1e-6)
    np.testing.assert_array_equal(weights(load_policy(directory)), weights(means[-1]))
    assert (directory / "metrics.jsonl").read_text() == (tmp_path / "plain" / "metrics.jsonl").read_text()


def test_a_resumed_run_has_the_same_mean(averaged, tmp_path):
    directory, _ = averaged

    class Stops(Quiet):
        def round(self, entry):
            if entry["round"] == 4:
                raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="round 4 of 6"):
        fova.train(clients=federation(), directory=tmp_path / "cut", progress=Stops(), average_rounds=3, **TINY)
    fova.resume(tmp_path / "cut", federation=federation())
    assert contents(tmp_path / "cut") == contents(directory)


def test_a_setting_that_a_later_version_adds_does_not_keep_old_runs_from_going_on(monkeypatch):
    config = Config(None, (), algorithm=fova.algorithms.configure("fed-bc"), algorithm_name="fed-bc")
    before = config.fingerprint()
    assert Config(None, (), config.algorithm, "fed-bc", RunConfig(reward_scale=2.0)).fingerprint() != before
    removed = RunConfig.__dataclass_fields__["reward_scale"]  # a version without it
    monkeypatch.delitem(RunConfig.__dataclass_fields__, removed.name)
    assert config.fingerprint() == before


def test_automatic_rounds_are_a_tenth_of_the_run_and_at_most_five():
    rounds = {9: 1, 19: 1, 20: 2, 49: 4, 50: 5, 1000: 5}
    assert {n: RunConfig(rounds=n).averaged_rounds for n in rounds} == rounds
    assert RunConfig(rounds=50, average_rounds=7).averaged_rounds == 7


def test_a_run_that_took_the_last_policy_goes_on_with_a_mean(averaged, tmp_path):
    """A longer run averages over more rounds. The mean begins with the first policy after the resume."""
    seen = []
    fova.train(clients=federation(), directory=tmp_path / "run", average_rounds=1, **TINY)
    settings = (tmp_path / "run" / "config.toml").read_text()
    settings = settings.replace("rounds = 6", "rounds = 8").replace("average_rounds = 1", "average_rounds = 3")
    (tmp_path / "run" / "config.toml").write_text(settings)
    fova.resume(tmp_path / "run", federation=federation(), on_round=lambda it: seen.append(it.policy))
    plain = []
    fova.train(
        clients=federation(), directory=tmp_path / "plain", on_round=lambda it: plain.append(it.policy),
        **(TINY | {"rounds": 8}),
    )  # fmt: skip
    np.testing.assert_array_equal(weights(seen[0]), weights(plain[6]))
    mean = weights(plain[6]) + (weights(plain[7]) - weights(plain[6])) / 3
    np.testing.assert_allclose(weights(seen[1]), mean, atol=1e-6)
