"""Choose a policy among the rounds of a training without a simulator: `fova train --select judge`.

The policies of the best rounds are kept in `best/` of the run directory. Each file says what the judge found, so
the choice does not depend on anything else, and a resumed run makes the same one.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fova.errors import FovaError
from fova.evaluation.judging.verdict import Verdict
from fova.policy import Policy, load_policy

KEPT = 3
FOLDER = "best"


class Selection:
    """The best rounds of a run so far, by the judge's estimate for the federation."""

    def __init__(self, folder: Path, judge: Callable[[Policy], Verdict]) -> None:
        self.folder, self.judge = folder, judge

    def consider(self, number: int, policy: Policy) -> dict[str, Any]:
        """Judge the policy of a round and keep it if it is among the best. Returns the log entry."""
        found = self.judge(policy).federation
        entry = {"value": found.value, "low": found.low, "high": found.high, "inside": found.inside}
        judged = replace(policy, facts=policy.facts | {"judged": entry})
        self.folder.mkdir(exist_ok=True)
        judged.save(self.folder / f"round-{number:06d}.safetensors")
        for path in self._kept()[KEPT:]:
            path.unlink()
            path.with_suffix(".json").unlink()
        return entry

    def best(self) -> Policy:
        """The policy with the highest estimate; of equal ones, that of the earliest round."""
        kept = self._kept()
        if not kept:
            raise FovaError(f"{self.folder} holds no judged policy. Was it moved? Start a new run.")
        return load_policy(kept[0])

    def _kept(self) -> list[Path]:
        paths = sorted(self.folder.glob("round-*.safetensors"))
        return sorted(paths, key=_estimate, reverse=True)  # stable: of equal ones the earliest round comes first


def _estimate(path: Path) -> float:
    """The judge's estimate. A fit that diverged is worse than any other."""
    value = float(load_policy(path).facts["judged"]["value"])
    return value if math.isfinite(value) else -math.inf
