import json

import numpy as np
import pytest

from fova.paper import catalogue
from fova.paper import experiments as paper
from fova.paper.tables import paper_figures

NAMES = [entry.name for entry in paper.ENTRIES]


def test_every_experiment_of_the_paper_has_an_entry():
    assert NAMES == [
        "compare", "mixed-or-uniform", "server-or-clients", "server-or-clients-robots", "server-or-clients-by-size",
        "mixed-curves", "client-curves", "clients", "mixing-hurts", "continual", "lambda", "beta", "size",
        "ablation", "cost", "distance",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_can_be_planned_at_every_scale(name):
    entry = catalogue.get(name)
    quick, small, full = (entry.runs(scale) for scale in entry.scales.values())
    assert 0 < len(quick) <= 14
    assert len(small) * 5 == len(full) * 3  # the same cases and lines with 3 and 5 seeds
    assert all(max(client.size for client in run.config.clients) <= 300 for run in quick)
    assert full[0].config.run.rounds * full[0].config.run.local_steps == 100_000


def test_the_rows_of_the_comparison_are_the_papers():
    entry = catalogue.get("compare")
    assert {case.paper for case in entry.cases} == set(paper_figures()["compare"])
    assert {line.paper for line in entry.variants} == {"fova", "fedora", "drpo", "cql-fl", "fed-td3bc"}


def test_settings_that_the_paper_states():
    sizes = {case.at for case in catalogue.get("size").cases}
    assert (min(sizes), max(sizes)) == (1_000, 50_000)
    assert [case.at for case in catalogue.get("clients").cases] == [2, 4, 6, 8, 10]
    assert all(case.settings["beta"] == 1.0 for case in catalogue.get("lambda").cases)
    assert all(case.settings["lam"] == 1.0 for case in catalogue.get("beta").cases)
    mixed = catalogue.get("mixed-or-uniform").cases[0]
    assert ([c.data for c in mixed.clients], mixed.size) == (["medium", "medium", "expert", "expert"], 3_000)
    (run, *_) = catalogue.get("continual").runs(catalogue.get("continual").scale("full"))
    assert run.config.run.data_sequence == (
        "random", "random", "expert", "expert", "medium-replay", "medium-replay", "medium", "medium",
    )  # fmt: skip


def test_cost_is_measured_with_the_published_number_of_actions():
    entry = catalogue.get("cost")
    (run, *_) = (r for r in entry.runs(entry.scale("small")) if r.variant == "cql-fl")
    assert run.config.algorithm.samples == 10


def test_a_dry_run_prints_the_plan(fova_command, tmp_path):
    code, out, _ = fova_command("paper", "ablation", "--scale", "small", "--dry-run")
    assert code == 0
    assert "no-vote-seed-2" in out
    assert "12 runs: 12 to do" in out
    code, _, err = fova_command("paper", "ablatoin")
    assert code == 2
    assert "'ablation'" in err


@pytest.mark.slow
def test_per_and_bwt_of_a_run_are_made_from_its_returns_on_every_stage(fova_command, tmp_path):
    part = ("--scale", "quick", "--cases", "hopper", "--variants", "vote", "--plain")
    code, _, err = fova_command("paper", "continual", *part)
    assert (code, err) == (0, "")
    folder = tmp_path / "runs/paper/continual-quick"
    (run,) = json.loads((folder / "results.json").read_text())["runs"]
    a = np.array(run["stages"])
    assert a.shape == (8, 8)
    np.testing.assert_array_equal(a[:, ::2], a[:, 1::2])  # every source comes twice in a row
    assert len(set(a[0, ::2])) == 4
    per, bwt = a[7].mean(), np.mean([a[7, k] - a[k, k] for k in range(7)])
    assert f"| {per:.1f} (one run) / 1,550 | {bwt:.1f} (one run) / 251.1 |" in (
        (folder / "main.md").read_text().replace("−", "-")
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [entry.name for entry in catalogue.entries()])
def test_every_entry_runs_at_quick(fova_command, tmp_path, name):
    code, out, err = fova_command("paper", name, "--scale", "quick", "--plain")
    assert (code, err) == (0, "")
    assert "scale quick" in out.replace("\n", " ")
    for ending in ("md", "csv", "tex"):
        assert "scale quick" in (tmp_path / f"runs/paper/{name}-quick/main.{ending}").read_text()
