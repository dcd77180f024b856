"""The columns and limits of the insulin task, and the clinical figures that are computed from its observations.

This module imports no simulator.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

STEPS = 96  # decisions of a day, one every quarter of an hour
LARGEST_DOSE = 20.0  # hundredths of the patient's daily insulin in a quarter of an hour
COLUMNS = (
    "cgm",  # glucose by the sensor, mg/dL
    "change",  # since the reading before, mg/dL
    "change_before",  # between the two readings before, mg/dL
    "insulin_on_board",  # estimate, hundredths of the daily insulin
    "meal",  # grams of carbohydrate of a meal that starts now
    "time_sine",  # of the time of day
    "time_cosine",
)
SKILLS = ("experienced", "forgetful", "heavy-handed", "cautious", "random")  # of clinicians, best first on adults
TARGET_RANGE = (70.0, 180.0)  # mg/dL


def clinical_figures(episodes: Sequence[NDArray[np.floating]]) -> dict[str, float]:
    """Shares of the sensor readings in 70 to 180 mg/dL, below 70 and above 180, and of the days that ended early.

    `episodes` are the observations of days, [steps + 1, 7] each. Every reading counts the same.
    """
    readings = np.concatenate([np.asarray(episode)[:, 0] for episode in episodes])
    low, high = TARGET_RANGE
    return {
        "time in range": float(np.mean((readings >= low) & (readings <= high))),
        "below 70": float(np.mean(readings < low)),
        "above 180": float(np.mean(readings > high)),
        "ended early": float(np.mean([len(episode) <= STEPS for episode in episodes])),
    }
