import tracemalloc
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jaxtyping import Array

from fova.algorithms import configure
from fova.data.cutting import lay_out
from fova.federation import placement, rounds
from fova.federation import simulation as simulation_module
from fova.federation.engine import RoundSettings
from fova.federation.placement import Buffer, DealtOut, Placed, place
from fova.federation.simulation import Simulation
from fova.spaces import Space
from tiny import make_transitions

WIDTH = 2 * (3 + 2) + 4
ROWS_OF = partial(rounds.rows_of, discount=0.9)


def buffer_of(data, width=WIDTH, drawn=None):
    sizes = {name: len(each) for name, each in data.items()}
    return Buffer.of(sizes, width, lambda name, rows: ROWS_OF(data[name], drawn=drawn, out=rows))


def clients():
    return {f"client-{i}": make_transitions(i, episodes=1 + 3 * i) for i in range(3)}


def test_the_buffer_holds_the_rows_of_all_clients_and_nothing_else():
    data = clients()
    buffer = buffer_of(data)
    packed = [ROWS_OF(each) for each in data.values()]
    np.testing.assert_array_equal(buffer.rows, np.concatenate(packed))
    assert buffer.lengths.tolist() == [len(each) for each in packed]
    assert buffer.starts.tolist() == [0, len(packed[0]), len(packed[0]) + len(packed[1])]


def test_a_small_client_beside_a_large_one_costs_what_its_rows_cost():
    small, large = make_transitions(0, episodes=1, steps=10), make_transitions(1, episodes=1, steps=20_000)
    buffer = buffer_of({"small": small, "large": large})
    assert buffer.rows.nbytes == 4 * WIDTH * (len(small) + len(large))
    placed = place(buffer, (0, 1), DealtOut.among(2))
    # Both devices use the one buffer; nothing was copied.
    pointers = {shard.data.unsafe_buffer_pointer() for shard in placed.rows.addressable_shards}
    assert pointers == {buffer.rows.ctypes.data}
    assert len(placed.rows.addressable_shards) == 2


@pytest.mark.parametrize("sampling", ["uniform", "returns"])
def test_a_large_client_is_not_copied_on_its_way_into_the_buffer(sampling):
    rows, columns = 20_000, 40
    ended = np.arange(rows) % 100 == 99
    numbers = np.zeros((rows, columns), np.float32)
    large = lay_out(numbers, numbers[:, :1].copy(), np.ones(rows, np.float32), ended, ended, None)
    width, drawn = 2 * (columns + 1) + 4, None
    if sampling == "returns":
        width, drawn = 2 * width, np.arange(rows)[::-1]
    tracemalloc.start()
    buffer = buffer_of({"large": large}, width, drawn)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * buffer.rows.nbytes


def as_if_devices_had_memory_of_their_own(buffer, members, devices):
    return place(buffer, members, devices._replace(first=SimpleNamespace(platform="gpu")))


def test_devices_with_memory_of_their_own_get_the_rows_of_their_clients():
    data = clients()
    buffer = buffer_of(data)
    members = (2, 0, 1, 2)  # the last one fills a slot
    placed = as_if_devices_had_memory_of_their_own(buffer, members, DealtOut.among(4))
    rows, starts = np.asarray(placed.rows), np.asarray(placed.starts)
    assert rows.shape == (2, buffer.lengths[2] + max(buffer.lengths[0], buffer.lengths[1]), WIDTH)
    for slot, client in enumerate(members):
        begin, length = buffer.starts[client], buffer.lengths[client]
        here = rows[slot // 2, starts[slot] : starts[slot] + length]
        np.testing.assert_array_equal(here, buffer.rows[begin : begin + length])


def test_where_the_rows_are_makes_no_difference(monkeypatch):
    algorithm = configure("fed-bc", hidden=(8,), batch_size=8)

    def trained() -> list[Array]:
        run = Simulation(algorithm, clients(), Space.unit(3, 2), RoundSettings(local_steps=2))
        return jax.tree.leaves(run.round(run.start())[0].broadcast)

    shared = trained()
    monkeypatch.setattr(simulation_module, "place", as_if_devices_had_memory_of_their_own)
    for one, other in zip(shared, trained(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_array_is_aligned_for_the_devices():
    for rows in (1, 7, 1000):
        array = placement.aligned((rows, 3))
        assert (array.shape, array.dtype, array.any()) == ((rows, 3), np.float32, False)
        assert array.ctypes.data % 64 == 0  # bytes


def test_rows_are_shared_or_each_devices_own():
    assert Placed(np.zeros((7, WIDTH)), None, None).shared
    assert not Placed(np.zeros((2, 7, WIDTH)), None, None).shared


def test_the_server_is_on_the_first_device():
    assert DealtOut.among(2).first == jax.local_devices()[0]
