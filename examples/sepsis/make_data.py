"""Write the stays of four hospitals as CSV files, one row per decision. Needs: pip install 'fova[sepsis,tables]'

python examples/sepsis/make_data.py [FOLDER] [--stays 500] [--seed 0]
"""

import argparse
import csv
import itertools
from pathlib import Path

from fova.tasks import registry
from fova.tasks.sepsis import ACTIONS, FEATURES

HOSPITALS = {"north": "expert", "south": "fair", "east": "random", "west": "poor"}
MEASUREMENTS = [f"m{number:02d}" for number in range(FEATURES)]
# What `fova train --columns` is told about the files. Every stay is recorded until it ends.
MAPPING = {
    "episode": "stay",
    "time": "step",
    "observations": MEASUREMENTS,
    "action": "treatment",
    "reward": "survived",
    "terminal": "last",
    "categories": {"treatment": list(ACTIONS)},
}


def write(quality: str, file: Path, stays: int, seed: int) -> None:
    """The first stays in a hospital."""
    generate = registry.get("sepsis").generate
    assert generate is not None
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(["stay", "step", *MEASUREMENTS, "treatment", "survived"])
        for number, stay in enumerate(itertools.islice(generate(quality, 0, seed), stays)):
            for step, code in enumerate(stay.actions[:, 0]):
                treatment = ACTIONS[int(code)]
                rows.writerow([number, step, *map(str, stay.observations[step]), treatment, stay.rewards[step]])


def write_all(folder: Path, stays: int, seed: int) -> dict[str, Path]:
    """One file per hospital, by the hospital's name."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.csv" for name in HOSPITALS}
    for name, quality in HOSPITALS.items():
        write(quality, files[name], stays, seed)
    return files


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", type=Path, default=Path("sepsis-data"), help="where the files go")
    options.add_argument("--stays", type=int, default=500, help="stays of each hospital")
    options.add_argument("--seed", type=int, default=0, help="seed of the simulation")
    given = options.parse_args()
    for name, path in write_all(given.folder, given.stays, given.seed).items():
        print(f"{path}: {given.stays} stays in hospital {name} ({HOSPITALS[name]})")
