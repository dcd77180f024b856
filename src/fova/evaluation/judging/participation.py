"""Does taking part pay? A client's federated policy against its own local-only policy, by the judge."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from fova.evaluation.judging.intervals import NORMAL_QUANTILE
from fova.evaluation.judging.verdict import Figures, Verdict

Payoff = Literal["pays", "does not pay", "no clear difference", "not enough evidence"]


class Participation(NamedTuple):
    """What one client's data, its own policy and the federated policy are worth; means over seeds."""

    data: float
    local: float
    federated: float
    reach: float  # half the width of the 90 % interval of federated - local
    payoff: Payoff

    @property
    def gain(self) -> float:
        return self.federated - self.local


def taking_part(federated: Sequence[Verdict], local: Sequence[Verdict]) -> dict[str, Participation]:
    """For every client, from verdicts on pairs of runs with the same seeds, data and held-out episodes.

    Both policies are judged from the same first states, so the choice of episodes cancels out. What is left is the
    chance in both fits, and their accumulated Bellman errors.
    """
    names = [name for name in federated[0].clients if all(name in one.clients for one in local)]
    return {
        name: compared([v.clients[name] for v in federated], [v.clients[name] for v in local]) for name in names
    }


def compared(federated: Sequence[Figures], local: Sequence[Figures]) -> Participation:
    """One policy against another from the same first states, one pair of figures per seed."""

    def mean(figures: Sequence[Figures], name: str) -> float:
        return float(np.mean([getattr(one, name) for one in figures]))

    chance = np.hypot(*(np.nan_to_num(mean(side, "fit_error")) for side in (federated, local)))
    allowance = sum(float(np.mean([abs(one.bias) for one in side])) for side in (federated, local))
    reach = float(NORMAL_QUANTILE * chance / np.sqrt(len(federated)) + allowance)
    gain = mean(federated, "value") - mean(local, "value")
    weak = any(one.why_no_evidence is not None for one in (*federated, *local))
    return Participation(
        data=mean(federated, "data_value"),
        local=mean(local, "value"),
        federated=mean(federated, "value"),
        reach=reach,
        payoff="not enough evidence" if weak else _payoff(gain, reach),
    )


def _payoff(gain: float, reach: float) -> Payoff:
    if abs(gain) <= reach:
        return "no clear difference"
    return "pays" if gain > 0 else "does not pay"


def in_words(clients: Mapping[str, Participation]) -> str:
    """The findings in one sentence."""
    by_payoff: dict[str, list[str]] = {}
    for name, found in clients.items():
        by_payoff.setdefault(found.payoff, []).append(name)
    count = len(by_payoff.pop("pays", []))
    words = [f"By the judge, taking part pays at {count} of {len(clients)} clients"]
    words += [f"{payoff} at {', '.join(names)}" for payoff, names in by_payoff.items()]
    return "; ".join(words) + "."
