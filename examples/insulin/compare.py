"""FOVA and cloning on the clinics' CSV files: what every clinic's patients would get, over several seeds.

python examples/insulin/compare.py --seeds 3 --results results/insulin.json

Every seed has its own records, networks and days of evaluation. Records and runs go to runs/insulin.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from make_data import MAPPING, records, write_all

import fova
from fova.commands.insulin_demo import CLINICS, DAYS, OWN, SETTINGS, Clinic
from fova.evaluation.rollouts import first_seed, play
from fova.machine import runtime
from fova.reports.page import write_report
from fova.tasks import registry
from fova.tasks.glucose.table import clinical_figures

# label -> algorithm, its preset, and settings of the run. Cloning has the same client weights as FOVA.
TRAINED = {
    "cloning": ("fed-bc", None, {"aggregation": "returns"}),
    "cloning, good episodes": ("fed-bc", None, {"aggregation": "returns", "sampling": "returns"}),
    "FOVA": ("fova", None, {}),
    "FOVA, good episodes": ("fova", "good-episodes", {}),
}
SHOWN = ("return", "time in range", "below 70", "above 180", "ended early")


def outcomes(folder: Path, seed: int, days: int, rounds: int) -> list[dict]:
    """One record per clinic and way to treat its patients."""
    files = {name: str(path) for name, path in write_all(folder / f"data-{seed}", days, seed).items()}
    policies = {}
    for label, (algorithm, preset, changes) in TRAINED.items():
        run = {"rounds": rounds, "seed": seed, "evaluate_every": 0, **changes}
        directory = folder / f"{label.replace(',', '').replace(' ', '-')}-{seed}"
        result = fova.train(
            "glucose", files, None, algorithm, preset, directory, columns=MAPPING, **run, **SETTINGS
        )
        policies[label] = result.policy
    found = []
    for clinic in CLINICS:
        played = play(policies, registry.get(clinic.task), DAYS, first_seed(seed))
        figures = {name: {"return": of.mean_return} | dict(of.measures) for name, of in played.items()}
        for treated_by, values in ({OWN: own(clinic, days, seed)} | figures).items():
            found.append({"seed": seed, "clinic": clinic.name, "treated by": treated_by} | values)
    return found


def own(clinic: Clinic, days: int, seed: int) -> dict[str, float]:
    """What the clinicians of a clinic achieved by its records."""
    made = list(records(clinic, days, seed))
    earned = float(np.mean([day.rewards.sum() for day in made]))
    return {"return": earned} | clinical_figures([day.observations for day in made])


def table(found: list[dict]) -> str:
    """Means over seeds as Markdown; in brackets the lowest and the highest seed."""
    lines = [f"| clinic | treated by | {' | '.join(SHOWN)} |", "|---|---|" + "---:|" * len(SHOWN)]
    for clinic in CLINICS:
        for treated_by in (OWN, *TRAINED):
            rows = [r for r in found if (r["clinic"], r["treated by"]) == (clinic.name, treated_by)]
            cells = [cell(name, [row[name] for row in rows]) for name in SHOWN]
            who = f"{clinic.name}: {clinic.skill}, {clinic.patients}" if treated_by == OWN else ""
            lines.append(f"| {who} | {treated_by} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(name: str, values: list[float]) -> str:
    if name == "return":
        return f"{np.mean(values):.1f} [{min(values):.1f}, {max(values):.1f}]"
    shares = 100.0 * np.array(values)
    return f"{shares.mean():.1f} % [{shares.min():.1f}, {shares.max():.1f}]"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0, 1, ... are run")
    parser.add_argument("--days", type=int, default=50, help="days of each clinic's records")
    parser.add_argument("--rounds", type=int, default=30, help="rounds of 100 local steps")
    parser.add_argument("--folder", type=Path, default=Path("runs/insulin"), help="where records and runs go")
    parser.add_argument("--results", type=Path, help="write the figures to this JSON file")
    given = parser.parse_args()
    runtime.prepare()
    all_found: list[dict] = []
    for number in range(given.seeds):
        all_found += outcomes(given.folder, number, given.days, given.rounds)
        print(f"seed {number} done", flush=True)
    print(table(all_found))
    if given.results:
        head = {"days": given.days, "rounds": given.rounds, "seeds": given.seeds, "settings": SETTINGS}
        rows = [{k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in all_found]
        lines = ",\n".join(json.dumps(row) for row in rows)
        given.results.write_text(
            f'{{"example": "insulin", "setting": {json.dumps(head)},\n"rows": [\n{lines}\n]}}\n'
        )
    print("report", write_report([given.folder], given.folder / "report.html", pictures={}))
