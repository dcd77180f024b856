"""One federation in one process and in several: time of a round, memory per process, the exchange of a round.

python benchmarks/processes.py                                       10,000 clients of 1,000 rows, 2x128 networks
python benchmarks/processes.py --clients 200 --rows 100 --steps 2    a smaller one

All processes run on this machine and share its processors, so two are not faster than one: what is measured is what
parting costs. The clients share one made-up dataset, so the memory that grows is fova's own. Called by `bench.py`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from turns import now, spread

ROUNDS = 1  # timed, after one that compiles
SIZES = {"clients": 10_000, "rows": 1000, "width": 128, "steps": 1, "cohort": 64}


def measure(arguments: argparse.Namespace, index: int, count: int, port: int) -> dict[str, Any]:
    """The rounds of one of `count` processes."""
    import jax
    import numpy as np
    from step_speed import SPACE, made_up

    from fova import algorithms
    from fova.federation.engine import RoundSettings
    from fova.federation.gathered import Gathered
    from fova.federation.shares import Share, deal_out
    from fova.federation.simulation import Simulation
    from fova.machine import cluster, runtime

    merging: list[float] = []

    class Timed(Share):
        """A share that times the exchange alone, when all processes have come to it."""

        def merged(self, gathered: Gathered, like: Any) -> Gathered:
            self.processes.gather("all are here")
            began = now()
            merged = super().merged(gathered, like)
            merging.append(now() - began)
            return merged

    share = None
    names = [f"client-{i}" for i in range(arguments.clients)]
    if count > 1:
        met = cluster.join(cluster.Place(index, count, f"127.0.0.1:{port}"))
        share = Timed(names, deal_out(len(names), arguments.cohort, count), met)
    else:
        runtime.prepare()
    simulation = Simulation(
        algorithms.configure("fova", hidden=(arguments.width, arguments.width), batch_size=128),
        dict.fromkeys(names if share is None else share.own_names, made_up(arguments.rows, 0)),
        SPACE,
        RoundSettings(local_steps=arguments.steps, cohort=arguments.cohort),
        share=share,
    )
    state = simulation.start()
    seconds = []
    for _ in range(1 + ROUNDS):
        began = now()
        state, _ = simulation.round(state)
        jax.block_until_ready(state.broadcast)
        seconds.append(now() - began)
    leaves = [np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(state.broadcast)]
    np.save(arguments.folder / f"server-{count}.npy", np.concatenate(leaves)) if index == 0 else None
    if share is not None:
        met.leave()
    return {
        "processes": count,
        "clients_here": len(simulation.names),
        "seconds_per_round": spread(seconds[1:]),
        "exchange_seconds_per_round": spread(merging[1:]) if merging else None,
        "peak_megabytes": round(runtime.peak_memory_mb()),
        "megabytes_of_a_mean": round(sum(leaf.nbytes for leaf in leaves) / 1e6, 3),
    }


def in_processes(**sizes: int) -> dict[str, Any]:
    """One process and two, at full size unless other sizes are given."""
    with tempfile.TemporaryDirectory() as folder:
        return compare(argparse.Namespace(**SIZES | sizes, processes=[1, 2], folder=Path(folder)))


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """All numbers of processes, and how far their servers are apart at the end."""
    import numpy as np

    reports = [report for count in arguments.processes for report in _in_processes(arguments, count)]
    servers = [np.load(arguments.folder / f"server-{count}.npy") for count in arguments.processes]
    return {
        "clients": arguments.clients,
        "rows_each": arguments.rows,
        "width": arguments.width,
        "steps_a_round": arguments.steps,
        "cohort": arguments.cohort,
        "load_before": round(os.getloadavg()[0], 1),
        "reports": reports,
        "largest_difference_of_a_parameter": float(max(np.abs(server - servers[0]).max() for server in servers)),
    }


def _in_processes(arguments: argparse.Namespace, count: int) -> list[dict[str, Any]]:
    from fova.machine import runtime
    from fova.machine.cluster import free_port

    port = str(free_port())
    environment = {**os.environ, "NPROC": str(max(1, runtime.processors() // count))}
    settings = [f"--{name}={getattr(arguments, name)}" for name in ("clients", "rows", "width", "steps", "cohort")]
    command = [sys.executable, str(Path(__file__)), *settings, f"--folder={arguments.folder}"]
    started = [
        subprocess.Popen([*command, "--one", str(i), str(count), port], stdout=subprocess.PIPE, env=environment)
        for i in range(count)
    ]
    answers = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit(f"A process of {count} has failed.")
    reports = [json.loads(answer.splitlines()[-1]) for answer in answers]
    for report in reports:
        print(f"  {json.dumps(report)}", flush=True)
    return reports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one", type=int, nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments, *arguments.one)))
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments.folder = Path(folder)
        print(json.dumps(compare(arguments), indent=2))


if __name__ == "__main__":
    main()
