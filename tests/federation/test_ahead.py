"""Programs that were compiled ahead are found again: nothing is compiled twice."""

import logging

import jax
import jax.numpy as jnp
import pytest

from fova.algorithms import configure
from fova.federation.ahead import shapes
from fova.federation.engine import RoundSettings
from fova.federation.simulation import Simulation
from fova.spaces import Space
from tiny import make_transitions


@pytest.fixture
def compiled(caplog):
    """The names of the programs that are compiled."""
    jax.config.update("jax_log_compiles", True)
    caplog.set_level(logging.WARNING)
    yield lambda: [
        record.message.split("jit(")[1].split(")")[0]
        for record in caplog.records
        if record.message.startswith("Finished XLA compilation of jit(")
    ]
    jax.config.update("jax_log_compiles", False)


def test_shapes_of_arrays_on_devices_and_from_the_host():
    """A Python number has a weak type, which arrays from the host have not."""
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    tree = jax.eval_shape(lambda: {"weak": jnp.asarray(1.0), "strong": jnp.zeros((2, 3), jnp.int8)})
    found, from_host = shapes(tree, here), shapes(tree, here, 7, from_host=True)
    assert (found["weak"].shape, found["weak"].weak_type, found["strong"].weak_type) == ((), True, False)
    assert (from_host["weak"].shape, from_host["weak"].weak_type) == ((7,), False)
    assert (from_host["strong"].shape, from_host["strong"].dtype) == ((7, 2, 3), jnp.int8)
    assert found["strong"].sharding == here


@pytest.mark.parametrize("options", [{}, {"cohort": 2}, {"participation": 0.6}])
def test_a_round_compiles_each_of_its_programs_once(compiled, options):
    # No other test has this width, so nothing of it is compiled yet.
    algorithm = configure("fed-bc", hidden=(9 + len(options), len(str(options))), batch_size=8)
    clients = {f"client-{i}": make_transitions(i, episodes=2 + i) for i in range(3)}
    simulation = Simulation(algorithm, clients, Space.unit(3, 2), RoundSettings(local_steps=2, **options))
    state = simulation.start()
    assert simulation._ahead is not None
    simulation._ahead.wait()
    ahead = compiled()
    assert {"clients_part", "judge_submissions"} <= set(ahead)
    for _ in range(2):
        state, _ = simulation.round(state)
    for name in ("start", "clients_part", "judge_submissions"):
        assert compiled().count(name) == 1, name
    assert simulation._ahead is None


def test_what_goes_wrong_ahead_is_left_to_the_call_that_needs_it(monkeypatch):
    algorithm = configure("fed-bc", hidden=(8,), batch_size=8)
    simulation = Simulation(algorithm, {"one": make_transitions(0)}, Space.unit(3, 2), RoundSettings(local_steps=2))
    monkeypatch.setattr(simulation, "_clients_arguments", lambda *_: ("not", "enough"))
    state = simulation.start()
    monkeypatch.undo()
    state, report = simulation.round(state)
    assert state.round == 1
    assert report.clients
