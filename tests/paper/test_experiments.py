import json
from dataclasses import replace

import pytest

from fova.paper import catalogue, cost
from fova.paper import experiments as paper
from fova.paper.cost import Speed
from fova.paper.tables import paper_figures

NAMES = [entry.name for entry in paper.ENTRIES]


def test_every_experiment_of_the_paper_has_an_entry():
    assert NAMES == [
        "compare", "mixed-or-uniform", "server-or-clients", "server-or-clients-by-size", "mixed-curves",
        "client-curves", "clients", "mixing-hurts", "continual", "lambda", "beta", "size", "ablation", "cost",
        "distance",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_can_be_planned_at_every_scale(name):
    entry = catalogue.get(name)
    quick, small, full = (entry.runs(scale) for scale in entry.scales.values())
    assert 0 < len(quick) <= 12
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
    assert (mixed.clients, mixed.size) == (("medium", "medium", "expert", "expert"), 3_000)
    (run, *_) = catalogue.get("continual").runs(catalogue.get("continual").scale("full"))
    assert run.config.run.data_sequence == (
        "random", "random", "expert", "expert", "medium-replay", "medium-replay", "medium", "medium",
    )  # fmt: skip


def test_the_estimate_by_hand():
    run = catalogue.get("server-or-clients").runs(paper.SMALL)[0]
    training = 40 * 100 * 4 * 0.01  # rounds, local steps, clients
    # before training and every 10 of 40 rounds, 5 episodes of server and 4 clients; 20 of each at the end
    playing = (5 * 5 * 5 + 20 * 5) * 1000 * 0.001
    assert cost.seconds(run, Speed(0.01, 0.001)) == pytest.approx(cost.START_SECONDS + training + playing)


def test_sampled_actions_count_in_the_estimate():
    (run,) = (r for r in catalogue.get("distance").runs(replace(paper.SMALL, seeds=1)) if r.variant == "cql-fl")
    (other,) = (r for r in catalogue.get("distance").runs(replace(paper.SMALL, seeds=1)) if r.variant == "fova")
    steps = 40 * 100 * 4 * 0.01
    speed = Speed(0.01, 0.001)
    assert cost.seconds(run, speed) - cost.seconds(other, speed) == pytest.approx(
        0.5 * steps
    )  # 3 of each source: 3/2 steps of FOVA


def test_cost_is_measured_with_the_published_number_of_actions():
    entry = catalogue.get("cost")
    (run, *_) = (r for r in entry.runs(entry.scale("small")) if r.variant == "cql-fl")
    assert run.config.algorithm.samples == 10


def test_the_list_shows_every_entry_and_says_it_is_an_estimate(fova_command, tmp_path, monkeypatch):
    monkeypatch.setenv("FOVA_CACHE", str(tmp_path / "cache"))
    scales = [scale for entry in catalogue.ENTRIES for scale in entry.scales.values()]
    speeds = {cost._key(scale): {"gradient_step": 0.01, "environment_step": 1e-4} for scale in scales}
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/speed.json").write_text(json.dumps(speeds))
    code, out, err = fova_command("paper", "--list")
    assert (code, err) == (0, "")
    assert all(entry.name in out for entry in catalogue.ENTRIES)
    assert "an estimate" in out


def test_a_dry_run_prints_the_plan(fova_command, tmp_path):
    code, out, _ = fova_command("paper", "ablation", "--scale", "small", "--dry-run")
    assert code == 0
    assert "no-vote-seed-2" in out
    assert "12 runs: 12 to do" in out
    code, _, err = fova_command("paper", "ablatoin")
    assert code == 2
    assert "'ablation'" in err


@pytest.mark.slow
@pytest.mark.parametrize("name", [entry.name for entry in catalogue.ENTRIES])
def test_every_entry_runs_at_quick(fova_command, tmp_path, name):
    code, out, err = fova_command("paper", name, "--scale", "quick", "--plain")
    assert (code, err) == (0, "")
    assert "scale quick" in out.replace("\n", " ")
    for ending in ("md", "csv", "tex"):
        assert "scale quick" in (tmp_path / f"runs/paper/{name}-quick/main.{ending}").read_text()
