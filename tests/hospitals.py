"""Tables as four hospitals might log them: patients, hours, measurements, a dose, a score."""

import numpy as np
import pandas

COLUMNS = (
    "episode=patient_id",
    "time=hour",
    "observations=hr,map,lactate,age",
    "action=dose",
    "reward=score",
    "terminal=died",
)
BOUNDS = ("--action-low", "0", "--action-high", "2")


def hospital(seed: int, patients: int = 12, hours: int = 8) -> pandas.DataFrame:
    """The rows of one hospital in order. The dose should follow the lactate; hospitals differ in how well it "
    "does."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(patients):
        lactate, age, stay = rng.uniform(1, 4), rng.integers(30, 90), hours - patient % 3
        for hour in range(stay):
            dose = float(np.clip(lactate / 2 + rng.normal(0, 0.1 + 0.2 * seed), 0.01, 2))
            lactate = float(np.clip(lactate + rng.normal(0, 0.2) - 0.3 * dose + 0.2, 0.5, 6))
            last = hour == stay - 1
            rows.append(
                {
                    "patient_id": f"p{patient}",
                    "hour": hour,
                    "hr": float(rng.normal(80, 10)),
                    "map": float(rng.normal(70, 5)),
                    "lactate": lactate,
                    "age": int(age),
                    "dose": dose,
                    "score": -abs(dose - lactate / 2),
                    "died": int(last and patient % 4 == 0),
                }
            )
    return pandas.DataFrame(rows)


def write(folder, names=("north", "south", "east", "west")):
    """One CSV file per hospital."""
    for seed, name in enumerate(names):
        hospital(seed).to_csv(folder / f"{name}.csv", index=False)
    return [folder / f"{name}.csv" for name in names]
