"""Days of simulated patients: meals, sensor, observations, rewards and endings."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fova.errors import FovaError
from fova.tasks.glucose import days
from fova.tasks.glucose.days import Day, GlucoseEnvironment, GlucoseSimulators, draw_day, risk
from fova.tasks.glucose.table import COLUMNS, STEPS, clinical_figures

QUIET = np.zeros(STEPS), np.zeros(STEPS + 1)  # no meals, no noise


def played(simulators, dose, steps, playing):
    for _ in range(steps):
        stepped = simulators.step(np.full((simulators.places, 1), dose), playing)
    return stepped


def test_the_risk_by_hand():
    assert risk(np.array([112.5]))[0] == pytest.approx(0.0, abs=0.01)
    # ln 50 = 3.912023, to the power 1.084 = 4.387002; 10 (1.509 (4.387002 - 5.381))^2 = 22.4976
    assert risk(np.array([50.0]))[0] == pytest.approx(22.498, abs=0.05)
    assert risk(np.array([20.0]))[0] > risk(np.array([50.0]))[0] > risk(np.array([70.0]))[0]
    assert risk(np.array([350.0]))[0] > risk(np.array([250.0]))[0] > risk(np.array([180.0]))[0]


def test_an_observation_holds_what_a_clinician_sees():
    simulators = GlucoseSimulators("adult", 1)
    meals, noise = QUIET[0].copy(), QUIET[1].copy()
    meals[2], noise[:] = 40.0, 3.0
    first = simulators.begin(0, Day(0, meals, noise))
    chosen = simulators.patients
    basal = 100.0 * 15 * chosen.basal[0] / chosen.daily_insulin[0]
    kept = 0.5 ** (15.0 / 60.0)
    seen = dict(zip(COLUMNS, first))
    assert seen["cgm"] == pytest.approx(simulators.glucose[0] + 3.0)
    assert (seen["change"], seen["change_before"], seen["meal"]) == (0.0, 0.0, 0.0)
    assert (seen["time_sine"], seen["time_cosine"]) == (0.0, 1.0)
    assert seen["insulin_on_board"] == pytest.approx(basal * kept / (1.0 - kept))
    after = [simulators.step(np.array([[2.0]]), [0]).observations[0] for _ in range(2)]
    assert after[1][4] == 40.0
    assert after[1][1] == pytest.approx(after[1][0] - after[0][0])
    assert after[1][2] == pytest.approx(after[0][0] - first[0])
    assert after[0][3] == pytest.approx(kept * (first[3] + 2.0))
    assert after[1][5] == pytest.approx(np.sin(2 * np.pi * 2 / 96))


def test_the_reward_is_the_risk_after_the_quarter_of_an_hour():
    simulators = GlucoseSimulators("adult", 2)
    for place in range(2):
        simulators.begin(place, Day(place, *QUIET))
    stepped = simulators.step(np.array([[0.5], [1.0]]), [0, 1])
    np.testing.assert_allclose(stepped.rewards, -risk(simulators.glucose) / 10.0)
    assert not stepped.terminated.any()


def test_a_day_ends_by_truncation_and_a_deadly_glucose_by_termination():
    simulators = GlucoseSimulators("child", 2)
    for place in range(2):
        simulators.begin(place, Day(place, *QUIET))
    basal = 100.0 * 15 * simulators.patients.basal / simulators.patients.daily_insulin
    ended = np.zeros(2, bool)
    for step in range(STEPS):
        stepped = simulators.step(np.array([[basal[0]], [20.0]]), [0] if ended[1] else [0, 1])
        if stepped.terminated[1] and not ended[1]:
            ended[1] = True
            assert stepped.rewards[1] == pytest.approx(-risk(np.array([10.0]))[0] / 10.0 - 50.0)
        assert stepped.truncated[0] == (step == STEPS - 1)
        assert not stepped.terminated[0]
    assert ended[1]
    assert np.isfinite(stepped.observations).all()


def test_meals_happen_as_often_as_they_should_and_stay_in_their_windows():
    meals = np.stack([draw_day(0, np.random.default_rng(seed)).meals for seed in range(400)])
    for (hour, _, earliest, latest, probability, grams, _), tolerance in zip(days.MEALS, (3, 2, 3, 2, 3, 2)):
        window = meals[:, int(earliest * 4) : int(latest * 4)]
        eaten = window.sum(axis=1)
        assert np.mean(eaten > 0) == pytest.approx(probability, abs=0.1)
        assert eaten[eaten > 0].mean() == pytest.approx(grams, abs=tolerance)
        assert np.average(np.arange(window.shape[1]), weights=window.sum(axis=0)) / 4 + earliest == pytest.approx(
            hour, abs=0.3
        )
    assert meals[:, : 5 * 4].sum() == meals[:, 23 * 4 + 1 :].sum() == 0.0


def test_the_sensor_noise_has_its_spread_and_memory():
    noise = np.stack([draw_day(0, np.random.default_rng(seed)).noise for seed in range(200)])
    assert noise.std() == pytest.approx(days.SENSOR_NOISE, rel=0.05)
    assert np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1] == pytest.approx(0.7, abs=0.03)


def test_consecutive_seeds_cover_all_patients():
    simulators = GlucoseSimulators("child", 10)
    readings = [simulators.start(place, 1_000_003 + place)[0] for place in range(10)]
    starts = {round(float(value), 6) for value in simulators.glucose}
    assert len(starts) == 10
    assert np.isfinite(readings).all()


def test_many_patients_at_once_equal_one_at_a_time():
    together = GlucoseSimulators(None, 7)
    seeds = [3, 14, 15, 92, 65, 35, 89]
    first = [together.start(place, seed) for place, seed in enumerate(seeds)]
    rng = np.random.default_rng(0)
    actions = rng.uniform(0.0, 3.0, (12, 7, 1)).astype(np.float32)
    stepped = [together.step(actions[step], range(7)) for step in range(12)]
    for place, seed in enumerate(seeds):
        alone = GlucoseSimulators(None, 1)
        np.testing.assert_array_equal(alone.start(0, seed), first[place])
        for step in range(12):
            observations, rewards, terminated, _ = alone.step(actions[step, place : place + 1], [0])
            np.testing.assert_allclose(observations[0], stepped[step].observations[place], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(rewards[0], stepped[step].rewards[place], rtol=1e-12, atol=1e-12)
            assert terminated[0] == stepped[step].terminated[place]


def test_places_that_do_not_play_do_not_disturb_the_others():
    full, lone = GlucoseSimulators("adult", 3), GlucoseSimulators("adult", 3)
    for place in range(3):
        full.start(place, place)
        lone.start(place, place)
    one = played(full, 1.0, 5, [0, 1, 2])
    other = played(lone, 1.0, 5, [1])
    np.testing.assert_array_equal(one.observations[1], other.observations[1])


def test_the_gymnasium_environment_plays_the_same_day():
    environment = GlucoseEnvironment("adult")
    check_env(environment, skip_render_check=True)
    simulators = GlucoseSimulators("adult", 1)
    observation, facts = environment.reset(seed=5)
    np.testing.assert_array_equal(observation, simulators.start(0, 5))
    assert facts["patient"] == "adult#006"
    for dose in (0.5, 4.0, 0.0):
        observation, reward, terminated, truncated, _ = environment.step(np.array([dose], np.float32))
        stepped = simulators.step(np.array([[dose]]), [0])
        np.testing.assert_array_equal(observation, stepped.observations[0])
        assert (reward, terminated, truncated) == (stepped.rewards[0], False, False)


def test_a_dose_that_is_nan_is_refused():
    simulators = GlucoseSimulators("adult", 1)
    simulators.start(0, 0)
    with pytest.raises(FovaError, match="NaN"):
        simulators.step(np.array([[np.nan]]), [0])


def test_the_clinical_figures_by_hand():
    whole = np.zeros((STEPS + 1, 7))
    whole[:, 0] = 100.0
    whole[:10, 0], whole[10:15, 0] = 69.9, 180.1
    short = np.full((3, 7), 70.0)
    figures = clinical_figures([whole, short])
    assert figures["below 70"] == pytest.approx(10 / 100)
    assert figures["above 180"] == pytest.approx(5 / 100)
    assert figures["time in range"] == pytest.approx(85 / 100)
    assert figures["ended early"] == 0.5
