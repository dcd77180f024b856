"""A real federation over loopback: SuperLink, four SuperNodes, TLS and keys; a node and the server are killed."""

import socket

import numpy as np
import pytest
from place import Place, free_port

from fova.algorithms import configure
from fova.data.transitions import Episode, from_episodes
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.network.certificates import make
from fova.policy import load_policy
from fova.run.config import Config, RunConfig
from fova.run.directory import RunDirectory
from fova.run.simulated import SimulatedEngine
from patience import PATIENCE
from tiny import save_npz

pytestmark = pytest.mark.slow

NAMES = ("east", "north", "south", "west")
SETTINGS = {"hidden": (32,), "batch_size": 64, "actor_lr": 3e-3, "critic_lr": 3e-3, "alpha": 0.1, "lam": 0.01}
ROUNDS, LOCAL_STEPS = 10, 100


def best_action_is_a_half(rng):
    """One-step episodes, reward 1 - |a - 0.5|^2, actions drawn uniformly."""
    actions = rng.uniform(-1, 1, (300, 2)).astype(np.float32)
    rewards = (1.0 - np.square(actions - 0.5).sum(axis=1)).astype(np.float32)
    return from_episodes(
        Episode(np.zeros((2, 3), np.float32), a[None], r[None], terminated=True) for a, r in zip(actions, rewards)
    )


def reward(action):
    return 1.0 - float(np.square(np.asarray(action) - 0.5).sum())


def simulated(files):
    federation = Federation.build([ClientSpec(str(path), name=name) for name, path in files.items()])
    run = RunConfig(rounds=ROUNDS, local_steps=LOCAL_STEPS)
    engine = SimulatedEngine(Config(None, (), configure("fova", **SETTINGS), "fova", run), federation)
    engine.prepare(None)
    state = engine.start()
    for _ in range(ROUNDS):
        state, _ = engine.round(state)
    return np.asarray(state.broadcast.actor(np.zeros((1, 3), np.float32)).mode())[0]


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    for name in list(place.running):
        place.kill(name)


def test_a_federation_survives_the_loss_of_a_node_and_of_the_server(place):
    rng = np.random.default_rng(0)
    files = {name: place.folder / f"{name}.npz" for name in NAMES}
    for path in files.values():
        save_npz(path, best_action_is_a_half(rng))
    make(place.folder / "certificates", ["127.0.0.1"], NAMES)
    make(place.folder / "certificates", [], ["stranger"])
    (place.folder / "certificates/server/clients/stranger.pub").unlink()  # its key is never registered
    port = free_port()
    address = f"127.0.0.1:{port}"
    run = RunDirectory(place.folder / "runs" / "wards")

    def client(name):
        place.start(
            name, "client", "--server", address, "--data", files[name], "--certificates", f"certificates/{name}"
        )

    flags = [f"--{name.replace('_', '-')}" for name in SETTINGS]
    values = [value if isinstance(value, tuple) else (value,) for value in SETTINGS.values()]
    place.start(
        *("server", "server", "--host", "127.0.0.1", "--port", port, "--name", "wards", "--plain"),
        *("--rounds", ROUNDS, "--local-steps", LOCAL_STEPS, "--observation", 3, "--action", 2),
        *("--min-clients", 3, "--deadline", 900),
        *(word for flag, several in zip(flags, values) for word in (flag, *several)),
    )

    # --- Strangers ---
    place.wait("server", lambda: "waiting for clients: 0 of 3" in place.said("server"))
    place.start(
        *("stranger", "client", "--server", address, "--data", files["east"], "--name", "stranger"),
        *("--certificates", "certificates/stranger"),
    )
    place.start("plain", "client", "--server", address, "--data", files["east"], "--name", "plain", "--insecure")
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(b"GET /docs HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" not in plain.recv(1000), "plain text is answered"
    place.wait("refusal", lambda: "does not know this client's key" in place.said("stranger"))
    place.wait("failure of plain text", lambda: "Trying again" in place.said("plain"))
    place.kill("stranger")
    place.kill("plain")

    # --- Everybody trains ---
    for name in NAMES:
        client(name)
    place.wait("round with all", lambda: any(len(entry["clients"]) == 4 for entry in run.metrics()[1:]))

    # --- A node is lost, and comes back ---
    place.kill("west")
    lost = len(run.metrics())
    place.wait("round without west", lambda: any("west" not in entry["clients"] for entry in run.metrics()[lost:]))
    client("west")
    back = len(run.metrics())
    place.wait("return of west", lambda: any("west" in entry["clients"] for entry in run.metrics()[back:]))

    # --- The server is lost, and comes back ---
    place.kill("server")
    before = run.metrics()
    place.start("server", "server", "--resume", run.path, "--plain")
    place.wait("end", run.is_complete)
    assert place.running.pop("server").wait(PATIENCE) == 0
    entries = run.metrics()
    assert [entry["round"] for entry in entries] == list(range(ROUNDS + 1)), "no round is lost or counted twice"
    assert entries[: len(before) - 1] == before[: len(before) - 1]
    assert all(set(entry["clients"]) <= set(NAMES) for entry in entries[1:]), "no stranger ever counted"
    for name in NAMES:
        assert place.stop(name) == 0

    ours, simulations = load_policy(run.path)(np.zeros(3)), simulated(files)
    assert reward(simulations) > 0.9, "the simulation itself learns"
    assert reward(ours) > reward(simulations) - 0.05
