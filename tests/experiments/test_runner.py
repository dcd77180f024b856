"""Real worker processes, tiny runs."""

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fova.errors import FovaError
from fova.experiments.display import Ledger, LiveDisplay, PlainDisplay, RunSize, show_sign
from fova.experiments.execution import Execution, run_entry
from fova.experiments.parts import Part, Shard
from fova.experiments.results import Results
from fova.experiments.runner import Outcome, run_all, run_states
from fova.experiments.specifications import Case, Entry, Scale, Variant, line_of
from fova.federation.client_specs import ClientSpec
from fova.machine.claims import Claims, Sign, machine_name
from fova.paper.tables import tables
from fova.progress import Failed, Finished, Note, Round, Started, Status
from fova.run.directory import RunDirectory
from patience import PATIENCE

RUN = {"rounds": 60, "local_steps": 2, "evaluate_every": 0, "final_episodes": 1, "checkpoint_seconds": 0.0}
SCALE = Scale("tiny", 2, RUN, {"hidden": (8,), "batch_size": 8})
ENTRY = Entry(
    "two-runs",
    "Two runs",
    (Case("umaze", "maze2d-umaze", ("expert", "random"), 200),),
    (line_of("fed-bc"),),
    {"tiny": SCALE},
)
FIRST, SECOND = ENTRY.runs(SCALE)


# Asks for something that turns out to be impossible only when training starts.
BROKEN = Variant("broken", "fed-bc", run={"aggregation": "median", "cohort": 1})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The two runs, and beside them two that fail: directory, results, what was said at the end."""
    directory = tmp_path_factory.mktemp("undisturbed")
    entry = replace(ENTRY, variants=(BROKEN, *ENTRY.variants))
    with pytest.raises(FovaError) as error:
        run_entry(entry, SCALE, directory, Execution(jobs=2, plain=True), Console(quiet=True))
    return directory, Results.load(directory / "results.json"), str(error.value)


def start_runner(directory):
    program = f"""
from pathlib import Path
from rich.console import Console
from fova.experiments.execution import Execution, run_entry
from test_runner import ENTRY, SCALE
run_entry(ENTRY, SCALE, Path({str(directory)!r}), Execution(jobs=1, plain=True), Console())
"""
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)


def wait_until(condition):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.02)


def rounds_logged(directory, name):
    path = directory / name / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.slow
def test_killed_at_a_random_moment_it_loses_nothing_and_ends_with_the_same_tables(undisturbed, tmp_path):
    moment = random.randint(1, RUN["rounds"] - 1)
    print(f"killed when the second run had logged {moment} rounds")
    runner = start_runner(tmp_path)
    wait_until(lambda: rounds_logged(tmp_path, SECOND.name) >= moment)
    runner.send_signal(signal.SIGKILL)
    runner.wait(PATIENCE)
    was_finished = (tmp_path / SECOND.name / "result.json").exists()  # on a busy machine we may come too late
    finished_at = (tmp_path / FIRST.name / "result.json").stat().st_mtime_ns
    again = start_runner(tmp_path)
    printed, _ = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0
    assert (tmp_path / FIRST.name / "result.json").stat().st_mtime_ns == finished_at  # not trained a second time
    assert was_finished or f"{SECOND.name}: going on where it stopped" in printed
    assert tables(Results.load(tmp_path / "results.json")) == tables(undisturbed[1])
    for run in (FIRST, SECOND):
        files = [d / run.name / "policy.safetensors" for d in (tmp_path, undisturbed[0])]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_what_is_finished_is_kept(undisturbed):
    directory, results, _ = undisturbed
    runs = [(run.name, run.config) for run in (FIRST, SECOND)]
    assert set(run_states(directory, runs).values()) == {"finished"}
    outcome = run_all(runs, directory, 1, PlainDisplay(Console(quiet=True)))
    assert outcome.finished == [FIRST.name, SECOND.name]
    assert all(run.peak_memory_mb > 50 and run.seconds_training > 0 for run in results.runs)


def test_runs_that_fail_are_told_of_and_the_others_go_on(undisturbed):
    directory, results, said = undisturbed
    assert "2 runs failed, 2 are finished" in said
    assert "broken-seed-0: This aggregation compares all 2 clients" in said
    assert [run.name for run in results.runs] == [FIRST.name, SECOND.name]
    assert {log.name for log in (directory / "logs").iterdir()} == {"broken-seed-0.log", "broken-seed-1.log"}


@pytest.mark.parametrize(
    ("task", "sources", "message"),
    [
        (
            "maze2d-umaze",
            ("expert", "random"),
            r"maze2d-umaze cannot start there\..*: ant, halfcheetah, hopper, walker2d",
        ),
        (None, ("a.npz", "b.npz"), "data files without a task cannot start there"),
        ("hopper", ("expert",), r"has 1 sources in its data_sequence"),
    ],
)
def test_per_and_bwt_need_episodes_that_start_from_the_data_of_two_stages(tmp_path, task, sources, message):
    case = Case("case", task, (ClientSpec("a.npz"),), run={"data_sequence": sources, "evaluate_every": 1})
    entry = Entry("made-up", "Made up", (case,), (line_of("fed-bc"),), {"tiny": SCALE}, "PER and BWT")
    with pytest.raises(FovaError, match=message):
        run_entry(entry, SCALE, tmp_path / "runs", Execution(dry_run=True), Console(quiet=True))
    assert not (tmp_path / "runs").exists()


def test_the_number_of_jobs_is_checked(tmp_path):
    with pytest.raises(FovaError, match="jobs is 0"):
        run_all([], tmp_path, 0, PlainDisplay(Console(quiet=True)))


def test_two_processes_on_one_directory_share_the_runs_and_end_with_the_same_tables(undisturbed, tmp_path):
    other = start_runner(tmp_path)
    wait_until(lambda: list((tmp_path / "claims").glob("*.claim")))
    console = Console(file=io.StringIO(), width=200)
    results = run_entry(ENTRY, SCALE, tmp_path, Execution(jobs=1, plain=True), console)
    printed, _ = other.communicate(timeout=PATIENCE)
    assert other.returncode == 0
    theirs = [run.name for run in (FIRST, SECOND) if f"{run.name}: started" in printed]
    ours = [run.name for run in (FIRST, SECOND) if f"{run.name}: started" in console.file.getvalue()]
    assert sorted([*theirs, *ours]) == [FIRST.name, SECOND.name], "each run is trained once"
    assert theirs
    if len(results.runs) < 2:  # we ended first; on a busy machine either may
        assert f"under way on {machine_name()}: {theirs[0]}" in console.file.getvalue()
    collected = Results.load(tmp_path / "results.json")  # by whoever ended last
    assert tables(collected) == tables(undisturbed[1])
    assert list((tmp_path / "claims").iterdir()) == []


def test_a_run_of_a_dead_machine_is_taken_over(undisturbed, tmp_path, monkeypatch):
    """Another machine died with the run's lock; it left a claim and a checkpoint."""
    monkeypatch.setattr("fova.machine.claims.LEASE", 0.0)
    shutil.copytree(undisturbed[0] / FIRST.name, tmp_path / FIRST.name)
    (tmp_path / FIRST.name / "result.json").unlink()
    (tmp_path / "claims").mkdir()
    sign = {"machine": "node7", "kernel": "gone", "process": 1, "beats": 3, "round": 60}
    (tmp_path / f"claims/{FIRST.name}.4.claim").write_text(json.dumps(sign))
    with RunDirectory(tmp_path / FIRST.name).lock():  # as a network file system keeps it
        outcome = run_all([(FIRST.name, FIRST.config)], tmp_path, 1, PlainDisplay(Console(quiet=True)))
    assert outcome == Outcome([FIRST.name])
    assert (tmp_path / FIRST.name / "result.json").exists()


def test_a_run_that_lives_elsewhere_is_left_to_it(tmp_path):
    claims = Claims(tmp_path / "claims")
    claim = claims.take(FIRST.name)
    claim.beat(31)
    console = Console(file=io.StringIO(), width=200)
    outcome = run_all([(FIRST.name, FIRST.config)], tmp_path, 1, PlainDisplay(console))
    assert outcome == Outcome(elsewhere={FIRST.name: machine_name()})
    claim.release()


def test_a_part_of_a_grid_is_collected_with_the_rest(undisturbed, tmp_path):
    directory = tmp_path / "runs"
    shutil.copytree(undisturbed[0], directory)
    printed = io.StringIO()
    part = Execution(part=Part(seeds=(1, 4)), shard=Shard(1, 1), dry_run=True)
    run_entry(ENTRY, SCALE, directory, part, Console(file=printed, width=200))
    assert "share 1 of 1: 2 of 2 runs" in printed.getvalue()
    assert "2 runs: 1 finished, 1 to do" in printed.getvalue()
    results = run_entry(ENTRY, SCALE, directory, Execution(part=Part(seeds=(1,))), Console(quiet=True))
    assert [run.seed for run in results.runs] == [0, 1]
    shutil.rmtree(directory / FIRST.name)
    results = run_entry(ENTRY, SCALE, directory, Execution(part=Part(seeds=(1,))), Console(file=printed, width=200))
    assert [run.seed for run in results.runs] == [1]
    assert results.scale.endswith("1 seed")
    assert len(Results.load(directory / "results.former.json").runs) == 2, "no figure is lost"
    keep = Execution(part=Part(seeds=(0, 1)), keep=(directory / "results.former.json",))
    results = run_entry(ENTRY, SCALE, directory, keep, Console(file=printed, width=200))
    assert tables(results) == tables(undisturbed[1])
    assert "1 of 2 earlier runs are kept" in printed.getvalue()


def test_time_left_counts_only_what_was_done_now(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("fova.experiments.display.time.monotonic", lambda: now[0])
    sizes = {"a": RunSize(100, 10), "b": RunSize(100, 10), "c": RunSize(900, 10)}
    ledger = Ledger(sizes, {"a": "to resume", "b": "to do", "c": "finished"})
    assert ledger.left() == "time left unknown"
    ledger.round("a", 5)  # where it stopped in an earlier call
    now[0] = 10.0
    ledger.round("a", 6)  # 10 of the steps in 10 seconds; 140 are left
    assert ledger.left() == "about 2 min left"
    assert ledger.count() == "0/2"


def shown(make, **options):
    """The output of a display for a run that is resumed, one that fails and one that was finished before."""
    console = Console(file=io.StringIO(), width=100, **options)
    display = make(console)
    sizes = {"a": RunSize(100, 10), "b": RunSize(100, 10), "c": RunSize(900, 10)}
    display.begin(sizes, {"a": "to resume", "b": "to do", "c": "finished"})
    display("a", Status("starting"))
    display("b", Status("starting"))
    display("a", Started(5, 10))
    display("a", Note("[north] has 3 rows"))
    display("a", Round({"round": 6, "clients": {}}))
    display("b", Failed("no space\nleft on the disk"))
    display("a", Finished({"return": 12.34, "score": 56.0}))
    display.end()
    return console.file.getvalue()


def test_plain_lines_for_many_runs():
    lines = shown(PlainDisplay).splitlines()
    assert lines[:5] == [
        "1 of 3 runs are finished already",
        "a: going on where it stopped",
        "b: started",
        "a: [north] has 3 rows",
        "[1/2] b: failed: no space",
    ]
    assert lines[5].startswith("[2/2] a: finished  return 12.3 (score 56.0)  about ")


def test_live_bars_for_many_runs():
    text = shown(LiveDisplay, force_terminal=True)
    assert "all runs" in text
    assert "[1/2] b: failed: no space" in text
    assert "[2/2] a: finished  return 12.3 (score 56.0)" in text
    assert "a: going on" not in text  # its bar says so


def test_the_displays_say_which_machine_trains_what():
    sizes = {name: RunSize(100, 10) for name in "abc"}
    for make, options in ((PlainDisplay, {}), (LiveDisplay, {"force_terminal": True})):
        console = Console(file=io.StringIO(), width=100, **options)
        display = make(console)
        display.begin(sizes, {"a": "to resume", "b": "to do", "c": "to do"})
        show_sign(display, "a", Sign("node7", "", 1, round=4))
        show_sign(display, "a", Sign("node8", "", 1, doing="compiling"))  # it has moved
        display("b", Status("starting"))  # here
        display("c", Finished())  # elsewhere, before we saw it
        display.end()
        text = console.file.getvalue()
        if make is PlainDisplay:
            assert text.splitlines()[:3] == [
                "a: under way on node7",
                "a: going on where it stopped, on node8",
                "b: started",
            ]
        else:
            assert any("node8" in line and "compiling" in line for line in text.splitlines())
        assert "[1/3] c: finished" in text
