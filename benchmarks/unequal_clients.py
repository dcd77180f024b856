"""Clients of 100 and of 1,000,000 rows in one federation: what it costs to deal the rows out unequally.

    python benchmarks/unequal_clients.py [ROWS]

One client has 1,000,000 rows and nine have 100 each. The same rows are also dealt out equally to ten clients. Both
federations are trained for the same steps by Fed-BC, each in a process of its own. The ratio of the two is 1 if a
federation costs what its rows cost. If every client were padded to the largest, the memory would be tenfold. Linux
only.
"""

import json
import subprocess
import sys

LARGE, SMALL, CLIENTS = 1_000_000, 100, 10

TRAIN = """
import json, re, sys, tempfile, time
from pathlib import Path
import numpy as np
import fova
from fova.data.cutting import lay_out
from fova.federation.clients import Federation
from fova.machine import runtime

runtime.prepare()
memory = lambda name: 1024 * int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])


def client(rows, seed):
    rng = np.random.default_rng(seed)
    ended = np.arange(rows) % 100 == 99
    ended[-1] = True
    numbers = rng.normal(size=(rows, 10)).astype(np.float32)
    actions = rng.uniform(-1, 1, (rows, 1)).astype(np.float32)
    return lay_out(numbers, actions, rng.normal(size=rows).astype(np.float32), ended, ended, None)


clients = {f"client-{i}": client(rows, i) for i, rows in enumerate(map(int, sys.argv[1:]))}
size = sum(getattr(data, field).nbytes for data in clients.values() for field in vars(data))
before, rounds = memory("VmRSS"), []
with tempfile.TemporaryDirectory() as folder:
    fova.train(
        clients=Federation.of(clients), algorithm="fed-bc", directory=f"{folder}/run", progress=False, rounds=11,
        local_steps=20, hidden=(32, 32), batch_size=64, on_round=lambda report: rounds.append(time.process_time()),
    )
print(json.dumps({"memory": memory("VmHWM") - before, "rounds": rounds[-1] - rounds[0], "size": size}))
"""


def measured(rows: list[int]) -> dict[str, float]:
    """What training clients with so many rows takes: peak memory beyond the rows, and CPU time of ten rounds."""
    command = [sys.executable, "-c", TRAIN, *map(str, rows)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    large = int(sys.argv[1]) if len(sys.argv) > 1 else LARGE
    unequal = [large, *[SMALL] * (CLIENTS - 1)]
    equal = [sum(unequal) // CLIENTS] * CLIENTS
    one, other = measured(unequal), measured(equal)
    print(
        json.dumps(
            {
                "rows": f"1 client of {large:,} and {CLIENTS - 1} of {SMALL}, against {CLIENTS} of {equal[0]:,}",
                "peak memory, unequal / equal": round(one["memory"] / other["memory"], 2),
                "CPU time of ten rounds, unequal / equal": round(one["rounds"] / other["rounds"], 2),
                "peak memory / size of the rows": round(one["memory"] / one["size"], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
