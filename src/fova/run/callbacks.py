"""The user's function `on_round`: what it receives after every round, and how it ends the training.

def on_round(report):
    print(report.round, report.server)
    return report.server is not None and report.server["score"] > 90     # True ends the training

fova.train("hopper", ["expert", "random"], on_round=on_round)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fova.policy import Policy


class StopTraining(Exception):
    """Raise this in `on_round` to end the training after this round, as returning True does."""


@dataclass(frozen=True)
class RoundSummary:
    """A finished round."""

    round: int  # counts from 1
    rounds: int  # the number of rounds of the run
    entry: Mapping[str, Any]  # the line of metrics.jsonl
    policy: Policy | None  # the server's after this round; None in local mode, which has no server

    @property
    def server(self) -> Mapping[str, Any] | None:
        """The evaluation of the server's policy (return, score, ...); None in rounds without one."""
        return self.entry.get("server")

    @property
    def clients(self) -> Mapping[str, Mapping[str, Any]]:
        """The metrics of every client that took part; empty in private runs."""
        return self.entry.get("clients", {})


OnRound = Callable[[RoundSummary], object]


def asks_to_stop(on_round: OnRound, summary: RoundSummary) -> bool:
    """Call the user's function. Only True itself ends the training: other values are mostly unintended."""
    try:
        return on_round(summary) is True
    except StopTraining:
        return True
