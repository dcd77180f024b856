"""`fova demo insulin` at its smallest: the outcomes, the picture and the report."""

import pytest

from fova.commands import insulin_demo
from fova.progress import Quiet


def test_every_clinics_patients_are_treated_by_all(tmp_path, monkeypatch):
    monkeypatch.setattr(insulin_demo, "SETTINGS", {"hidden": (8,), "batch_size": 8})
    monkeypatch.setattr(insulin_demo, "DAYS", 1)
    demo = insulin_demo.run(Quiet(), tmp_path, rounds=1, size=100)
    assert list(demo.outcomes) == ["north", "south", "east", "west"]
    for treated in demo.outcomes.values():
        assert list(treated) == ["its clinicians", "cloning", "FOVA"]
        for figures in treated.values():
            assert figures["time in range"] + figures["below 70"] + figures["above 180"] == pytest.approx(1.0)
    assert demo.outcomes["north"]["its clinicians"]["ended early"] == 0.0  # though its last day is cut short
    assert demo.picture.read_bytes().startswith(b"\x89PNG")
    page = demo.report.read_text(encoding="utf-8")
    assert "This is not medical advice" in page
    assert "fed-bc" in page
    rows = insulin_demo.outcomes_table(demo.outcomes).columns[1].cells
    assert list(rows) == ["its clinicians", "cloning", "FOVA"] * 4


def test_the_demo_that_is_asked_for_is_run(fova_command, monkeypatch):
    asked = []
    outcomes = {clinic.name: {"its clinicians": {"return": 0.0}} for clinic in insulin_demo.CLINICS}
    made = insulin_demo.Demo(outcomes, "a.png", "b.html")
    monkeypatch.setattr(insulin_demo, "run", lambda progress, root, rounds: asked.append(rounds) or made)
    code, out, _ = fova_command("demo", "insulin", "--rounds", "3")
    assert (code, asked) == (0, [3])
    assert "not medical advice" in out
    assert "a.png" in out
    code, _, err = fova_command("demo", "mazes")
    assert code == 2
    assert "mazes" in err
