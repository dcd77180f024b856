"""What a growing federation costs: time per client-step and peak memory, each size in a process of its own.

python benchmarks/growth.py CLIENTS ROWS WIDTH STEPS COHORT      one size; prints a line of JSON
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from turns import now, spread

# As many steps a round for every size: a round's own work (messages, copies) would else be shared unequally.
WIDTH, ROWS, STEPS, COHORT = 128, 1000, 10, 16
SIZES = (1, 4, 64, 1000)
MANY, MANY_WIDTH = 10_000, 32
FEW, ROUNDS = 64, 3  # larger federations are timed for one round


def measure(clients: int, rows: int, width: int, steps: int, cohort: int) -> dict[str, Any]:
    """Rounds of one federation. Its clients share one made-up dataset, so the memory that grows is fova's own."""
    import jax
    from step_speed import SPACE, made_up

    from fova import algorithms
    from fova.federation.engine import RoundSettings
    from fova.federation.simulation import Simulation
    from fova.machine import runtime

    runtime.prepare()
    data = made_up(rows, 0)
    simulation = Simulation(
        algorithms.configure("fova", hidden=(width, width), batch_size=128),
        {f"client-{i}": data for i in range(clients)},
        SPACE,
        RoundSettings(local_steps=steps, cohort=cohort),
    )
    state = simulation.start()
    carried = sum(leaf.nbytes for leaf in jax.tree.leaves(state.learners))
    milliseconds = []
    for _ in range(1 + (ROUNDS if clients <= FEW else 1)):
        began = now()
        state, _ = simulation.round(state)
        jax.block_until_ready(state.broadcast)
        milliseconds.append(1e3 * (now() - began) / (clients * steps))
    return {
        "clients": clients,
        "rows_each": rows,
        "width": width,
        "steps_a_round": steps,
        "cohort": simulation.cohort,
        "milliseconds_per_client_step": spread(milliseconds[1:]),
        "peak_megabytes": round(runtime.peak_memory_mb()),
        "megabytes_carried_between_rounds": round(carried / 1e6, 1),
    }


def growth() -> list[dict[str, Any]]:
    """All sizes up to a thousand alike, and very many clients with small networks and one step."""
    sizes = [(clients, ROWS, WIDTH, STEPS, COHORT) for clients in SIZES]
    return [_in_a_process(*size) for size in [*sizes, (MANY, ROWS, MANY_WIDTH, 1, 64)]]


def _in_a_process(*size: int) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__)), *map(str, size)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    report: dict[str, Any] = json.loads(answer.splitlines()[-1])
    print(f"  {size[0]} clients: {report['milliseconds_per_client_step']['median']} ms per client-step", flush=True)
    return report


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:]))))
