import json

import pytest

from fova.algorithms import by_name

FLAGS = ("compare", "--task", "maze2d-umaze", "--clients", "expert", "random", "--size", 200, "--rounds", 2,
         "--local-steps", 2, "--hidden", 8, "--batch-size", 8, "--final-episodes", 1, "--plain")  # fmt: skip


def test_a_comparison_is_one_table_and_resumes(fova_command, tmp_path):
    flags = (*FLAGS, "--algorithms", "fed-bc", "fed-td3bc", "--modes", "federated", "local", "--seeds", 2)
    code, out, err = fova_command(*flags, "--name", "small")
    assert (code, err) == (0, "")
    assert "fed-td3bc (local)" in out
    table = json.loads((tmp_path / "runs/small/comparison.json").read_text())
    assert {(line["algorithm"], line["mode"]) for line in table["lines"]} == {
        ("fed-bc", "federated"), ("fed-bc", "local"), ("fed-td3bc", "federated"), ("fed-td3bc", "local"),
    }  # fmt: skip
    assert all(line["gradient_steps"] == 8 and len(line["returns"]) == 2 for line in table["lines"])
    one = tmp_path / "runs/small/fed-bc-federated-seed-1"
    (one / "result.json").unlink()  # as if it had been interrupted
    code, out, _ = fova_command(*flags, "--name", "small")
    assert code == 0
    assert "fed-bc-federated-seed-1: going on" in out
    assert "fed-td3bc-federated-seed-0" not in out
    assert json.loads((tmp_path / "runs/small/comparison.json").read_text()) == table
    code, _, err = fova_command(*flags, "--name", "small", "--actor-lr", 0.1)
    assert code == 2
    assert "another configuration" in err


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(by_name()))
@pytest.mark.parametrize("mode", ["federated", "local", "centralised"])
def test_every_algorithm_runs_in_every_mode(fova_command, algorithm, mode):
    code, _, err = fova_command(*FLAGS, "--algorithms", algorithm, "--modes", mode, "--seeds", 1)
    assert (code, err) == (0, "")
