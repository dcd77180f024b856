"""FOVA and cloning on the hospitals' CSV files, with the exact survival of every policy.

python examples/sepsis/compare.py --seeds 3 --results results/sepsis.json

Training sees the files only, no simulator. Every seed has its own records and networks. Records and runs go to
runs/sepsis. This compares algorithms on a benchmark; it says nothing about medical practice.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from make_data import HOSPITALS, MAPPING, write_all

import fova
from fova.machine import runtime
from fova.reports.page import write_report
from fova.tasks.sepsis.hospitals import hospital
from fova.tasks.sepsis.values import exact_value, optimal_policy, policy_table

# label -> algorithm, its preset, and settings of the run
TRAINED = {
    "cloning": ("fed-bc", None, {}),
    "weighted cloning": ("fed-bc", None, {"aggregation": "returns"}),
    "weighted cloning, good episodes": ("fed-bc", None, {"aggregation": "returns", "sampling": "returns"}),
    "FOVA": ("fova", None, {}),
    "FOVA, good episodes": ("fova", "good-episodes", {}),
}
SETTINGS = {"hidden": (64, 64), "batch_size": 128}


def survival(folder: Path, seed: int, stays: int, rounds: int) -> list[dict]:
    """The exact survival under every trained policy."""
    files = {name: str(path) for name, path in write_all(folder / f"data-{seed}", stays, seed).items()}
    found = []
    for label, (algorithm, preset, changes) in TRAINED.items():
        run = {"rounds": rounds, "seed": seed, **changes}
        directory = folder / f"{label.replace(',', '').replace(' ', '-')}-{seed}"
        policy = fova.train(
            None, files, None, algorithm, preset, directory, columns=MAPPING, **run, **SETTINGS
        ).policy
        assert policy is not None
        exact = {kind: exact_value(policy_table(policy, greedy=kind == "best")) for kind in ("best", "sampled")}
        found.append({"seed": seed, "policy": label} | exact)
    return found


def table(found: list[dict]) -> str:
    """Markdown: exact survival; of trained policies the mean over seeds, in brackets the lowest and the highest."""
    lines = ["| policy | best actions | sampled actions |", "|---|---:|---:|"]
    lines.append(f"| (optimal) | {exact_value(optimal_policy()):.4f} | |")
    lines += [f"| hospital {n} ({q}) | | {exact_value(hospital(q)):.4f} |" for n, q in HOSPITALS.items()]
    for label in TRAINED:
        rows = [row for row in found if row["policy"] == label]
        lines.append(f"| {label} | {cell([r['best'] for r in rows])} | {cell([r['sampled'] for r in rows])} |")
    return "\n".join(lines)


def cell(values: list[float]) -> str:
    return f"{np.mean(values):.4f} [{min(values):.4f}, {max(values):.4f}]"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0, 1, ... are run")
    parser.add_argument("--stays", type=int, default=500, help="stays of each hospital")
    parser.add_argument("--rounds", type=int, default=30, help="rounds of 100 local steps")
    parser.add_argument("--folder", type=Path, default=Path("runs/sepsis"), help="where records and runs go")
    parser.add_argument("--results", type=Path, help="write the figures to this JSON file")
    given = parser.parse_args()
    runtime.prepare()
    all_found: list[dict] = []
    for number in range(given.seeds):
        all_found += survival(given.folder, number, given.stays, given.rounds)
        print(f"seed {number} done", flush=True)
    print(table(all_found))
    if given.results:
        head = {"stays": given.stays, "rounds": given.rounds, "seeds": given.seeds, "settings": SETTINGS}
        rows = [{k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()} for row in all_found]
        lines = ",\n".join(json.dumps(row) for row in rows)
        text = f'{{"example": "sepsis", "setting": {json.dumps(head)},\n"rows": [\n{lines}\n]}}\n'
        given.results.write_text(text, encoding="utf-8")
    print("report", write_report([given.folder], given.folder / "report.html", pictures={}))
