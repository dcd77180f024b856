"""Pictures of insulin dosing."""

import numpy as np
import pytest

from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.reports.glucose import Section, outcomes_figure
from fova.reports.groups import read_groups
from fova.reports.scenes import Scene, scene
from fova.spaces import Box, Space
from made_runs import make_run
from reports.test_scenes import save_policy

OUTCOMES = {
    "its clinicians": {"below 70": 0.25, "time in range": 0.74, "above 180": 0.01},
    "FOVA": {"below 70": 0.0, "time in range": 0.9, "above 180": 0.1},
}


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_bars_add_up_and_narrow_parts_have_no_number():
    (axes,) = outcomes_figure([Section("Clinic north", OUTCOMES)]).axes
    assert [round(bar.get_width(), 6) for bar in axes.patches] == [0.25, 0.74, 0.01, 0.0, 0.9, 0.1]
    assert [round(bar.get_x(), 6) for bar in axes.patches] == [0.0, 0.25, 0.99, 0.0, 0.0, 0.9]
    assert texts(axes) == ["25", "74", "90", "10"]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(OUTCOMES)
    assert axes.get_title(loc="left") == "Clinic north"


def test_a_day_shows_glucose_meals_and_the_range():
    meals = np.zeros(97)
    meals[48] = 70.0
    section = Section(
        "Clinic", OUTCOMES, {"cloning": np.full(97, 150.0), "FOVA": np.full(30, 90.0)}, meals, "A day"
    )
    _, axes = outcomes_figure([section], footer="No medical advice.").axes
    one, other = axes.lines
    assert one.get_xdata()[-1] == 24.0
    assert other.get_xdata()[-1] == 24.0 * 29 / 96  # a day that ended early ends early
    assert texts(axes) == ["70 g"]
    assert axes.texts[0].xy[0] == 12.0
    assert [label.get_text() for label in axes.get_legend().get_texts()] == ["cloning", "FOVA"]


def test_nothing_to_draw_is_refused():
    with pytest.raises(FovaError, match="at least one"):
        outcomes_figure([])


def test_a_report_shows_the_clinics_and_the_policy(tmp_path, monkeypatch):
    clients = (ClientSpec("cautious", 96, name="north"), ClientSpec("random", 96, name="south"))
    run = make_run(tmp_path / "run", task="glucose-child", clients=clients)
    save_policy(run, Space(7, Box.of(1, 0.0, 20.0)))
    monkeypatch.setattr("fova.reports.scenes.DAYS_PLAYED", 2)
    drawn = {}
    monkeypatch.setattr(
        "fova.reports.scenes.outcomes_figure",
        lambda sections: drawn.update(s=sections) or outcomes_figure(sections),
    )
    shown = scene(read_groups([run])[0])
    assert isinstance(shown, Scene)
    assert shown.png.startswith(b"\x89PNG")
    assert "not medical advice" in shown.caption
    data, server = drawn["s"]
    assert list(data.outcomes) == ["north", "south"]
    assert sum(
        data.outcomes["north"][name] for name in ("below 70", "time in range", "above 180")
    ) == pytest.approx(1)
    assert list(server.outcomes) == list(server.day) == ["fova"]
