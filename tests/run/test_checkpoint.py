import json

import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from fova.algorithms import configure
from fova.errors import FovaError
from fova.federation.engine import RoundSettings, State
from fova.federation.simulation import Simulation
from fova.run.checkpoint import Rows, checkpoints, discard_after, load_checkpoint, save_checkpoint, save_share
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


# --- Checkpoints of several processes ---


def learners_of(clients):
    return {"net": np.arange(2.0 * len(clients)).reshape(-1, 2) + 2 * clients.start, "step": np.array(clients)}


def state_of(clients, rounds=1):
    return State(rounds, {"net": np.full(2, float(rounds))}, learners_of(clients))


def save_shares(directory, shares, rounds=1, belongs_to="seed 0"):
    for share in shares:
        save_share(directory, state_of(share, rounds), belongs_to, share)
    return save_checkpoint(directory, state_of(shares[0], rounds), belongs_to, shares)


def assert_holds(state, clients):
    assert state is not None
    jax.tree.map(np.testing.assert_array_equal, state.learners, learners_of(clients))
    np.testing.assert_array_equal(state.server["net"], np.full(2, float(state.round)))


@pytest.mark.parametrize(
    "later", [[range(0, 7)], [range(0, 4), range(4, 7)], [range(0, 2), range(2, 3), range(3, 7)]]
)
def test_other_processes_go_on_from_the_shares(tmp_path, later):
    save_shares(tmp_path, [range(0, 5), range(5, 7)])
    for own in later:
        assert_holds(load_checkpoint(tmp_path, state_of(own), "seed 0", Rows(own, 7)), own)
    assert_holds(load_checkpoint(tmp_path, state_of(range(7)), "seed 0"), range(7))


def test_processes_go_on_from_the_checkpoint_of_one(tmp_path):
    save_checkpoint(tmp_path, state_of(range(7)))
    assert_holds(load_checkpoint(tmp_path, state_of(range(3, 7)), "", Rows(range(3, 7), 7)), range(3, 7))


def test_shares_without_their_checkpoint_do_not_count_and_are_removed(tmp_path):
    shares = [range(0, 4), range(4, 7)]
    save_shares(tmp_path, shares, rounds=1)
    save_share(tmp_path, state_of(shares[1], 2), "seed 0", shares[1])  # killed before the others had saved
    assert load_checkpoint(tmp_path, state_of(range(7)), "seed 0").round == 1
    for number in (3, 4):
        save_shares(tmp_path, shares, rounds=number)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in kept if name.startswith("round")] == [
        "round-000003.safetensors",
        "round-000004.safetensors",
    ]
    assert [name.split("-")[1] for name in kept if name.startswith("share")] == ["000003"] * 2 + ["000004"] * 2
    save_checkpoint(tmp_path, state_of(range(7), 5), "seed 0")
    save_checkpoint(tmp_path, state_of(range(7), 6), "seed 0")
    assert not list(tmp_path.glob("share-*"))


def test_a_checkpoint_with_a_lost_or_strange_share_is_refused(tmp_path):
    shares = [range(0, 4), range(4, 7)]
    save_shares(tmp_path, shares)
    with pytest.raises(FovaError, match="its shares are not those of 8 clients"):
        load_checkpoint(tmp_path, state_of(range(8)), "seed 0")
    save_share(tmp_path, state_of(shares[1]), "seed 1", shares[1])
    with pytest.raises(FovaError, match="belongs to another configuration"):
        load_checkpoint(tmp_path, state_of(range(7)), "seed 0")
    save_share(tmp_path, state_of(range(4, 6)), "seed 0", shares[1])
    with pytest.raises(FovaError, match="does not fit"):
        load_checkpoint(tmp_path, state_of(range(7)), "seed 0")
    next(tmp_path.glob("share-000001-0000004*")).unlink()
    with pytest.raises(FovaError, match="share-000001-0000004"):
        load_checkpoint(tmp_path, state_of(range(7)), "seed 0")


def test_states_to_be_forgotten_take_their_shares_with_them(tmp_path):
    for number in (1, 2):
        save_shares(tmp_path, [range(0, 4), range(4, 7)], rounds=number)
    discard_after(tmp_path, 1)
    assert {path.name.split("-")[1].removesuffix(".safetensors") for path in tmp_path.iterdir()} == {"000001"}
