"""How well verdicts without a simulator agree with true returns: tables of results/judge_calibration.json.

`benchmarks/judge_calibration.py` measures the file. The true value of a policy is the mean discounted return of
rollouts.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from fova.errors import FovaError, unknown
from fova.evaluation.judging.intervals import NORMAL_QUANTILE
from fova.reports.sheet import Sheet

FILE = "results/judge_calibration.json"


@dataclass(frozen=True)
class Calibration:
    """The policies of one task."""

    names: tuple[str, ...]
    truth: NDArray[np.float64]
    truth_error: NDArray[np.float64]  # standard error of the rollouts
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    inside: NDArray[np.float64]

    @staticmethod
    def of(entries: Mapping[str, Any]) -> "Calibration":
        def numbers(name: str) -> NDArray[np.float64]:
            return np.array([(entry | entry["judged"])[name] for entry in entries.values()], float)

        columns = (numbers(name) for name in ("true_value", "true_error", "value", "low", "high", "inside"))
        return Calibration(tuple(entries), *columns)

    @property
    def rank_correlation(self) -> float:
        return float(spearmanr(self.truth, self.value).statistic)

    @property
    def regret(self) -> float:
        """What choosing by the estimate loses, as a share of the distance between best and worst policy."""
        spread = self.truth.max() - self.truth.min()
        return float((self.truth.max() - self.truth[self.value.argmax()]) / spread)

    @property
    def covered(self) -> NDArray[np.bool_]:
        """Whose interval holds the true value. Rollouts have an error of their own, which is independent."""
        reach = np.where(self.truth > self.value, self.high - self.value, self.value - self.low)
        return np.abs(self.truth - self.value) <= np.hypot(reach, NORMAL_QUANTILE * self.truth_error)

    @property
    def holds_rollouts(self) -> NDArray[np.bool_]:
        """Whose interval holds the mean of the rollouts, as if that mean had no error."""
        return (self.low <= self.truth) & (self.truth <= self.high)

    @property
    def error(self) -> float:
        """The mean size of the error, as a share of the distance between best and worst policy."""
        return float(np.abs(self.value - self.truth).mean() / (self.truth.max() - self.truth.min()))


def load(path: Path) -> dict[str, Calibration]:
    """Task -> its policies."""
    if not path.is_file():
        raise FovaError(f"{path} does not exist. Measure it with benchmarks/judge_calibration.py")
    return {task: Calibration.of(entries) for task, entries in json.loads(path.read_text())["tasks"].items()}


def table(path: Path, name: str) -> Sheet:
    tables = {"summary": summary, "policies": policies}
    if name not in tables:
        raise unknown(f"table of {path.name}", name, tables)
    return tables[name](load(path))


def summary(tasks: Mapping[str, Calibration]) -> Sheet:
    def row(name: str, found: list[Calibration]) -> tuple[str, ...]:
        covered = np.concatenate([one.covered for one in found])
        figures = ("rank_correlation", "regret", "error")
        correlation, regret, error = (f"{np.mean([getattr(one, f) for one in found]):.2f}" for f in figures)
        share = f"{covered.sum()} of {len(covered)} ({100 * covered.mean():.0f} %)"
        return name, str(len(covered)), correlation, regret, share, error

    rows = [row(task, [found]) for task, found in tasks.items()]
    strict = np.concatenate([one.holds_rollouts for one in tasks.values()])
    share = f"{strict.sum()} of {len(strict)} intervals ({100 * strict.mean():.0f} %)"
    return Sheet(
        "Verdicts beside true returns",
        "Regret and error are shares of the distance between the best and the worst policy of a task. The last row "
        "has the means over tasks. Coverage allows for the error of the rollouts that the true values come from. "
        f"Without this allowance {share} hold them.",
        ("task", "policies", "rank correlation", "regret@1", "truth inside the 90 % interval", "error"),
        (*rows, row("all", list(tasks.values()))),
    )


def policies(tasks: Mapping[str, Calibration]) -> Sheet:
    rows = [
        (
            f"{task}: {found.names[i]}",
            f"{found.truth[i]:.3g}",
            f"{found.value[i]:.3g} [{found.low[i]:.3g}, {found.high[i]:.3g}]",
            "yes" if found.covered[i] else "no",
            f"{100 * found.inside[i]:.0f} %",
        )
        for task, found in tasks.items()
        for i in np.argsort(-found.truth)
    ]
    return Sheet(
        "Every policy, the best of a task first",
        "Discounted returns from the first state of an episode; in brackets the 90 % interval.",
        ("policy", "true value", "estimate", "covered", "actions inside the data"),
        tuple(rows),
    )
