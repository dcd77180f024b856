import json

import pytest

from fova.algorithms import by_name

FLAGS = ("compare", "--task", "maze2d-umaze", "--clients", "expert", "random", "--size", 200, "--rounds", 2,
         "--local-steps", 2, "--hidden", 8, "--batch-size", 8, "--final-episodes", 1, "--plain",
         "--jobs", 1)  # fmt: skip


def test_a_comparison_is_one_table_and_resumes(fova_command, tmp_path):
    flags = (*FLAGS, "--algorithms", "fed-bc", "--modes", "federated", "local", "--seeds", 1)
    code, out, err = fova_command(*flags, "--name", "small", "--dry-run")
    assert (code, err) == (0, "")
    assert "2 runs: 2 to do" in out
    assert not (tmp_path / "runs").exists()
    code, out, err = fova_command(*flags, "--name", "small")
    assert (code, err) == (0, "")
    assert "fed-bc (local)" in out
    runs = json.loads((tmp_path / "runs/small/results.json").read_text())["runs"]
    assert [(run["variant"], run["seed"]) for run in runs] == [("fed-bc", 0), ("fed-bc (local)", 0)]
    assert all(run["gradient_steps"] == 8 for run in runs)
    (tmp_path / "runs/small/fed-bc-seed-0/result.json").unlink()  # as if it had been interrupted
    code, out, _ = fova_command(*flags, "--name", "small")
    assert code == 0
    assert "fed-bc-seed-0: going on" in out
    assert "fed-bc-local-seed-0" not in out
    again = json.loads((tmp_path / "runs/small/results.json").read_text())["runs"]
    assert [run["final"] for run in again] == [run["final"] for run in runs]
    code, _, err = fova_command(*flags, "--name", "small", "--actor-lr", 0.1)
    assert code == 2
    assert "another configuration" in err


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(by_name()))
@pytest.mark.parametrize("mode", ["federated", "local", "centralised"])
def test_every_algorithm_runs_in_every_mode(fova_command, algorithm, mode):
    code, _, err = fova_command(*FLAGS, "--algorithms", algorithm, "--modes", mode, "--seeds", 1)
    assert (code, err) == (0, "")
