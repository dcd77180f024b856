import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from fova.errors import FovaError
from fova.evaluation.metrics import Played
from fova.experiments.results import Results, collect
from fova.experiments.specifications import Case, Entry, Scale, Variant
from fova.run.directory import RunDirectory
from made_results import made_results, made_run

SCALE = Scale("tiny", 1, {"rounds": 4, "local_steps": 10, "evaluate_every": 2}, {"hidden": (8,)})
LINE = Variant("printed", "fova", "equations", {"lam": 2.0})
ENTRY = Entry("made-up", "Made up", (Case("hopper", "hopper", ("expert", "random"), 50),), (LINE,), {"tiny": SCALE})


def figures(mean_return):
    return {"return": mean_return, "return_std": 1.0, "length": 10.0, "score": mean_return / 10}


def line(number, local, **more):
    client = {"vote_local": local, "vote_behaviour": 1 - local, "vote_global": 0.0, "policy_distance": local / 2}
    return {"round": number, "clients": {"expert-1": client}, **more}


@pytest.fixture
def directory(tmp_path):
    """A run directory as training leaves it, written by hand."""
    (planned,) = ENTRY.runs(SCALE)
    run = RunDirectory(tmp_path / planned.name)
    run.create(planned.config)
    facts = {"rows": 50, "episodes": 1, "behaviour_return": 7.0}
    run.write_json("clients.json", {"expert-1": facts, "random-1": facts | {"behaviour_return": 1.0}})
    for entry in (
        {"round": 0, "server": figures(1.0)},
        line(1, 0.5),
        line(2, 0.7, server=figures(90.0), client_play={"expert-1": figures(3.0)}),
        line(3, 0.1),
        line(4, 0.3, server=figures(40.0)),
    ):
        run.append("metrics.jsonl", entry)
    for number, seconds, memory in ((1, 5.0, 100.0), (2, 1.0, 300.0), (3, 1.0, 300.0), (4, 1.0, 250.0)):
        timing = {"round": number, "seconds": seconds, "evaluation": 0.5, "peak_memory_mb": memory}
        run.append("timing.jsonl", timing)
    run.checkpoints.mkdir()
    tensors = {"['broadcast'].actor": np.zeros((3, 5), np.float32), "['learners'].actor": np.zeros(9, np.float32)}
    save_file(tensors, run.checkpoints / "round-000004.safetensors")
    run.write_json("result.json", {"server": figures(50.0), "expert-1": figures(60.0), "random-1": figures(20.0)})
    return tmp_path


def test_a_run_directory_is_distilled(directory):
    (run,) = collect(ENTRY, SCALE, directory).runs
    assert (run.algorithm, run.preset, run.settings) == ("fova", "equations", {"lam": 2.0, "hidden": (8,)})
    assert run.run == {"mode": "federated", "rounds": 4, "local_steps": 10, "evaluate_every": 2}
    assert run.clients["random-1"] == {"data": "random", "rows": 50, "episodes": 1, "behaviour_return": 1.0}
    assert run.behaviour_return() == 4.0
    assert [(e.round, e.steps, e.server.mean_return) for e in run.evaluations] == [
        (0, 0, 1),
        (2, 20, 90),
        (4, 40, 40),
    ]
    assert run.evaluations[1].clients == {"expert-1": Played(3.0, 1.0, 0.3)}
    assert run.final.server == Played(50.0, 1.0, 5.0)
    assert run.best_of_training.round == 2  # named as such: the run ended at 50, not at 90
    assert run.votes["2"]["expert-1"] == pytest.approx((0.6, 0.4, 0.0))  # the mean of rounds 1 and 2
    assert run.distances == {"2": {"expert-1": pytest.approx(0.3)}, "4": {"expert-1": pytest.approx(0.1)}}
    assert run.bytes_each_way == 3 * 5 * 4
    assert (run.gradient_steps, run.seconds_training, run.seconds_evaluating) == (4 * 10 * 2, 8.0, 2.0)
    assert run.peak_memory_mb == 300.0
    assert run.seconds_median_round == 1.0  # the first also compiled


def test_what_is_saved_reads_back_and_is_one_line_a_run(directory, tmp_path):
    results = collect(ENTRY, SCALE, directory)
    results.save(tmp_path / "results.json")
    read = Results.load(tmp_path / "results.json")
    assert read.runs[0].final == results.runs[0].final
    assert read.scale == SCALE.words()
    read.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "results.json").read_bytes()
    assert sum('"case"' in text for text in (tmp_path / "results.json").read_text().splitlines()) == 1


def test_figures_keep_six_digits(tmp_path):
    made_results([made_run("a", "x", 0, 1234.56789)]).save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json").runs[0].final.server.mean_return == 1234.57


def test_unfinished_runs_are_left_out_and_other_files_refused(directory, tmp_path):
    (run,) = ENTRY.runs(SCALE)
    (directory / run.name / "result.json").unlink()
    with pytest.raises(FovaError, match="no finished run"):
        collect(ENTRY, SCALE, directory)
    for content in ({"format": 99}, {"some": "thing"}):
        (tmp_path / "other.json").write_text(json.dumps(content))
        with pytest.raises(FovaError, match=r"other\.json"):
            Results.load(tmp_path / "other.json")
