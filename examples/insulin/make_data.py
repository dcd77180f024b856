"""Write the records of four clinics as CSV files, one row per quarter of an hour. All patients are simulated.

python examples/insulin/make_data.py [FOLDER] [--days 50] [--seed 0]
"""

import argparse
import csv
import itertools
from collections.abc import Iterator
from pathlib import Path

from fova.commands.insulin_demo import CLINICS, Clinic
from fova.data.transitions import Episode
from fova.tasks import registry
from fova.tasks.glucose.model import patients
from fova.tasks.glucose.table import COLUMNS

# What `fova train --columns` is told about the files.
MAPPING = {
    "episode": "day",
    "time": "quarter_hour",
    "observations": list(COLUMNS),
    "action": "dose",
    "reward": "reward",
    "terminal": "ended",
}


def records(clinic: Clinic, days: int, seed: int) -> Iterator[Episode]:
    """The first days of a clinic."""
    generate = registry.get("glucose").generate
    assert generate is not None
    return itertools.islice(generate(clinic.quality, 0, seed), days)


def write(clinic: Clinic, file: Path, days: int, seed: int) -> None:
    """Write a clinic's records in the units of the task: doses in hundredths of the patient's daily insulin."""
    names = patients(clinic.group).names
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(["patient", "day", "quarter_hour", *COLUMNS, "dose", "reward", "ended"])
        for number, day in enumerate(records(clinic, days, seed)):
            for step, dose in enumerate(day.actions[:, 0]):
                ended = int(day.terminated and step == len(day) - 1)
                figures = (*day.observations[step], dose, day.rewards[step])
                rows.writerow([names[number % len(names)], number, step, *map(str, figures), ended])


def write_all(folder: Path, days: int, seed: int) -> dict[str, Path]:
    """One file per clinic, by the clinic's name."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {clinic.name: folder / f"{clinic.name}.csv" for clinic in CLINICS}
    for clinic in CLINICS:
        write(clinic, files[clinic.name], days, seed)
    return files


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", type=Path, default=Path("insulin-data"), help="where the files go")
    options.add_argument("--days", type=int, default=50, help="days of each clinic")
    options.add_argument("--seed", type=int, default=0, help="seed of the simulation")
    given = options.parse_args()
    for name, path in write_all(given.folder, given.days, given.seed).items():
        print(f"{path}: {given.days} days of clinic {name}")
