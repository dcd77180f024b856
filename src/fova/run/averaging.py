"""The running mean of the server's policies.

It is played, judged and saved in place of the last policy. Clients never see it, so training does not change.
"""

from typing import Any

import jax
import numpy as np


def running_mean(mean: Any, policy: Any, rounds: int, horizon: int) -> Any:
    """The mean after `rounds` rounds: over all policies at first, exponential from `horizon` rounds on.

    mean + (policy - mean) / min(rounds, horizon). After the first round it is the first policy.
    """
    share = np.float32(1.0 / min(rounds, horizon))
    return jax.tree.map(lambda m, p: np.asarray(m) + share * (np.asarray(p) - np.asarray(m)), mean, policy)
