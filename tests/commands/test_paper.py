import json

import pytest

from fova.errors import FovaError
from fova.paper import catalogue
from fova.progress import spoken_seconds


def test_the_list_shows_every_entry_and_says_that_times_are_estimates(fova_command, tmp_path, monkeypatch):
    monkeypatch.setenv("FOVA_CACHE", str(tmp_path / "cache"))
    for arguments in (("paper",), ("paper", "--list")):
        code, out, err = fova_command(*arguments)
        assert (code, err) == (0, "")
        assert all(entry.name in out for entry in catalogue.entries())
        assert "Times are estimates" in out
        assert "2 cores" in out
    assert not (tmp_path / "cache").exists(), "nothing is measured"
    code, _, err = fova_command("paper", "ablation", "--list")
    assert code == 2
    assert "leave out 'ablation' or --list" in err


def row(out, name):
    return next(line for line in out.splitlines() if line.startswith(f"{name} "))


def test_the_list_shows_committed_results_only_in_a_repository(fova_command, monkeypatch):
    monkeypatch.setattr(catalogue, "committed_results", lambda: {"ablation": "1-5 seeds"})
    _, out, _ = fova_command("paper")
    assert row(out, "ablation").rstrip().endswith("1-5 seeds")
    assert row(out, "size").rstrip().endswith(" h")
    monkeypatch.setattr(catalogue, "committed_results", lambda: None)
    assert "results" not in fova_command("paper")[1].lower()


def test_the_list_can_be_read_in_80_columns(fova_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = fova_command("paper")[1].splitlines()
    assert max(map(len, lines)) <= 80
    for entry in catalogue.listing():
        first = next(i for i, line in enumerate(lines) if line.startswith(f"{entry.name} "))
        title = " ".join(" ".join(lines[first + 1 : first + 3]).split())  # it follows in two lines at most
        assert title.startswith(entry.title)


def test_committed_results_are_those_of_the_repository(monkeypatch, tmp_path):
    found = catalogue.committed_results()
    assert found is not None
    assert found["mixed-quality"] == "3 seeds"
    assert "bench" not in found
    (tmp_path / "results").mkdir()
    (tmp_path / "pyproject.toml").touch()
    for name, runs in {
        "size": [("a", "fova"), ("a", "fova"), ("a", "fedora")],
        "beta": [("a", "fova"), ("b", "fova")],
        "lambda": [],
        "door": [("a", "fova")],  # no entry
    }.items():
        content = {"runs": [{"case": case, "variant": variant} for case, variant in runs]}
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(content))
    monkeypatch.setattr(catalogue, "__file__", str(tmp_path / "src/fova/paper/catalogue.py"))
    assert catalogue.committed_results() == {"size": "1-2 seeds", "beta": "1 seed", "lambda": "0 seeds"}
    (tmp_path / "results" / "beta.json").write_text("[]")
    with pytest.raises(FovaError, match=r"beta\.json is not a result file"):
        catalogue.committed_results()
    monkeypatch.setattr(catalogue, "__file__", str(tmp_path / "lib/site-packages/fova/paper/catalogue.py"))
    assert catalogue.committed_results() is None


def test_the_table_shows_runs_and_time(monkeypatch, fova_command):
    monkeypatch.setenv("NPROC", "4")
    cost = {entry.name: entry for entry in catalogue.listing()}["lambda"].costs["small"]
    assert cost.runs == 18
    assert f"18, {spoken_seconds(cost.core_seconds / 4)}" in row(fova_command("paper")[1], "lambda")


def test_the_committed_list_is_that_of_the_entries():
    assert catalogue.listing() == catalogue.made_listing(), "write it anew: python -m fova.paper.catalogue"
    assert len(json.loads(catalogue.LISTING.read_text())) == len(catalogue.entries())
