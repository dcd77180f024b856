"""The tables of ICU-Sepsis, read from the installed package without importing it."""

import functools
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError
from fova.tasks.sepsis import ACTIONS, FEATURES

Floats = NDArray[np.float64]

PATIENT_STATES = 713  # states in which a patient is treated; three more stand for the end
DIED, SURVIVED = 713, 714
STATES = 716
FILE = Path("envs", "assets", "dynamics.npz")
SHAPES = {
    "tx_mat": (STATES, len(ACTIONS), STATES),
    "d_0": (STATES,),
    "expert_policy": (STATES, len(ACTIONS)),
    "state_cluster_centers": (STATES, FEATURES),
}
MISSING = "The sepsis task needs the package icu-sepsis. Install it with: pip install 'fova[sepsis]'"


@dataclass(frozen=True)
class Tables:
    """A finite Markov decision process. States 0 to 712 are patients; an episode ends with survival or death."""

    transitions: Floats  # [713, 25, 716] probability of each next state
    starts: Floats  # [713] probability of each first state
    clinicians: Floats  # [713, 25] the estimated behaviour of clinicians
    features: Floats  # [716, 47] what is observed; zeros at the end

    @property
    def survival(self) -> Floats:
        """The expected reward, [713, 25]: the probability that the patient survives in this step."""
        return self.transitions[:, :, SURVIVED]


def installed_version() -> str:
    """The version of icu-sepsis. A FovaError says how to install it if it is missing."""
    try:
        return importlib.metadata.version("icu-sepsis")
    except importlib.metadata.PackageNotFoundError as error:
        raise FovaError(MISSING) from error


@functools.cache
def tables() -> Tables:
    """The tables of the installed package. They take about 100 megabytes and are read once."""
    found = importlib.util.find_spec("icu_sepsis")  # finds the folder; importing it would load gym
    if found is None or not found.submodule_search_locations:
        raise FovaError(MISSING)
    return read_tables(Path(found.submodule_search_locations[0]) / FILE)


def read_tables(file: Path) -> Tables:
    """The tables in a file of ICU-Sepsis. Shapes and probabilities are checked."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            read = {name: arrays[name] for name in SHAPES}
    except (OSError, ValueError, KeyError) as error:
        raise FovaError(
            f"{file} does not hold the tables of ICU-Sepsis 2.0: {error}. Install it again: "
            "pip install --force-reinstall 'fova[sepsis]'"
        ) from error
    shapes = {name: values.shape for name, values in read.items()}
    if shapes != SHAPES:
        raise FovaError(f"The tables of ICU-Sepsis have the shapes {shapes}, but fova knows version 2.0: {SHAPES}.")
    transitions = read["tx_mat"][:PATIENT_STATES]
    for name, rows in (("tx_mat", transitions), ("expert_policy", read["expert_policy"][:PATIENT_STATES])):
        if not (np.allclose(rows.sum(axis=-1), 1.0) and (rows >= 0.0).all()):
            raise FovaError(f"{name} in {file} does not hold probabilities: its rows must add up to 1.")
    return Tables(
        transitions=transitions,
        starts=read["d_0"][:PATIENT_STATES],
        clinicians=read["expert_policy"][:PATIENT_STATES],
        features=read["state_cluster_centers"],
    )
