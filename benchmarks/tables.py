"""Loading a large table: rows per second of CPU time, and memory as a multiple of the table's size.

    python benchmarks/tables.py [ROWS]

The table has ten columns of measurements, one action, a reward, an episode and a step. Each measurement is made in
a process of its own. Memory is the peak of that process without what it takes before it loads. Linux only.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

ROWS, STEPS = 5_000_000, 100
COLUMNS = ["episode=stay", "time=step", "observations=lab_*", "action=dose", "reward=score", "terminal=died"]

LOAD = """
import re, sys, time
from pathlib import Path
from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader
import pyarrow.parquet, pyarrow.csv, pyarrow.compute
memory = lambda name: 1024 * int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before, began = memory("VmRSS"), time.process_time()
if len(sys.argv) > 2:
    agreed, sources = TableReader(Columns.of(sys.argv[2:])).load({"table": Path(sys.argv[1])})
    print(time.process_time() - began, memory("VmHWM") - before, len(sources["table"].transitions))
"""


def write(path: Path, rows: int, kind: type) -> int:
    """A table of so many rows. Returns its size in memory, in bytes."""
    rng = np.random.default_rng(0)
    step = np.arange(rows) % STEPS
    columns = {f"lab_{i}": rng.normal(size=rows).astype(kind) for i in range(10)}
    columns |= {"dose": rng.uniform(0, 1, rows).astype(kind), "score": rng.normal(size=rows).astype(kind)}
    columns |= {"stay": np.arange(rows) // STEPS, "step": step, "died": step == STEPS - 1}
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, path)
    return table.nbytes


def measured(path: Path, size: int, rows: int) -> dict[str, float]:
    words = subprocess.run(
        [sys.executable, "-c", LOAD, str(path), *COLUMNS], check=True, capture_output=True, text=True
    ).stdout.split()
    seconds, memory = float(words[0]), float(words[1])
    return {
        "rows per second of CPU time": round(rows / seconds),
        "peak memory / size of the table": round(memory / size, 2),
        "size of the table, MB": round(size / 1e6),
    }


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as folder:
        for kind in (np.float32, np.float64):
            path = Path(folder) / "rows.parquet"
            size = write(path, rows, kind)
            print(json.dumps({"Parquet": np.dtype(kind).name, "rows": rows, **measured(path, size, rows)}))


if __name__ == "__main__":
    main()
