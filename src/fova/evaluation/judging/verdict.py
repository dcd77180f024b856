"""The verdict on a policy: figures for every client and the federation, and what they mean in words.

Values are discounted returns from the first state of an episode, in the units of the logged rewards. `verdict.json`
as `to_json` writes it is checked when it is read.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from fova.errors import FovaError

FORMAT = 1
FEWEST_EPISODES = 5  # fewer held-out episodes are no evidence
MOST_OUTSIDE = 0.25  # share of states in which a policy may act outside the data

Finding = Literal["better", "worse", "no clear difference", "not enough evidence"]


@dataclass(frozen=True)
class Figures:
    """What is known about a policy at one client, or in the whole federation."""

    episodes: int  # that the policy is judged on
    rows: int
    data_value: float  # discounted return of the logged episodes: the line to beat
    data_return: float  # undiscounted return of an episode, as a person knows it
    value: float  # estimated discounted return of the policy
    low: float  # 90 % interval
    high: float
    difference: float  # value - data_value, on the same first states
    difference_low: float
    difference_high: float
    bellman_error: float  # root mean square, in units of reward per step
    bias: float  # accumulated Bellman error along logged episodes; the intervals are wider by its size
    episode_error: float  # standard error of `value` from the choice of episodes
    fit_error: float  # standard deviation of `value` between repetitions of the fit
    difference_error: float  # standard error of `difference` from the choice of episodes
    inside: float | None = None  # share of states in which the policy acts inside the data; None if unknown
    effective_episodes: float | None = None  # that importance sampling rests on; discrete actions only
    importance_sampling: float | None = None  # per-decision weighted importance sampling
    importance_low: float | None = None
    importance_high: float | None = None
    doubly_robust: float | None = None  # weighted doubly robust
    doubly_robust_low: float | None = None
    doubly_robust_high: float | None = None

    @property
    def finding(self) -> Finding:
        if self.why_no_evidence is not None:
            return "not enough evidence"
        if self.difference_low > 0.0:
            return "better"
        return "worse" if self.difference_high < 0.0 else "no clear difference"

    @property
    def why_no_evidence(self) -> str | None:
        """What is missing, in words; None where there is enough evidence."""
        if self.episodes < FEWEST_EPISODES:
            plural = "" if self.episodes == 1 else "s"
            return f"only {self.episodes} episode{plural} to judge on"
        if self.inside is None:
            return "it is not known how much of it the data covers"
        if 1.0 - self.inside > MOST_OUTSIDE:
            return f"the policy acts outside its data in {100 * (1 - self.inside):.0f} % of states"
        if not all(map(math.isfinite, (self.value, self.difference_low, self.difference_high))):
            return "the fit diverged"
        return None


@dataclass(frozen=True)
class Verdict:
    """What is known about a policy without a simulator."""

    policy: str  # where it comes from
    discount: float
    held_out: bool  # whether it was judged on episodes that never trained it
    clients: Mapping[str, Figures]
    federation: Figures
    settings: Mapping[str, Any]  # of the fit

    @property
    def judged_on(self) -> tuple[float, dict[str, tuple[int, int, float]]]:
        """The discount and each client's episodes with their return; equal for verdicts on the same episodes."""
        return self.discount, {name: (f.episodes, f.rows, f.data_value) for name, f in self.clients.items()}

    def sentence(self) -> str:
        """The verdict in plain words."""
        findings = {name: figures.finding for name, figures in self.clients.items()}
        parts = [f"Better than current practice at {_count(findings, 'better')} of {_clients(len(findings))}"]
        if worse := _names(findings, "worse"):
            parts.append(f"worse at {worse}")
        if alike := _names(findings, "no clear difference"):
            parts.append(f"no clear difference at {alike}")
        parts += [
            f"at {name}: {figures.why_no_evidence}, not enough evidence"
            for name, figures in self.clients.items()
            if figures.finding == "not enough evidence"
        ]
        words = "; ".join(parts) + "."
        if not self.held_out:
            words += " No episodes were held out: the policy was trained on these very episodes, which flatters it."
        return words

    # --- As plain values ---

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "policy": self.policy,
            "discount": self.discount,
            "held_out": self.held_out,
            "sentence": self.sentence(),
            "clients": {name: _plain(figures) for name, figures in self.clients.items()},
            "federation": _plain(self.federation),
            "settings": dict(self.settings),
        }

    @staticmethod
    def from_json(content: Any, where: str) -> "Verdict":
        """The verdict that `to_json` wrote. Anything else is refused with the place and the reason."""
        try:
            if content["format"] != FORMAT:
                raise FovaError(f"{where} has format {content['format']!r}, but this version reads {FORMAT}.")
            return Verdict(
                policy=_typed(content, "policy", str),
                discount=float(_typed(content, "discount", (int, float))),
                held_out=_typed(content, "held_out", bool),
                clients={str(name): _figures(figures) for name, figures in content["clients"].items()},
                federation=_figures(content["federation"]),
                settings=dict(_typed(content, "settings", dict)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FovaError(
                f"{where} is not a verdict of fova ({type(error).__name__}: {error}). Make it again: fova judge RUN"
            ) from error


def _plain(figures: Figures) -> dict[str, Any]:
    """Figures as JSON, which has no NaN."""
    return {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in asdict(figures).items()}


def _figures(content: Any) -> Figures:
    optional = {field.name for field in fields(Figures) if field.default is None}
    known = {field.name for field in fields(Figures)}
    if set(content) != known:
        raise ValueError(f"{', '.join(sorted(set(content) ^ known))} is missing or unknown")
    values: dict[str, Any] = {}
    for name, value in content.items():
        whole = name in ("episodes", "rows")
        if value is None:
            if whole:
                raise ValueError(f"{name} is missing")
            values[name] = None if name in optional else math.nan
        elif isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise ValueError(f"{name} is {value!r}, but must be a number")
        else:
            values[name] = int(value) if whole else float(value)
    return Figures(**values)


def _typed(content: Any, name: str, kind: Any) -> Any:
    if not isinstance(content[name], kind):
        raise ValueError(f"{name} is {content[name]!r}")
    return content[name]


def _count(findings: Mapping[str, str], which: str) -> int:
    return list(findings.values()).count(which)


def _names(findings: Mapping[str, str], which: str) -> str:
    return ", ".join(name for name, finding in findings.items() if finding == which)


def _clients(count: int) -> str:
    return f"{count} client" + ("" if count == 1 else "s")
