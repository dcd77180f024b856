"""The equations against hand-worked numbers and a scalar implementation, and what must hold for any patient."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fova.errors import FovaError
from fova.tasks.glucose import model
from fova.tasks.glucose.model import PMOL_PER_UNIT, all_patients, derivatives, minute, patients
from tasks.glucose import scalar_model

EVERYBODY = all_patients()
FLUX = dict.fromkeys(model.all_patients().figures, np.ones(1))


def one(row):
    """A patient as the scalar reference takes it."""
    return {
        "start": EVERYBODY.start[:, row].tolist(),
        "figures": {name: float(values[row]) for name, values in EVERYBODY.figures.items()},
    }


def test_there_are_ten_patients_of_each_age_group():
    assert len(EVERYBODY) == 30
    assert patients("child").names == tuple(f"child#{number:03d}" for number in range(1, 11))
    assert patients("adult").carb_ratio[0] == 10.0
    assert patients("adult").daily_insulin[0] == 50.416652
    with pytest.raises(FovaError, match="adult, adolescent, child"):
        patients("elderly")


def test_the_figures_carry_their_licence():
    notice = model.FILE.with_name("patients.LICENSE.txt").read_text(encoding="utf-8")
    assert "simglucose 0.2.11" in notice
    assert "Copyright (c) 2017 Jinyu Xie" in notice


def test_the_derivatives_by_hand():
    """All parameters are 1 but the few below; the states are 1 to 13."""
    state = np.arange(1.0, 14.0)[:, None]
    figures = FLUX | {"b": np.array([0.5]), "d": np.array([0.25]), "kmax": np.array([3.0]), "BW": np.array([60.0])}
    rates = derivatives(state, np.array([0.002]), np.array([0.03]), np.array([4.0]), figures)[:, 0]
    # q = 3, D = 4: kgut = 1 + (3 - 1)/2 (tanh(2.5/2 (3 - 2)) - tanh(2.5/1 (3 - 1)) + 2)
    kgut = 1.0 + (np.tanh(1.25) - np.tanh(5.0) + 2.0)
    assert rates[0] == pytest.approx(2.0 - 3.0 * 1.0)
    assert rates[1] == pytest.approx(3.0 - 2.0 * kgut)
    assert rates[2] == pytest.approx(2.0 * kgut - 3.0)
    assert rates[3] == pytest.approx(0.0 + 3.0 / 60.0 - 1.0 - 3.0 - 4.0 + 5.0)  # EGP = max(1 - 4 - 9, 0), E = 4 - 1
    assert rates[4] == pytest.approx(-(1.0 + 7.0) * 5.0 / 6.0 + 4.0 - 5.0)
    assert rates[5] == pytest.approx(-12.0 + 10.0 + 11.0 + 12.0)
    assert rates[6] == pytest.approx(-7.0 + (6.0 - 1.0))
    assert rates[7] == pytest.approx(6.0 - 8.0)
    assert rates[8] == pytest.approx(8.0 - 9.0)
    assert rates[9] == pytest.approx(-20.0 + 6.0)
    assert rates[10] == pytest.approx(6000.0 * 0.03 / 60.0 - 22.0)
    assert rates[11] == pytest.approx(11.0 - 12.0)
    assert rates[12] == pytest.approx(4.0 - 13.0)


@given(seed=st.integers(0, 10_000))
def test_the_derivatives_agree_with_the_scalar_implementation(seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(EVERYBODY), size=5)
    chosen = EVERYBODY.chosen(rows)
    state = chosen.start * rng.uniform(0.0, 2.0, (13, 5)) * (rng.random((13, 5)) < 0.9)
    state[:3] = rng.uniform(0.0, 50_000.0, (3, 5))
    meal, insulin = rng.uniform(0.0, 5.0, 5), rng.uniform(0.0, 1.0, 5)
    size = rng.uniform(0.0, 80_000.0, 5) * (rng.random(5) < 0.8)
    found = derivatives(state, meal, insulin, size, chosen.figures)
    for column, row in enumerate(rows):
        figures = one(row)["figures"]
        expected = scalar_model.derivatives(
            state[:, column].tolist(), meal[column], insulin[column], size[column], figures
        )
        np.testing.assert_allclose(found[:, column], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("row", [3, 12, 27])
def test_one_minute_runge_kutta_steps_agree_with_small_steps_of_another_method(row):
    """Three hours with a meal and its insulin: within 0.01 mg/dL of Heun's method with 20 steps a minute."""
    patient, basal = EVERYBODY.chosen([row]), float(EVERYBODY.basal[row])

    def insulin(at):
        return basal + (45.0 / EVERYBODY.carb_ratio[row] / 15.0 if 30 <= at < 45 else 0.0)

    reference = scalar_model.day(one(row), {30: 45.0}, insulin, minutes=180, substeps=20)
    state, to_eat, size, found = patient.start, 0.0, 0.0, []
    for at in range(180):
        to_eat += 45.0 * (at == 30)
        meal = min(to_eat, 5.0)
        to_eat -= meal
        size += 1000.0 * meal
        state = minute(state, np.array([meal]), np.array([insulin(at)]), np.array([size]), patient.figures)
        found.append(patient.glucose(state)[0])
    assert np.ptp(reference) > 10.0  # the meal is seen
    np.testing.assert_allclose(found, reference, atol=0.01)


def test_basal_insulin_keeps_every_patient_at_the_steady_state():
    state, nothing = EVERYBODY.start, np.zeros(30)
    for _ in range(600):
        state = minute(state, nothing, EVERYBODY.basal, nothing, EVERYBODY.figures)
    np.testing.assert_allclose(EVERYBODY.glucose(state), EVERYBODY.glucose(EVERYBODY.start), atol=1.0)


def test_without_insulin_glucose_rises_and_with_much_it_falls():
    after, nothing = {}, np.zeros(30)
    for factor in (0.0, 1.0, 4.0):
        state = EVERYBODY.start
        for _ in range(240):
            state = minute(state, nothing, factor * EVERYBODY.basal, nothing, EVERYBODY.figures)
        after[factor] = EVERYBODY.glucose(state)
    assert (after[0.0] > after[1.0] + 5.0).all()
    assert (after[4.0] < after[1.0] - 5.0).all()


def test_what_is_eaten_leaves_the_stomach_through_the_gut_and_nothing_else():
    """d(x1 + x2 + x3)/dt = eaten - absorbed: integrated over a meal, the masses agree."""
    state, size, absorbed = EVERYBODY.start, np.zeros(30), np.zeros(30)
    for at in range(300):
        meal = np.full(30, 5.0 if at < 8 else 0.0)
        size = size + 1000.0 * meal
        before = EVERYBODY.figures["kabs"] * state[2]
        state = minute(state, meal, EVERYBODY.basal, size, EVERYBODY.figures)
        absorbed += (before + EVERYBODY.figures["kabs"] * state[2]) / 2.0  # trapezoid
    np.testing.assert_allclose(absorbed + state[:3].sum(axis=0), 40_000.0, rtol=2e-3)
    assert (absorbed > 5_000.0).all()


def test_insulin_units_become_picomoles_under_the_skin():
    chosen = EVERYBODY.chosen([0])
    empty = np.zeros((13, 1))
    rates = derivatives(empty, np.zeros(1), np.ones(1), np.zeros(1), chosen.figures)
    assert rates[10, 0] == pytest.approx(PMOL_PER_UNIT / chosen.figures["BW"][0])


def test_no_state_that_cannot_be_negative_falls_below_zero():
    state, nothing = EVERYBODY.start, np.zeros(30)
    for _ in range(600):
        state = minute(state, nothing, np.full(30, 2.0), nothing, EVERYBODY.figures)
    assert (state[model.NEVER_BELOW_ZERO[:, 0]] >= 0.0).all()
    assert np.isfinite(state).all()
    assert (EVERYBODY.glucose(state) < 40.0).any()
