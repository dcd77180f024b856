import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from fova.algorithms import configure
from fova.errors import FovaError
from fova.federation.engine import RoundSettings
from fova.federation.simulation import Simulation
from fova.run.checkpoint import checkpoints, discard_after, load_checkpoint, save_checkpoint
from fova.spaces import Space
from tiny import make_transitions


@pytest.fixture(scope="module")
def fresh():
    algorithm = configure("fova", hidden=(4,), batch_size=4)
    return Simulation(algorithm, {"a": make_transitions(0)}, Space.unit(3, 2), RoundSettings(local_steps=1)).start()


def test_the_newest_is_loaded_and_two_are_kept(tmp_path, fresh):
    assert load_checkpoint(tmp_path, fresh) is None
    for number in (1, 2, 3):
        save_checkpoint(tmp_path, fresh._replace(round=number))
    assert [path.name for path in checkpoints(tmp_path)] == ["round-000002.safetensors", "round-000003.safetensors"]
    state = load_checkpoint(tmp_path, fresh)
    assert state.round == 3
    np.testing.assert_array_equal(state.broadcast.actor.net.last.weight, fresh.broadcast.actor.net.last.weight)


def test_every_part_comes_back_with_its_shape_scalars_included(tmp_path, fresh):
    state = fresh._replace(server={"net": np.arange(6.0).reshape(2, 3).T, "scale": np.float32(7)})
    save_checkpoint(tmp_path, state)
    restored = load_checkpoint(tmp_path, state).server
    assert np.shape(restored["scale"]) == ()
    assert restored["scale"] == 7
    np.testing.assert_array_equal(restored["net"], state.server["net"])


def test_what_the_engine_remembers_comes_back(tmp_path, fresh):
    save_checkpoint(tmp_path, fresh._replace(round=1, memo={"counted": {"east": 1}}))
    assert load_checkpoint(tmp_path, fresh).memo == {"counted": {"east": 1}}


def test_states_after_a_round_can_be_forgotten(tmp_path, fresh):
    for number in (9, 10):
        save_checkpoint(tmp_path, fresh._replace(round=number))
    discard_after(tmp_path, 10)
    assert len(checkpoints(tmp_path)) == 2, "the round itself stays"
    discard_after(tmp_path, 9)
    assert [path.name for path in checkpoints(tmp_path)] == ["round-000009.safetensors"]
    discard_after(tmp_path, 0)
    assert checkpoints(tmp_path) == []


def test_a_corrupt_checkpoint_without_an_older_one_says_so(tmp_path, fresh):
    save_checkpoint(tmp_path, fresh).write_bytes(b"hello")
    with pytest.raises(FovaError, match="There is no older one"):
        load_checkpoint(tmp_path, fresh)


@pytest.mark.parametrize(
    "server",
    [{"net": np.zeros(2)}, {"net": np.zeros(2), "scale": np.zeros(3, "f")}, {"net": np.zeros(2), "scale": 7.0}],
    ids=["an array less", "another shape", "another kind"],
)
def test_a_checkpoint_with_other_arrays_is_refused(tmp_path, fresh, server):
    save_checkpoint(tmp_path, fresh._replace(server=server))
    with pytest.raises(FovaError, match=r"'scale'.* does not fit"):
        load_checkpoint(tmp_path, fresh._replace(server={"net": np.zeros(2), "scale": np.float32(7)}))


def test_the_digest_covers_names_shapes_kinds_and_numbers(tmp_path, fresh):
    def digest(server):
        path = save_checkpoint(tmp_path, fresh._replace(server=server))
        with safe_open(path, framework="numpy") as file:
            return json.loads(file.metadata()["checkpoint"])["digest"]

    servers = [{"a": np.zeros(2, "f")}, {"b": np.zeros(2, "f")}, {"a": np.zeros((2, 1), "f")}]
    servers += [{"a": np.zeros(2, "i4")}, {"a": np.array([0, 1], "f")}]
    digests = [digest(server) for server in servers]
    assert len(set(digests)) == len(servers)
    assert {len(text) for text in digests} == {32}
    assert digest(servers[0]) == digests[0]


@pytest.mark.parametrize("damage", ["cut short", "one byte changed", "not a checkpoint", "empty"])
def test_a_corrupt_checkpoint_is_named_and_the_older_one_offered(tmp_path, fresh, damage):
    save_checkpoint(tmp_path, fresh._replace(round=1))
    path = save_checkpoint(tmp_path, fresh._replace(round=2))
    content = bytearray(path.read_bytes())
    content[-10] ^= 0xFF
    path.write_bytes(
        {
            "cut short": bytes(content[:-100]),
            "one byte changed": bytes(content),
            "not a checkpoint": b"hello",
            "empty": b"",
        }[damage]
    )
    with pytest.raises(FovaError, match=r"round-000002.*\n.*round-000001"):
        load_checkpoint(tmp_path, fresh)
    assert len(checkpoints(tmp_path)) == 2, "nothing is deleted"


def test_a_checkpoint_of_another_shape_is_refused(tmp_path, fresh):
    save_checkpoint(tmp_path, fresh)
    wider = configure("fova", hidden=(5,), batch_size=4)
    other = Simulation(wider, {"a": make_transitions(0)}, Space.unit(3, 2), RoundSettings(local_steps=1)).start()
    with pytest.raises(FovaError, match="does not fit"):
        load_checkpoint(tmp_path, other)


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path, fresh):
    save_checkpoint(tmp_path, fresh, "seed 0")
    assert load_checkpoint(tmp_path, fresh, "seed 0").round == 0
    with pytest.raises(FovaError, match="belongs to another configuration"):
        load_checkpoint(tmp_path, fresh, "seed 1")


def test_a_renamed_checkpoint_is_refused(tmp_path, fresh):
    path = save_checkpoint(tmp_path, fresh._replace(round=1))
    path.rename(path.with_name("round-000005.safetensors"))
    with pytest.raises(FovaError, match="holds round 1, which is not what its name says"):
        load_checkpoint(tmp_path, fresh)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"format": 1}, "format 1, this version of fova reads format 2"),
        ({}, "format 1, this"),
        ([], "not a table"),
        ({"format": 2, "round": "x"}, "holds round 'x'"),
        ({"format": 2, "round": None}, "holds round None"),
        ({"format": 2, "round": float("nan")}, "holds round nan"),
        ({"format": 2, "round": -5}, "holds round -5"),
        ({"format": 2, "round": 10**9}, "holds round 1000000000"),
        ({"format": 2, "round": 0}, "no table of what the engine remembers"),
        ({"format": 2, "round": 0, "memo": [1]}, "no table of what the engine remembers"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused_in_words(tmp_path, fresh, about, words):
    path = save_checkpoint(tmp_path, fresh)
    with safe_open(path, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        digest = json.loads(file.metadata()["checkpoint"])["digest"]
    if isinstance(about, dict):
        about = {"digest": digest, "belongs_to": "", **about}
    path.write_bytes(save(tensors, metadata={"checkpoint": json.dumps(about)}))
    with pytest.raises(FovaError, match=words):
        load_checkpoint(tmp_path, fresh)
