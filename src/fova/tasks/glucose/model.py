"""The UVA/Padova model of type 1 diabetes: glucose and insulin of many patients at once, minute by minute.

The model has 13 states (names in `STATES`). Its inputs are the meal in grams per minute and the insulin in units
per minute. The equations are those published for the 2008 simulator (Kovatchev et al., J. Diabetes Sci. Technol.
3, 2009; Dalla Man et al., IEEE Trans. Biomed. Eng. 54, 2007). Arrays have one column per patient. Only NumPy and
elementwise operations: a patient's numbers do not depend on who else is simulated.

This is a simulation for research on learning algorithms. It is not medical advice.
"""

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError

Floats = NDArray[np.float64]

STATES = (
    "stomach solid (mg)",
    "stomach liquid (mg)",
    "intestine (mg)",
    "plasma glucose (mg/kg)",
    "tissue glucose (mg/kg)",
    "plasma insulin (pmol/kg)",
    "insulin action on glucose use (pmol/L)",
    "insulin action on glucose production, first delay (pmol/L)",
    "insulin action on glucose production, second delay (pmol/L)",
    "liver insulin (pmol/kg)",
    "subcutaneous insulin, first compartment (pmol/kg)",
    "subcutaneous insulin, second compartment (pmol/kg)",
    "subcutaneous glucose (mg/kg)",
)
# [13, 1] True for the states that stop falling at 0.
NEVER_BELOW_ZERO = np.isin(np.arange(len(STATES)), (3, 4, 5, 9, 10, 11, 12))[:, None]
GROUPS = ("adult", "adolescent", "child")
FILE = Path(__file__).with_name("patients.csv")  # figures of simglucose; see patients.LICENSE.txt
PMOL_PER_UNIT = 6000.0
MINUTES_PER_DAY = 1440


@dataclass(frozen=True)
class Patients:
    """The figures of some patients, one column each."""

    names: tuple[str, ...]
    carb_ratio: Floats  # grams of carbohydrate that one unit of insulin covers
    correction_factor: Floats  # mg/dL by which one unit of insulin lowers glucose
    daily_insulin: Floats  # units
    start: Floats  # [13, patients] the state in the steady state with basal insulin
    figures: dict[str, Floats]  # the parameters of the equations, by their published names

    def __len__(self) -> int:
        return len(self.names)

    @property
    def basal(self) -> Floats:
        """The basal rate in units per minute: it keeps glucose at the steady state."""
        return self.figures["u2ss"] * self.figures["BW"] / PMOL_PER_UNIT

    def glucose(self, state: Floats) -> Floats:
        """Subcutaneous glucose in mg/dL of states [13, patients]."""
        return state[12] / self.figures["Vg"]

    def chosen(self, rows: NDArray[np.int64] | list[int]) -> "Patients":
        """The patients at these positions. A position may occur several times."""
        return Patients(
            names=tuple(self.names[row] for row in rows),
            carb_ratio=self.carb_ratio[rows],
            correction_factor=self.correction_factor[rows],
            daily_insulin=self.daily_insulin[rows],
            start=self.start[:, rows],
            figures={name: values[rows] for name, values in self.figures.items()},
        )


@functools.cache
def all_patients() -> Patients:
    """The thirty patients: ten adolescents, ten adults, ten children."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0] if name != "name"}
    return Patients(
        names=tuple(row["name"] for row in rows),
        carb_ratio=columns.pop("CR"),
        correction_factor=columns.pop("CF"),
        daily_insulin=columns.pop("TDI"),
        start=np.stack([columns.pop(f"x{i}") for i in range(1, 14)]),
        figures=columns,
    )


def patients(group: str | None = None) -> Patients:
    """The ten patients of an age group, or all thirty."""
    everybody = all_patients()
    if group is None:
        return everybody
    if group not in GROUPS:
        raise FovaError(f"The age group is {group!r}, but must be one of {', '.join(GROUPS)}.")
    return everybody.chosen([row for row, name in enumerate(everybody.names) if name.startswith(group)])


def derivatives(
    state: Floats,  # [13, patients]
    meal: Floats,  # [patients] grams per minute
    insulin: Floats,  # [patients] units per minute
    meal_size: Floats,  # [patients] mg: stomach content at the start of the meal, and all eaten in it so far
    figures: dict[str, Floats],
) -> Floats:
    """The change of each state per minute."""
    p = figures
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13 = state
    emptying = p["kmax"] * x1
    leaving_stomach = _gastric_rate(x1 + x2, meal_size, p) * x2
    absorbed = p["kabs"] * x3
    produced = np.maximum(p["kp1"] - p["kp2"] * x4 - p["kp3"] * x9, 0.0)
    excreted = np.maximum(p["ke1"] * (x4 - p["ke2"]), 0.0)
    to_tissue, from_tissue = p["k1"] * x4, p["k2"] * x5
    used = (p["Vm0"] + p["Vmx"] * x7) * x5 / (p["Km0"] + x5)
    concentration = x6 / p["Vi"]
    rates = np.empty_like(state)
    rates[0] = 1000.0 * meal - emptying
    rates[1] = emptying - leaving_stomach
    rates[2] = leaving_stomach - absorbed
    rates[3] = produced + p["f"] * absorbed / p["BW"] - p["Fsnc"] - excreted - to_tissue + from_tissue
    rates[4] = to_tissue - from_tissue - used
    rates[5] = p["m1"] * x10 + p["ka1"] * x11 + p["ka2"] * x12 - (p["m2"] + p["m4"]) * x6
    rates[6] = p["p2u"] * (concentration - p["Ib"] - x7)
    rates[7] = p["ki"] * (concentration - x8)
    rates[8] = p["ki"] * (x8 - x9)
    rates[9] = p["m2"] * x6 - (p["m1"] + p["m30"]) * x10
    rates[10] = PMOL_PER_UNIT * insulin / p["BW"] - (p["ka1"] + p["kd"]) * x11
    rates[11] = p["kd"] * x11 - p["ka2"] * x12
    rates[12] = p["ksc"] * (x4 - x13)
    rates[(state <= 0.0) & (rates < 0.0) & NEVER_BELOW_ZERO] = 0.0
    return rates


def _gastric_rate(content: Floats, meal_size: Floats, p: dict[str, Floats]) -> Floats:
    """How fast the stomach empties into the gut, per minute: fast when full or nearly empty, slow in between."""
    eaten = meal_size > 0.0
    size = np.where(eaten, meal_size, 1.0)
    full = np.tanh(2.5 / (size * (1.0 - p["b"])) * (content - p["b"] * size))
    empty = np.tanh(2.5 / (size * p["d"]) * (content - p["d"] * size))
    return np.where(eaten, p["kmin"] + (p["kmax"] - p["kmin"]) / 2.0 * (full - empty + 2.0), p["kmax"])


def minute(state: Floats, meal: Floats, insulin: Floats, meal_size: Floats, figures: dict[str, Floats]) -> Floats:
    """The state one minute later, by one step of the classical Runge-Kutta method of order 4."""
    first = derivatives(state, meal, insulin, meal_size, figures)
    second = derivatives(state + 0.5 * first, meal, insulin, meal_size, figures)
    third = derivatives(state + 0.5 * second, meal, insulin, meal_size, figures)
    fourth = derivatives(state + third, meal, insulin, meal_size, figures)
    after = state + (first + 2.0 * (second + third) + fourth) / 6.0
    return np.where(NEVER_BELOW_ZERO, np.maximum(after, 0.0), after)
