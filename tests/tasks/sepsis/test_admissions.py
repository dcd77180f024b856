"""The simulated admissions: the tables' distribution, one place at a time or many, the same bytes for a seed."""

import importlib.metadata
import importlib.util
import itertools

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.spaces import Discrete
from fova.tasks import registry
from fova.tasks.sepsis import ACTIONS, HOSPITALS, tables
from fova.tasks.sepsis.admissions import Sampler, SepsisEnvironment, SepsisSimulators
from fova.tasks.sepsis.hospitals import TOGETHER, episodes, hospital
from fova.tasks.sepsis.values import exact_value


def test_a_sampler_by_hand():
    sampler = Sampler.of(np.array([[0.25, 0.0, 0.75], [0.0, 1.0, 0.0]]))
    rows = np.array([0, 0, 0, 1, 1])
    np.testing.assert_array_equal(sampler.draw(rows, np.array([0.0, 0.2499, 0.25, 0.0, 0.999])), [0, 0, 2, 1, 1])


def test_rounding_never_leads_into_the_next_row():
    tenths = np.full((3, 10), 0.1)  # adds up to a little less than 1
    almost = np.full(3, np.nextafter(1.0, 0.0))
    np.testing.assert_array_equal(Sampler.of(tenths).draw(np.arange(3), almost), [9, 9, 9])


def test_next_states_are_drawn_with_the_tables_probabilities():
    places, state, action = 2000, 5, 3
    simulators = SepsisSimulators(places)
    for place in range(places):
        simulators.start(place, place)
    simulators.states[:] = state
    simulators.step(np.full((places, 1), action), range(places))
    drawn = np.bincount(simulators.states, minlength=tables.STATES) / places
    expected = tables.tables().transitions[state, action]
    assert np.abs(drawn - expected).max() < 4.0 * np.sqrt(expected.max() / places)
    assert set(np.flatnonzero(drawn)) <= set(np.flatnonzero(expected))


def test_first_states_are_drawn_with_the_tables_probabilities():
    simulators = SepsisSimulators(1)
    drawn = np.zeros(tables.PATIENT_STATES)
    for seed in range(1500):
        simulators.start(0, seed)
        drawn[simulators.states[0]] += 1 / 1500
    likely = np.argsort(-tables.tables().starts)[:20]
    np.testing.assert_allclose(drawn[likely].sum(), tables.tables().starts[likely].sum(), atol=0.04)


@pytest.mark.parametrize("name", ["expert", "poor"])
def test_the_survival_in_the_data_agrees_with_the_exact_value(name):
    survived = [episode.rewards.sum() for episode in itertools.islice(episodes(name, 0, 0), 6 * TOGETHER)]
    assert set(survived) == {0.0, 1.0}
    assert np.mean(survived) == pytest.approx(exact_value(hospital(name)), abs=0.03)  # three standard errors


def test_hospitals_are_listed_from_the_best_to_the_worst():
    values = [exact_value(hospital(name)) for name in HOSPITALS]
    assert values == sorted(values, reverse=True)
    np.testing.assert_allclose(values, [0.8636, 0.8324, 0.8049, 0.7818, 0.7801, 0.7238], atol=1e-4)


def test_an_episode_is_a_stay_with_codes_and_one_reward_at_the_end():
    stays = list(itertools.islice(episodes("random", 0, 0), 50))
    for stay in stays:
        assert stay.terminated
        assert stay.observations.shape == (len(stay) + 1, 47)
        assert (stay.observations[-1] == 0.0).all()
        assert stay.rewards[:-1].sum() == 0.0
        assert set(np.unique(stay.actions)) <= set(range(25))


def test_same_seed_same_bytes_and_any_slice_can_be_made_alone():
    whole = list(itertools.islice(episodes("fair", 0, 3), TOGETHER + 5))
    again = list(itertools.islice(episodes("fair", TOGETHER - 2, 3), 7))
    for ours, theirs in zip(whole[TOGETHER - 2 :], again, strict=True):
        assert ours.observations.tobytes() == theirs.observations.tobytes()
        assert ours.actions.tobytes() == theirs.actions.tobytes()
    other = next(episodes("fair", 0, 4))
    assert other.observations.tobytes() != whole[0].observations.tobytes()


def test_many_patients_at_once_equal_one_at_a_time():
    together = SepsisSimulators(5)
    first = [together.start(place, 70 + place) for place in range(5)]
    actions = np.random.default_rng(0).integers(25, size=(3, 5, 1))
    states, playing = [together.states.copy()], list(range(5))
    for step in range(3):
        ended = together.step(actions[step], playing).terminated
        playing = [place for place in playing if not ended[place]]
        states.append(together.states.copy())
    for place in range(5):
        alone = SepsisSimulators(1)
        np.testing.assert_array_equal(alone.start(0, 70 + place), first[place])
        for step in range(3):
            if states[step][place] < tables.PATIENT_STATES:
                alone.step(actions[step, place : place + 1], [0])
            assert alone.states[0] == states[step + 1][place]


def test_the_gymnasium_environment_plays_the_same_stay():
    environment, simulators = SepsisEnvironment(), SepsisSimulators(1)
    check_env(environment, skip_render_check=True)
    observation, facts = environment.reset(seed=11)
    np.testing.assert_array_equal(observation, simulators.start(0, 11))
    assert facts["state"] == simulators.states[0]
    observation, reward, terminated, _, _ = environment.step(4)
    stepped = simulators.step(np.array([[4]]), [0])
    np.testing.assert_array_equal(observation, stepped.observations[0])
    assert (reward, terminated) == (stepped.rewards[0], stepped.terminated[0])


@pytest.mark.parametrize("action", [-1, 25, 1.5])
def test_an_action_that_is_no_code_is_refused(action):
    simulators = SepsisSimulators(1)
    simulators.start(0, 0)
    with pytest.raises(FovaError, match="0 to 24"):
        simulators.step(np.array([[action]]), [0])


def test_clients_are_hospitals_with_named_actions():
    task = registry.get("sepsis")
    federation = Federation.build([ClientSpec("expert", 50), ClientSpec("poor", 50)], task)
    assert isinstance(federation.space.action, Discrete)
    assert federation.space.action.names == ACTIONS
    assert ACTIONS[0] == "level 00"
    assert ACTIONS[24] == "level 44"


def test_without_the_package_the_message_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    tables.tables.cache_clear()
    try:
        with pytest.raises(FovaError, match=r"pip install 'fova\[sepsis\]'"):
            registry.get("sepsis").make()
    finally:
        tables.tables.cache_clear()

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(FovaError, match=r"fova\[sepsis\]"):
        tables.installed_version()


def test_other_tables_are_refused(tmp_path):
    with pytest.raises(FovaError, match="tables of ICU-Sepsis"):
        tables.read_tables(tmp_path / "absent.npz")
    arrays = {name: np.zeros((2,) * len(shape)) for name, shape in tables.SHAPES.items()}
    np.savez(tmp_path / "small.npz", **arrays)
    with pytest.raises(FovaError, match="shapes"):
        tables.read_tables(tmp_path / "small.npz")


def test_an_unknown_hospital_and_a_negative_seed_are_refused():
    with pytest.raises(FovaError, match="'expert'"):
        registry.get("sepsis").generate("experts", 0, 0)
    with pytest.raises(FovaError, match="seed"):
        registry.get("sepsis").generate("expert", 0, -1)
