"""`fova judge` from a run of files to verdict, ranking and selection."""

import json

import numpy as np
import pytest

import fova
from fova.evaluation.judging.judge import JudgeSettings
from fova.run.directory import RunDirectory
from fova.run.judged import judge_run, own_policies
from fova.run.records import read_verdict
from tiny import make_transitions, save_npz

TRAIN = ("--hidden", "8", "--batch-size", "8", "--local-steps", "2", "--quiet")
FIT = ("--rounds", "1", "--steps", "2", "--critics", "2", "--hidden", "8", "--batch-size", "8", "--quiet")
SETTINGS = JudgeSettings(rounds=1, steps=2, critics=2, hidden=(8,), batch_size=8)


@pytest.fixture
def wards(fova_command, tmp_path):
    for i, name in enumerate(("east", "west")):
        save_npz(tmp_path / f"{name}.npz", make_transitions(i, episodes=20))

    def train(name, *arguments):
        code, _, errors = fova_command(
            "train", "--clients", "east.npz", "west.npz", "--name", name, "--rounds", "2", *TRAIN, *arguments
        )
        assert code == 0, errors
        return tmp_path / "runs" / name

    return train


def test_from_files_to_a_verdict(wards, fova_command):
    run = wards("one", "--hold-out", "0.3")
    code, out, errors = fova_command("judge", "runs/one", *FIT)
    assert code == 0, errors
    assert "east-1" in out
    assert "Better than current practice at" in out
    found = read_verdict(RunDirectory(run))
    assert {name: figures.episodes for name, figures in found.clients.items()} == {"east-1": 6, "west-1": 6}
    assert found.sentence() in out
    first = (run / "judge.json").read_bytes()
    assert fova_command("judge", "runs/one", *FIT)[0] == 0
    assert (run / "judge.json").read_bytes() == first  # the same seed, the same figures
    expected = fova.judge(
        run, fova.Federation.build([fova.ClientSpec("east.npz"), fova.ClientSpec("west.npz")]).holding_out(0.3),
        settings=SETTINGS,
    )  # fmt: skip
    assert found.federation.value == pytest.approx(expected.federation.value)


def test_several_runs_are_ranked_and_odd_ones_are_told(wards, fova_command):
    wards("one", "--hold-out", "0.3")
    wards("two", "--hold-out", "0.3", "--algorithm", "fed-bc")
    code, out, _ = fova_command("judge", "runs/one", "runs/two", "--json", *FIT)
    assert code == 0
    verdicts = json.loads(out)
    assert list(verdicts) == ["runs/one", "runs/two"]
    _, out, _ = fova_command("judge", "runs/one", "runs/two", *FIT)
    order = sorted(verdicts, key=lambda name: -verdicts[name]["federation"]["value"])
    ranking = out[out.index("ranking") :]
    assert ranking.index(order[0]) < ranking.index(order[1])
    assert "not comparable" not in out
    wards("three")
    code, out, _ = fova_command("judge", "runs/one", "runs/three", *FIT)
    assert code == 0
    assert "flatters" in out
    assert "not comparable" in out


def test_a_run_is_judged_on_new_files(wards, fova_command, tmp_path):
    run = wards("one")
    save_npz(tmp_path / "new.npz", make_transitions(7, episodes=6))
    code, out, errors = fova_command("judge", "runs/one", "--data", "new.npz", *FIT)
    assert code == 0, errors
    assert "new-1" in out
    assert "flatters" not in out
    assert not (run / "judge.json").exists()


def test_local_runs_have_a_policy_and_a_verdict_for_every_client(wards, fova_command):
    run = wards("alone", "--mode", "local", "--hold-out", "0.3")
    assert set(own_policies(RunDirectory(run))) == {"east-1", "west-1"}
    own = fova.load_policy(run / "clients" / "east-1.safetensors")
    assert own(np.zeros(3)).shape == (2,)
    verdict = judge_run(run, SETTINGS)
    assert set(verdict.clients) == {"east-1", "west-1"}
    assert verdict == read_verdict(RunDirectory(run))


def test_training_keeps_the_round_that_the_judge_prefers(wards, monkeypatch):
    from fova.evaluation.judging import judge as judging

    monkeypatch.setattr(judging, "JudgeSettings", lambda **given: SETTINGS)
    run = wards("chosen", "--hold-out", "0.3", "--select", "judge", "--evaluate-every", "1")
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    values = {entry["round"]: entry["judge"]["value"] for entry in logged if "judge" in entry}
    assert set(values) == {1, 2}
    best = max(values, key=values.get)
    policy = fova.load_policy(run)
    assert policy.facts["rounds"] == best
    assert policy.facts["judged"]["value"] == values[best]
    assert len(list((run / "best").glob("*.safetensors"))) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("judge",), "run"),
        (("judge", "runs/none"), "not a run directory"),
        (("train", "--clients", "a.npz", "--select", "judge"), "--hold-out"),
        (
            ("train", "--clients", "a.npz", "--select", "judge", "--hold-out", "0.1", "--evaluate-every", "0"),
            "judge",
        ),
        (("train", "--clients", "a.npz", "--hold-out", "0.9"), "at most 0.5"),
        (("judge", "runs/none", "--critics", "0"), "critics"),
    ],
)
def test_mistakes_have_one_message(fova_command, arguments, words):
    code, out, errors = fova_command(*arguments)
    assert code == 2
    assert words in out + errors
    assert "Traceback" not in errors


def test_a_comparison_needs_no_task(fova_command, tmp_path, monkeypatch):
    from fova.evaluation.judging import judge as judging

    monkeypatch.setattr(judging.JudgeSettings, "__init__", _tiny_settings)
    for i, name in enumerate(("east", "west")):
        save_npz(tmp_path / f"{name}.npz", make_transitions(i, episodes=20))
    code, out, errors = fova_command(
        "compare", "--clients", "east.npz", "west.npz", "--algorithms", "fed-bc", "--modes", "federated", "local",
        "--seeds", "1", "--rounds", "2", "--local-steps", "2", "--hidden", "8", "--batch-size", "8", "--hold-out",
        "0.3", "--jobs", "1", "--plain", "--name", "both",
    )  # fmt: skip
    assert code == 0, errors
    assert "does taking part pay?" in out
    assert "fed-bc (local)" in out
    page = (tmp_path / "runs/both/report.html").read_text()
    assert "fed-bc: By the judge, taking part pays at" in page
    code, _, errors = fova_command("compare", "--clients", "east.npz", "--hold-out", "0")
    assert code == 2
    assert "--hold-out" in errors


def _tiny_settings(self, **given):
    for name, value in vars(SETTINGS).items():
        object.__setattr__(self, name, value)
