"""`fova judge` from a run of files to verdict, ranking and selection."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

import fova
import hospitals
from fova.data.tables.columns import Columns
from fova.evaluation.judging.judge import JudgeSettings
from fova.experiments.comparison import comparison
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


def test_a_run_that_is_not_there_is_noticed_before_the_first_is_judged(wards, fova_command):
    run = wards("one", "--hold-out", "0.3")
    code, _, errors = fova_command("judge", "runs/one", "runs/none", *FIT)
    assert code == 2
    assert "runs/none" in errors
    assert not (run / "judge.json").exists()


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


def test_a_run_on_tables_is_judged_on_new_tables(fova_command, tmp_path):
    hospitals.write(tmp_path, ("north", "south"))
    code, _, errors = fova_command(
        "train", "--clients", "north.csv", "south.csv", "--columns", *hospitals.COLUMNS, *hospitals.BOUNDS,
        "--name", "tables", "--rounds", "1", *TRAIN,
    )  # fmt: skip
    assert code == 0, errors
    new = hospitals.hospital(5)
    new["hr"] += 20.0  # another scale: records are seen as the policy sees them
    new.to_csv(tmp_path / "new.csv", index=False)
    code, out, errors = fova_command("judge", "runs/tables", "--data", "new.csv", "--json", *FIT)
    assert code == 0, errors
    federation = fova.Federation.of_tables(
        {"new-1": new}, dict(pair.split("=") for pair in hospitals.COLUMNS), bounds=((0.0,), (2.0,))
    )
    expected = fova.judge("runs/tables", federation, settings=SETTINGS)
    found = json.loads(out)["runs/tables"]["clients"]["new-1"]
    assert found["value"] == pytest.approx(expected.clients["new-1"].value)
    assert found["inside"] == expected.clients["new-1"].inside


def test_choices_of_new_tables_have_the_codes_of_the_policy(tmp_path, fova_command):
    drugs = np.array(["fluids", "nothing", "vasopressor"])

    def table(seed, names):
        frame = hospitals.hospital(seed)
        frame["dose"] = names[np.digitize(frame["dose"], [0.6, 1.2]) % len(names)]
        return frame

    for seed in (0, 1):
        table(seed, drugs).to_csv(tmp_path / f"{seed}.csv", index=False)
    code, _, errors = fova_command(
        "train", "--clients", "0.csv", "1.csv", "--columns", *hospitals.COLUMNS, "--algorithm", "fed-bc", "--name",
        "drugs", "--rounds", "1", *TRAIN,
    )  # fmt: skip
    assert code == 0, errors
    table(7, drugs[1:]).to_csv(tmp_path / "two.csv", index=False)  # it never gave fluids
    code, out, errors = fova_command("judge", "runs/drugs", "--data", "two.csv", *FIT)
    assert code == 0, errors
    assert "two-1" in out
    assert "Bellman error" in out
    table(7, np.array(["nothing", "insulin"])).to_csv(tmp_path / "other.csv", index=False)
    code, _, errors = fova_command("judge", "runs/drugs", "--data", "other.csv", *FIT)
    assert code == 2
    assert "insulin" in errors
    assert "none of the actions" in " ".join(errors.split())


def test_rounds_and_clients_policies_are_ranked_with_runs(wards, fova_command, monkeypatch):
    from fova.evaluation.judging import judge as judging

    monkeypatch.setattr(judging.JudgeSettings, "__init__", _tiny_settings)
    run = wards("one", "--hold-out", "0.3", "--select", "judge", "--evaluate-every", "1")
    best = sorted(str(path.relative_to(run.parent.parent)) for path in (run / "best").glob("*.safetensors"))
    own = "runs/one/clients/east-1.safetensors"
    code, out, errors = fova_command("judge", *best, own, "--json")
    assert code == 0, errors
    found = json.loads(out)
    assert list(found) == [*best, own]
    for path in best:  # the judge of the training found the same
        assert found[path]["federation"]["value"] == pytest.approx(fova.load_policy(path).facts["judged"]["value"])
    assert set(found[own]["clients"]) == {"east-1", "west-1"}
    assert not (run / "judge.json").exists()
    _, out, _ = fova_command("judge", *best, own)
    assert "has the highest estimate" in " ".join(out.split())


def test_a_file_that_is_no_policy_of_a_run_is_refused(wards, fova_command, tmp_path):
    run = wards("one", "--hold-out", "0.3")
    state = next((run / "checkpoints").glob("*.safetensors"))
    code, _, errors = fova_command("judge", str(state), *FIT)
    assert code == 2
    assert "not a policy" in errors
    for suffix in (".safetensors", ".json"):
        (tmp_path / f"lost{suffix}").write_bytes(run.joinpath(f"policy{suffix}").read_bytes())
    code, _, errors = fova_command("judge", "lost.safetensors", *FIT)
    assert code == 2
    assert "does not lie in a run's directory" in errors


def test_no_figure_is_cut_off_in_a_narrow_terminal(wards, fova_command, monkeypatch):
    wards("one", "--hold-out", "0.3")
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = fova_command("judge", "runs/one", *FIT)
    assert "…" not in out
    assert "how far to trust it" in out
    assert "Bellman" in out


def test_local_runs_have_a_policy_and_a_verdict_for_every_client(wards, fova_command):
    run = wards("alone", "--mode", "local", "--hold-out", "0.3")
    assert set(own_policies(RunDirectory(run))) == {"east-1", "west-1"}
    own = fova.load_policy(run / "clients" / "east-1.safetensors")
    assert own(np.zeros(3)).shape == (2,)
    verdict = judge_run(run, SETTINGS)
    assert set(verdict.clients) == {"east-1", "west-1"}
    assert verdict == read_verdict(RunDirectory(run))


def test_a_run_is_judged_from_python_as_by_the_command(wards, fova_command):
    run, told = wards("one", "--hold-out", "0.3"), []
    found = fova.judge(run, settings=SETTINGS, tell=told.append)
    assert any("round" in message for message in told)
    assert found == read_verdict(RunDirectory(run))
    (run / "judge.json").unlink()
    assert fova_command("judge", "runs/one", *FIT)[0] == 0
    assert found == read_verdict(RunDirectory(run))
    save_npz(run.parent / "new.npz", make_transitions(7, episodes=6))
    assert set(fova.judge(run, settings=SETTINGS, data=str(run.parent / "new.npz")).clients) == {"new-1"}


def test_training_keeps_the_round_that_the_judge_prefers(wards, monkeypatch):
    from fova.evaluation.judging import judge as judging
    from fova.run import training

    @dataclass(frozen=True)
    class Quick(JudgeSettings):
        steps: int = SETTINGS.steps
        critics: int = SETTINGS.critics
        hidden: tuple[int, ...] = SETTINGS.hidden
        batch_size: int = SETTINGS.batch_size

    monkeypatch.setattr(judging, "JudgeSettings", Quick)
    monkeypatch.setattr(training, "SELECTION_ROUNDS", 1)
    run = wards("chosen", "--hold-out", "0.3", "--select", "judge", "--evaluate-every", "1")
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    values = {entry["round"]: entry["judge"]["value"] for entry in logged if "judge" in entry}
    assert set(values) == {1, 2}
    best = max(values, key=values.get)
    policy = fova.load_policy(run)
    assert policy.facts["rounds"] == best
    assert policy.facts["judged"]["value"] == values[best]
    again = judge_run(run / "best" / f"round-{best:06d}.safetensors", Quick(rounds=1))
    assert again.federation.value == values[best]
    assert len(list((run / "best").glob("*.safetensors"))) == 2


def test_rounds_are_chosen_and_new_data_is_judged_as_robustly_as_the_run_was_trained(wards, monkeypatch):
    from fova.evaluation.judging import judge as judging

    asked = []

    def listening(policy, federation, discount, settings, *more):
        asked.append(settings.aggregation)
        return found

    found = judge_run(wards("plain", "--hold-out", "0.3"), SETTINGS)
    monkeypatch.setattr(judging, "judge", listening)
    run = wards(
        "robust", "--hold-out", "0.3", "--select", "judge", "--evaluate-every", "1", "--aggregation", "median"
    )
    assert asked == ["median", "median"]  # after each of two rounds
    save_npz(run.parent / "new.npz", make_transitions(7, episodes=6))
    judge_run(run, SETTINGS, [str(run.parent / "new.npz")])
    assert asked[2:] == ["median"]


def test_a_run_that_stops_before_any_round_was_judged_ends_with_its_last_policy(tmp_path):
    clients = {name: make_transitions(i, episodes=8) for i, name in enumerate("ab")}
    result = fova.train(
        clients=clients, directory=tmp_path / "run", rounds=9, local_steps=2, hidden=(8,), batch_size=8,
        hold_out=0.25, select="judge", evaluate_every=5, on_round=lambda report: report.round == 3,
    )  # fmt: skip
    assert result.policy.facts["rounds"] == 3
    assert (tmp_path / "run/result.json").is_file()


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


@pytest.mark.slow
def test_a_comparison_takes_tables(fova_command, tmp_path, monkeypatch):
    from fova.evaluation.judging import judge as judging

    monkeypatch.setattr(judging.JudgeSettings, "__init__", _tiny_settings)
    hospitals.write(tmp_path, ("north", "south"))
    code, out, errors = fova_command(
        "compare", "--clients", "north.csv", "south.csv", "--columns", *hospitals.COLUMNS, *hospitals.BOUNDS,
        "--algorithms", "fed-bc", "--modes", "federated", "local", "--seeds", "1", "--rounds", "1", "--local-steps",
        "2", "--hidden", "8", "--batch-size", "8", "--jobs", "1", "--plain", "--name", "both",
    )  # fmt: skip
    assert code == 0, errors
    assert "does taking part pay?" in out
    own = fova.load_policy(tmp_path / "runs/both/fed-bc-local-seed-0/clients/north-1.safetensors")
    (dose,) = own({"hr": 80.0, "map": 70.0, "lactate": 2.0, "age": 60})
    assert 0.0 <= dose <= 2.0


def test_a_comparison_plans_its_runs_with_the_columns(tmp_path):
    columns = Columns.of(hospitals.COLUMNS)
    entry, scale = comparison(
        None, ["a.csv"], None, ["fed-bc"], ["federated", "local"], 1,
        run={"rounds": 1, "local_steps": 1, "hold_out": 0.1, "action_low": (0.0,), "action_high": (2.0,)},
        settings={}, columns=columns,
    )  # fmt: skip
    for planned in entry.runs(scale):
        assert planned.config.columns == columns
        assert planned.config.run.action_high == (2.0,)


def _tiny_settings(self, **given):
    for name, value in vars(SETTINGS).items():
        object.__setattr__(self, name, value)
