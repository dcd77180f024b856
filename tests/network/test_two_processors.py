"""On two processors, compiled as for users, a run over the network is the simulation's up to rounding.

All tests run with two devices, but compile quickly, without optimisation. Here a process compiles as users do.
Rounding grows with the steps: with 256 units the difference was 3e-7 after one round of 12 steps and 1e-5 after
three. So the parameters of a long run may differ by much more, although the same is computed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROUNDS, STEPS, CLIENTS = 4, 20, 3


def both_runs(folder):
    """The largest difference of a parameter after each round."""
    import jax
    from in_process import InProcessGrid
    from test_rounds import Notes, simulated

    from fova.algorithms import configure
    from fova.machine import runtime
    from fova.network import server
    from fova.network.engine import FlowerEngine
    from fova.network.server_config import ServerConfig, create_run
    from fova.run.config import Config, RunConfig
    from tiny import make_transitions, save_npz

    runtime.prepare()
    files, arrived = {f"client-{i}": folder / f"client-{i}.npz" for i in range(CLIENTS)}, []
    for i, path in enumerate(files.values()):
        save_npz(path, make_transitions(i, episodes=20 + i))

    def config(rounds):
        algorithm = configure("fova", hidden=(64, 64), batch_size=64, actor_lr=1e-3)
        return Config(None, (), algorithm, "fova", RunConfig(rounds=rounds, local_steps=STEPS, seed=3))

    def flat(state):
        return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(state.broadcast)])

    class Watched(FlowerEngine):
        def round(self, state):
            state, report = super().round(state)
            arrived.append(flat(state))
            return state, report

    server.FlowerEngine = Watched
    nodes = {
        100 + i: {"name": name, "data": str(path), "state": str(folder / "state" / name)}
        for i, (name, path) in enumerate(files.items())
    }
    network = ServerConfig(min_clients=CLIENTS, observation=3, action=2)
    run = create_run(folder / "run", config(ROUNDS), network)
    server.train(InProcessGrid(nodes), run, Notes(), lambda seconds: None)
    expected = [flat(simulated(files, config(rounds))[0]) for rounds in range(1, ROUNDS + 1)]
    assert len(jax.devices()) == 2
    return [float(np.abs(one - other).max()) for one, other in zip(arrived, expected, strict=True)]


@pytest.mark.slow
def test_the_network_gives_the_simulations_parameters_on_two_processors(tmp_path):
    places = [Path(__file__).parent, Path(__file__).parents[1], *filter(None, [os.environ.get("PYTHONPATH")])]
    surroundings = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    surroundings |= {"NPROC": "2", "PYTHONPATH": os.pathsep.join(map(str, places))}
    command = [sys.executable, __file__, str(tmp_path)]
    answer = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    differences = json.loads(answer.stdout.splitlines()[-1])
    assert len(differences) == ROUNDS
    assert max(differences) < 1e-5, differences


if __name__ == "__main__":
    print(json.dumps(both_runs(Path(sys.argv[1]))))
