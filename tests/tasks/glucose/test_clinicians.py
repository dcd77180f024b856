"""Clinicians of five skills: what they dose, what data they leave, and how well they do."""

import itertools
import json

import numpy as np
import pytest

import fova
from fova.data.transitions import from_episodes
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.tasks import registry
from fova.tasks.glucose.clinicians import CLINICIANS, TOGETHER, Clinician, doses, episodes
from fova.tasks.glucose.model import patients
from fova.tasks.glucose.table import LARGEST_DOSE, SKILLS, STEPS, clinical_figures

ADULT = patients("adult").chosen([0])  # CR 10, CF 8.773, daily insulin 50.417
STEADY = 100.0 * 15 * ADULT.basal[0] / ADULT.daily_insulin[0] / (2**0.25 - 1)


def seen(cgm, meal=0.0, on_board=STEADY):
    return np.array([[cgm, 0.0, 0.0, on_board, meal, 0.0, 1.0]])


def units(skill, observation, uniform=0.9, normal=0.0):
    return CLINICIANS[skill].units(observation, ADULT, np.array([[uniform, normal]]))[0] - 15 * ADULT.basal[0]


def test_doses_by_hand():
    assert units("experienced", seen(120.0)) == pytest.approx(0.0)
    assert units("experienced", seen(120.0, meal=60.0)) == pytest.approx(6.0)
    assert units("experienced", seen(200.0)) == pytest.approx(50.0 / 8.77310657487)
    assert units("experienced", seen(200.0, 60.0), normal=1.0) == pytest.approx(
        (6.0 + 50.0 / 8.77310657487) * np.exp(0.1)
    )
    # Two units on board beyond basal count as given already.
    board = STEADY + 200.0 / ADULT.daily_insulin[0]
    assert units("experienced", seen(200.0, on_board=board)) == pytest.approx(50.0 / 8.77310657487 - 2.0)
    assert units("cautious", seen(200.0, meal=60.0)) == pytest.approx(60.0 / 16.0)
    assert units("forgetful", seen(120.0, meal=60.0), uniform=0.4) == pytest.approx(0.0)
    assert units("forgetful", seen(120.0, meal=60.0), uniform=0.6) == pytest.approx(6.0)
    heavy_basal = 0.2 * 15 * ADULT.basal[0]
    assert units("heavy-handed", seen(120.0, meal=65.0)) == pytest.approx(10.0 + heavy_basal)


def test_actions_are_hundredths_of_the_daily_insulin_within_their_bounds():
    given = doses(Clinician(), seen(120.0, meal=60.0), ADULT, np.array([[0.9, 0.0]]))
    assert given.dtype == np.float32
    assert given[0, 0] == pytest.approx(100.0 * (6.0 + 15 * ADULT.basal[0]) / ADULT.daily_insulin[0])
    assert doses(Clinician(), seen(550.0), ADULT, np.array([[0.9, 0.0]]))[0, 0] == LARGEST_DOSE


def test_a_random_clinician_gives_any_dose_in_a_fifth_of_the_time():
    draws = np.random.default_rng(0).random((20_000, 2))
    given = doses(None, np.repeat(seen(100.0), 20_000, axis=0), ADULT, draws)[:, 0]
    assert np.mean(given > 0.0) == pytest.approx(0.2, abs=0.01)
    assert np.quantile(given[given > 0.0], [0.25, 0.5, 0.75]) == pytest.approx([5.0, 10.0, 15.0], abs=0.6)


def test_clinicians_do_as_well_as_their_skill():
    """Returns and shares of readings of 30 days of adults; wide bounds around figures measured with many days."""
    expected = {  # return, time in range, below 70
        "experienced": (-21, 0.95, 0.005),
        "forgetful": (-35, 0.86, 0.015),
        "heavy-handed": (-39, 0.85, 0.14),
        "cautious": (-54, 0.74, 0.0),
        "random": (-196, 0.52, 0.37),
    }
    for skill, (earned, in_range, below) in expected.items():
        made = list(itertools.islice(episodes("test", skill, "adult", 0, 0), TOGETHER))
        figures = clinical_figures([day.observations for day in made])
        assert np.mean([day.rewards.sum() for day in made]) == pytest.approx(earned, rel=0.25)
        assert figures["time in range"] == pytest.approx(in_range, abs=0.06)
        assert figures["below 70"] == pytest.approx(below, abs=0.06)
        assert (figures["ended early"] > 0.3) == (skill == "random")


def test_same_seed_same_bytes_and_any_slice_can_be_made_alone():
    task = registry.get("glucose-child")
    whole = list(itertools.islice(task.generate("random", 0, 7), TOGETHER))
    again = list(itertools.islice(task.generate("random", 20, 7), 10))
    for ours, theirs in zip(whole[20:], again, strict=True):
        assert ours.observations.tobytes() == theirs.observations.tobytes()
        assert ours.actions.tobytes() == theirs.actions.tobytes()
        assert ours.rewards.tobytes() == theirs.rewards.tobytes()
        assert ours.terminated == theirs.terminated
    assert whole[0].actions.tobytes() != whole[10].actions.tobytes()  # another day of the same patient


def test_a_recorded_day_can_be_replayed():
    """The recorded doses, given to the same day again, lead to the recorded observations."""
    task = registry.get("glucose-adult")
    day = next(task.generate("experienced", 3, 0))
    assert day.observations.shape == (STEPS + 1, 7)
    data = from_episodes([day])
    assert data.terminals.sum() == 0
    meals = day.observations[:-1, 4]
    on_board = day.observations[:-1, 3]
    kept = 0.5**0.25
    np.testing.assert_allclose(
        day.observations[1:, 3], kept * (on_board + day.actions[:, 0]), rtol=1e-5
    )  # every dose arrived
    assert (day.actions[meals > 40, 0] > 4.0).all()


def test_clients_are_clinics_of_skill_and_age_group():
    task = registry.get("glucose")
    assert task.qualities[:5] == SKILLS
    assert "cautious-child" in task.qualities
    specs = [ClientSpec("experienced-adult", 96), ClientSpec("cautious-child", 96), ClientSpec("random", 96)]
    federation = Federation.build(specs, task)
    assert list(federation.clients) == ["experienced-adult-1", "cautious-child-1", "random-1"]
    assert federation.space.action.high == (20.0,)


def test_an_unknown_clinician_and_a_negative_seed_are_refused():
    with pytest.raises(FovaError, match="experienced"):
        registry.get("glucose").generate("experienced-elderly", 0, 0)
    with pytest.raises(FovaError, match="clinician"):
        episodes("test", "surgeon", None, 0, 0)
    with pytest.raises(FovaError, match="seed"):
        episodes("test", "random", None, 0, -1)


def test_a_run_shows_the_clinical_figures_of_its_policies(tmp_path):
    small = {"hidden": (8,), "batch_size": 8, "rounds": 2, "local_steps": 2, "final_episodes": 2}
    small |= {"evaluate_every": 1, "episodes": 1}
    result = fova.train("glucose", ["random", "cautious"], 100, "fed-bc", directory=tmp_path / "run", **small)
    names = ["time in range", "below 70", "above 180", "ended early"]
    assert result.server is not None
    assert list(result.server.measures) == names
    written = json.loads((tmp_path / "run/result.json").read_text())
    assert list(written["server"]["measures"]) == list(written["cautious-1"]["measures"]) == names
    assert sum(written["server"]["measures"][name] for name in names[:3]) == pytest.approx(1.0)
    lines = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    assert list(next(line for line in lines if "server" in line)["server"]["measures"]) == names
