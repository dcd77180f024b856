"""Arguments and files that make no sense, given to commands other than `fova train`: one message, nothing lost."""

import json
import os
from pathlib import Path

import pytest

from fova.errors import FovaError
from fova.experiments.results import Results
from fova.policy import load_policy
from hospitals import hospital
from made_runs import make_run
from tiny import make_transitions, save_npz

COMMITTED = Path(__file__).parents[2] / "results/same-weights.json"
HUGE = "9" * 400
TABLE = ("episode=patient_id", "time=hour", "observations=hr,map", "action=dose", "reward=score", "terminal=died")
GRID = ("compare", "--clients", "ward.npz", "--dry-run", "--plain")


@pytest.fixture
def refused(fova_command, tmp_path):
    """Assert that a command ends with a message that holds some words."""
    save_npz(tmp_path / "ward.npz", make_transitions(0))
    hospital(0).round(3).to_csv(tmp_path / "north.csv", index=False)

    def check(words, *arguments):
        code, _, err = fova_command(*arguments)
        assert code == 2
        assert words in " ".join(err.split())
        assert "Traceback" not in err
        assert len(err) < 1500

    return check


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("episodes is 99", ("evaluate", "run", f"--episodes={HUGE}")),
        ("episodes is 0, but must be at least 1", ("evaluate", "run", "--episodes=0")),
        ("seed is -5, but must be at least 0", ("evaluate", "run", "--seed=-5")),
        ("seed is 4294967296", ("evaluate", "run", "--seed=4294967296")),
        ("mdps is 0, but must be at least 1", ("theory", "--mdps=0")),
        ("mdps is 99", ("theory", f"--mdps={HUGE}")),
        ("seed is -1", ("theory", "--mdps=1", "--seed=-1")),
        ("port is 65536, but must be at least 0 and at most 65,535.", ("serve", "run", "--port=65536")),
        ("max_connections is 0", ("serve", "run", "--max-connections=0")),
        ("max_seconds is nan", ("serve", "run", "--max-seconds=nan")),
        ("warn_beyond is -1.0", ("serve", "run", "--warn-beyond=-1")),
        ("port is -1", ("watch", "run", "--port=-1")),
        ("size is (nan, 3.0), but each number must be at least 0.5", ("plot", "run", "--size", "nan", "3")),
        ("No file format was named.", ("plot", "run", "--format")),
        ("seeds is 0", (*GRID, "--seeds=0")),
        ("jobs is 0", (*GRID, "--jobs=0")),
        ("jobs is 100000", (*GRID, "--jobs=100000")),
        ("--address is empty", (*GRID, "--on", "ray", "--address", "")),
        ("There is no task called 'nope'", (*GRID, "--task", "nope")),
        ("fqe evaluates a policy and trains none", (*GRID, "--algorithms", "fqe")),
        ("no.npz'. Check the spelling", ("compare", "--clients", "no.npz", "--dry-run")),
        ("No clients were given", ("compare", "--clients", "--dry-run")),
        ("seed is 99", ("data", "make", "maze2d-umaze/random", "--size=10", f"--seed={HUGE}")),
        ("seed is -1", ("data", "inspect", "maze2d-umaze/random", "--seed=-1")),
        ("--json needs to know what the columns mean", ("data", "inspect", "north.csv", "--json")),
        (
            "--missing needs to know what the columns mean",
            ("data", "inspect", "north.csv", "--missing", "hr=carry"),
        ),
        ("huber is 1e-40, but must be 0 or at least 1e-30.", ("judge", "run", "--huber=1e-40")),
        ("A run is named twice.", ("judge", "run", "./run")),
        ("There is no policy at ward.npz.", ("export", "ward.npz")),
    ],
)
def test_an_argument_out_of_range(refused, words, arguments):
    refused(words, *arguments)


def test_codes_of_choices_are_not_validated_as_quantities(refused, tmp_path):
    frame = hospital(0)
    frame.assign(dose=frame.dose.gt(1).map({True: "high", False: "low"})).to_csv(tmp_path / "d.csv", index=False)
    words = "dose is read as a choice, but actions are said to be continuous."
    refused(words, "data", "validate", "d.csv", "--columns", *TABLE, "--actions", "continuous")


@pytest.mark.parametrize("file", ["config.toml", "policy.safetensors", "metrics.jsonl"])
def test_a_page_never_replaces_a_file_of_the_run(refused, tmp_path, file):
    run = make_run(tmp_path / "run")
    before = (run / file).read_bytes()
    refused("the name of a page must end in .html or .htm.", "report", "run", "--no-pictures", "-o", f"run/{file}")
    assert (run / file).read_bytes() == before
    refused("report.html is a folder, not a file.", "report", "run", "--no-pictures", "-o", _folder(tmp_path))


def _folder(tmp_path):
    (tmp_path / "report.html").mkdir()
    return tmp_path / "report.html"


def test_a_run_that_is_named_twice_counts_once(fova_command, tmp_path):
    run = make_run(tmp_path / "run")
    (tmp_path / "again").symlink_to(run)
    pages = []
    for runs in (("run",), ("run", tmp_path / "run", "again")):
        assert fova_command("report", *runs, "--no-pictures", "-o", "page.html")[0] == 0
        pages.append((tmp_path / "page.html").read_text().count("seed 1"))
    assert pages[0] == pages[1]


def test_an_empty_task_is_not_the_task_of_the_run(refused, tmp_path):
    make_run(tmp_path / "run")
    refused("task is empty.", "evaluate", "run", "--task=")


# --- Judging on new data ---

FIT = ("--rounds=1", "--steps=1", "--critics=1", "--plain")


def test_a_policy_is_not_judged_on_what_trained_it(refused, fova_command, tmp_path):
    save_npz(tmp_path / "new.npz", make_transitions(1))
    settings = ("--rounds=1", "--local-steps=1", "--hidden=8", "--batch-size=8", "--quiet")
    assert fova_command("train", "--clients", "ward.npz", "--name", "run", *settings)[0] == 0
    (tmp_path / "link.npz").symlink_to("ward.npz")
    refused("The policy was trained on link.npz.", "judge", "runs/run", "--data", "link.npz", *FIT)
    assert fova_command("judge", "runs/run", "--data", "new.npz", *FIT)[0] == 0


# --- Files ---


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rounds": float("nan")}, "holds NaN, which is no number"),
        ({"rounds": -1}, "rounds is -1"),
        ({"rounds": []}, "rounds of its .json is []"),
        ({"task": 2.5}, "task of its .json is 2.5, but must be a text"),
        ({"seed": "x"}, "seed of its .json is 'x', but must be a whole number"),
        ({"seed": -3}, "seed is -3"),
        ({"client": {}}, "client of its .json is {}"),
        ({"judged": "x"}, "judged of its .json is 'x', but must be a table"),
        (
            {"space": {"observation": 4, "action": {"kind": "box", "low": [-(10**400), -1], "high": [1, 1]}}},
            "must be numbers",
        ),
    ],
)
def test_what_a_policy_says_about_itself_is_checked(tmp_path, changed, words):
    run = make_run(tmp_path / "run")
    about = json.loads((run / "policy.json").read_text()) | changed
    (run / "policy.json").write_text(json.dumps(about))
    with pytest.raises(FovaError) as error:
        load_policy(run)
    assert words in str(error.value)
    assert len(str(error.value)) < 500


def test_a_policy_may_carry_other_facts(tmp_path):
    run = make_run(tmp_path / "run")
    about = json.loads((run / "policy.json").read_text()) | {"ward": [1, 2]}
    (run / "policy.json").write_text(json.dumps(about))
    assert load_policy(run).facts["ward"] == [1, 2]


@pytest.mark.parametrize("content", ["[]", "null", "[" * 100_000, '{"format": 1, "runs": [null]}', ""])
def test_a_result_file_that_is_none(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(FovaError, match="is not a result file of fova"):
        Results.load(tmp_path / "results.json")


def test_a_pipe_is_no_result_file(tmp_path):
    os.mkfifo(tmp_path / "results.json")
    with pytest.raises(FovaError, match="is not a result file of fova"):
        Results.load(tmp_path / "results.json")


@pytest.mark.parametrize(
    "wrong", [{"name": [1]}, {"name": None}, {"seed": "x"}, {"clients": None}, {"task": 3}, {"settings": "x"}]
)
def test_a_run_of_a_result_file_is_checked(tmp_path, wrong):
    content = json.loads(COMMITTED.read_text())
    content["runs"] = [content["runs"][0] | wrong]
    (tmp_path / "results.json").write_text(json.dumps(content))
    with pytest.raises(FovaError, match="of a run is"):
        Results.load(tmp_path / "results.json")
