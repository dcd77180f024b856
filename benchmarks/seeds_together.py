"""Would `fova compare` be faster if it trained several seeds at once instead of one run per core?

    taskset -c 0 .venv/bin/python benchmarks/seeds_together.py

Times a round of three seeds of a four-client federation, first as three rounds of four clients, then as one round
of twelve: what one compiled program over seeds and clients would do. In seconds of the processor, on one core:
the runs of a comparison share the cores already. Made-up rows: the arithmetic does not care.
"""

import time

import numpy as np

from fova.algorithms import configure
from fova.data.transitions import Episode, Transitions, from_episodes
from fova.federation.engine import RoundSettings
from fova.federation.simulation import Simulation
from fova.machine import runtime
from fova.spaces import Space

SPACE, CLIENTS, SEEDS, REPEATS = Space.unit(11, 3), 4, 3, 3
SETTINGS = [("fed-td3bc", (128, 128), 128, 40), ("fova", (128, 128), 128, 10)]


def made_up_rows(rows: int = 5000) -> Transitions:
    rng = np.random.default_rng(0)
    return from_episodes(
        [
            Episode(
                rng.normal(size=(rows + 1, SPACE.observation)).astype(np.float32),
                rng.uniform(-1, 1, size=(rows, SPACE.action)).astype(np.float32),
                rng.normal(size=rows).astype(np.float32),
                terminated=False,
            )
        ]
    )


def seconds_of_a_round(name: str, hidden: tuple[int, ...], batch: int, steps: int, clients: int) -> float:
    """The quickest of several rounds, the first one, which compiles, left out."""
    data = made_up_rows()
    algorithm = configure(name, hidden=hidden, batch_size=batch)
    federation = {f"client-{i}": data for i in range(clients)}
    simulation = Simulation(algorithm, federation, SPACE, RoundSettings(local_steps=steps, together=False))
    state, taken = simulation.start(), []
    for _ in range(REPEATS + 1):
        began = time.process_time()
        state, _ = simulation.round(state)
        taken.append(time.process_time() - began)
    return min(taken[1:])


def main() -> None:
    runtime.prepare()
    print("| algorithm | networks, batch | one after the other | together | speed-up |\n|---|---|---:|---:|---:|")
    for name, hidden, batch, steps in SETTINGS:
        alone = SEEDS * seconds_of_a_round(name, hidden, batch, steps, CLIENTS)
        together = seconds_of_a_round(name, hidden, batch, steps, SEEDS * CLIENTS)
        widths = f"{len(hidden)}×{hidden[0]}, {batch}"
        per_step = [1000 * taken / steps for taken in (alone, together)]
        print(
            f"| {name} | {widths} | {per_step[0]:.1f} ms | {per_step[1]:.1f} ms | {alone / together:.2f}× |",
            flush=True,
        )


if __name__ == "__main__":
    main()
