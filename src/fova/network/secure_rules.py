"""Which runs can be trained with secure aggregation, where the server sees sums only. No Flower here."""

from typing import Any

from fova.errors import FovaError
from fova.run.config import RunConfig, unit_of_reward

AGGREGATIONS = ("uniform", "size")
FEWEST_CLIENTS = 3  # of two, each could subtract its own part from the mean


def insist_on_sums(run: RunConfig, algorithm: Any, clients: int) -> None:
    """Refuse settings for which the server would have to see more than a sum."""
    if run.aggregation not in AGGREGATIONS:
        raise FovaError(
            f"aggregation is {run.aggregation}, but with secure aggregation the server sees only a sum of all "
            "updates. Medians, Krum, and weights by values or returns need single ones. Add --aggregation uniform "
            "or --aggregation size."
        )
    if not algorithm.mergeable:
        raise FovaError(
            f"{type(algorithm).__name__} combines the submissions of single clients, and secure aggregation shows "
            "their mean only. Choose another algorithm, or leave --secure-aggregation out."
        )
    if run.largest_share not in (None, 1.0):
        raise FovaError(
            f"largest_share is {run.largest_share:g}, but a server that sees nobody's weight can limit nobody's "
            "share. Leave --largest-share or --secure-aggregation out."
        )
    if run.privacy == "server":
        raise FovaError(
            "privacy is server, which clips single updates, and secure aggregation shows their sum only. Take "
            "--privacy client, or leave --secure-aggregation out."
        )
    if run.compress != "none":
        raise FovaError(
            f"compress is {run.compress}, but masked numbers cannot be compressed. Leave --compress out."
        )
    if run.normalise:
        raise FovaError(
            "normalise sends sums of every client's observations, which would not be hidden. Add --no-normalise "
            "and, where columns differ in scale, divide them by known ranges first."
        )
    if unit_of_reward(run, algorithm) is None:
        raise FovaError(
            "The unit of reward is derived from sums of every client's rewards, which would not be hidden. Say "
            "what one step of a good policy is worth, for instance: --reward-unit 1"
        )
    if clients < FEWEST_CLIENTS:
        raise FovaError(
            f"min_clients is {clients}, but secure aggregation needs {FEWEST_CLIENTS}: of two clients, each could "
            "subtract its own part from the mean."
        )
