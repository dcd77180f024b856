"""Result files, from a run that training made."""

import json
import shutil

import numpy as np
import pytest

from fova.errors import FovaError
from fova.evaluation.metrics import Played
from fova.experiments.results import Results, collect, summarise_run
from fova.experiments.specifications import Case, Entry, Scale, Variant, line_of
from fova.progress import Quiet
from fova.run.records import read_record
from fova.run.training import start
from made_results import made_results, made_run
from made_runs import CLIENTS, RUN, TASK, described, entries

SCALE = Scale("tiny", 1, RUN | {"evaluate_clients": True}, {"hidden": (8,), "batch_size": 8})
PRINTED = Variant("printed", "fova", "equations", {"lam": 2.0})
ENTRY = Entry("made-up", "Made up", (Case("maze", TASK, CLIENTS),), (line_of("fova"),), {"tiny": SCALE})
(PLANNED,) = ENTRY.runs(SCALE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    start(PLANNED.config, folder / PLANNED.name, Quiet())
    return folder


@pytest.fixture
def directory(trained, tmp_path):
    """A folder with the run of the entry."""
    return shutil.copytree(trained, tmp_path / "runs")


def played(figures):
    return Played(figures["return"], figures["return_std"], figures["score"])


def test_the_result_of_a_run(directory):
    (run,) = collect(ENTRY, SCALE, directory).runs
    path = directory / PLANNED.name
    lines, final = entries(path), json.loads((path / "result.json").read_text())
    timing = [json.loads(line) for line in (path / "timing.jsonl").read_text().splitlines()]
    assert (run.algorithm, run.preset, run.settings) == ("fova", "recommended", {"hidden": (8,), "batch_size": 8})
    assert run.run == {"mode": "federated", **RUN, "evaluate_clients": True}
    assert run.clients["random-1"] == {"data": "random", **described(path)["random-1"]}
    returns = [client["behaviour_return"] for client in described(path).values()]
    assert run.behaviour_return() == pytest.approx(np.mean(returns))
    looks = [line for line in lines if "server" in line]
    along = [(line["round"], 2 * line["round"], played(line["server"])) for line in looks]
    # the final evaluation is the last one
    assert [(e.round, e.steps, e.server) for e in run.evaluations] == [*along, (4, 8, played(final["server"]))]
    assert run.evaluations[1].clients == {name: played(c) for name, c in looks[1]["client_play"].items()}
    assert run.final.server == played(final["server"])
    assert run.best_of_training.server.mean_return == max(e.server.mean_return for e in run.evaluations)
    for end in (2, 4):  # means of rounds 1 and 2, and of rounds 3 and 4
        logged = [line["clients"]["expert-1"] for line in lines[end - 1 : end + 1]]
        shares = [np.mean([c[f"vote_{voter}"] for c in logged]) for voter in ("local", "behaviour", "global")]
        assert run.votes[str(end)]["expert-1"] == pytest.approx(shares)
        assert run.distances[str(end)]["expert-1"] == pytest.approx(np.mean([c["policy_distance"] for c in logged]))
    assert run.bytes_each_way == lines[-1]["bytes_per_client"]["down"] > 0
    assert run.gradient_steps == 4 * 2 * 2
    assert run.seconds_training == pytest.approx(sum(line["seconds"] for line in timing))
    assert run.seconds_evaluating == pytest.approx(sum(line["evaluation"] for line in timing))
    assert run.seconds_median_round == pytest.approx(np.median([line["seconds"] for line in timing]))
    assert run.peak_memory_mb == max(line["peak_memory_mb"] for line in timing)


def test_the_nearest_preset_and_what_differs_from_it(directory):
    (planned,) = Entry("e", "E", ENTRY.cases, (PRINTED,), {}).runs(SCALE)
    run = summarise_run(planned, read_record(directory / PLANNED.name))
    assert (run.preset, run.settings) == ("equations", {"lam": 2.0, "hidden": (8,), "batch_size": 8})


def test_what_is_saved_reads_back_and_is_one_line_a_run(directory, tmp_path):
    results = collect(ENTRY, SCALE, directory)
    results.save(tmp_path / "results.json")
    read = Results.load(tmp_path / "results.json")
    assert read.runs[0].final.server == pytest.approx(results.runs[0].final.server, rel=1e-5)  # six digits
    assert read.scale == SCALE.words()
    read.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "results.json").read_bytes()
    assert sum('"case"' in text for text in (tmp_path / "results.json").read_text().splitlines()) == 1


def test_the_returns_from_every_stage_are_kept_and_older_files_have_none(tmp_path):
    made_results([made_run("a", "x", 0, 1.0, stages=[[1.0, 2.0], [3.0, 4.5]])]).save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json").runs[0].stages == [[1.0, 2.0], [3.0, 4.5]]
    older = (tmp_path / "results.json").read_text().replace(', "stages": [[1.0, 2.0], [3.0, 4.5]]', "")
    assert "stages" not in older
    (tmp_path / "older.json").write_text(older)
    assert Results.load(tmp_path / "older.json").runs[0].stages == []


def test_figures_keep_six_digits(tmp_path):
    made_results([made_run("a", "x", 0, 1234.56789)]).save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json").runs[0].final.server.mean_return == 1234.57


def test_unfinished_runs_are_left_out_and_other_files_refused(directory, tmp_path):
    (directory / PLANNED.name / "result.json").unlink()
    with pytest.raises(FovaError, match="no finished run"):
        collect(ENTRY, SCALE, directory)
    for content in ({"format": 99}, {"some": "thing"}):
        (tmp_path / "other.json").write_text(json.dumps(content))
        with pytest.raises(FovaError, match=r"other\.json"):
            Results.load(tmp_path / "other.json")
