"""A client that judges a policy: it fits critics to the episodes that it holds out, and reports on itself.

Only sums over the judged rows, critics, and at the end the client's own figures leave it. In a run with privacy or
secure aggregation only critics do.
"""

import json
import shutil
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from flwr.app import RecordDict

from fova.algorithms.base import Data
from fova.evaluation.judging import client as judging
from fova.evaluation.judging.client import Evidence, Fit
from fova.evaluation.judging.judge import evidence_of, verdict
from fova.evaluation.judging.verdict import Figures
from fova.federation.statistics import ClientStatistics, Statistics
from fova.machine.files import write_atomically
from fova.network import messages
from fova.network.client import Client
from fova.network.intake import Refused
from fova.network.judging import Judging
from fova.run.directory import VERDICT


class JudgingClient(Client):
    """One client while a policy is judged."""

    @property
    def asked(self) -> Judging:
        assert self.plan.judge is not None
        return self.plan.judge

    @cached_property
    def evidence(self) -> Evidence:
        (own,) = evidence_of(self.federation).values()
        return own

    def figures(self, content: RecordDict) -> RecordDict:
        """What the client's data says about the policy, given the fitted critics. What the fit left is deleted."""
        fit = Fit(self.asked.policy, messages.read_critics(content, self.plan), self._scale())
        found = judging.figures(fit, self.evidence)
        self._keep_verdict(found)
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        if not self.plan.gathers_statistics:
            return messages.no_figures_answer(self.plan, self.config.name)
        return messages.figures_answer(self.plan, self.config.name, found)

    def _keep_verdict(self, found: Figures) -> None:
        """Write the verdict on the client's own episodes into its state folder."""
        asked = self.asked
        held_out = self.plan.run.hold_out > 0.0
        own = verdict(asked.policy, {self.config.name: found}, asked.discount, held_out, asdict(asked.settings))
        content = json.dumps(own.to_json(), indent=1) + "\n"
        write_atomically(Path(self.config.state) / VERDICT, content.encode())
        self.journal.note(
            f"judged a policy on {found.episodes} episodes: {found.value:.4g}, the data {found.data_value:.4g}"
        )

    # --- What is different from training ---

    def _told(self) -> ClientStatistics | None:
        self.journal.note(f"a policy is judged on {len(self.evidence.judged):,} transitions")
        return judging.told(self.evidence.judged) if self.plan.gathers_statistics else None

    def _data(self, statistics: Statistics) -> Data:
        return self._rows

    @cached_property
    def _rows(self) -> Data:
        return self.plan.data_of(judging.rows_to_fit(self.asked.policy, self._scale(), self.evidence.judged))

    def _scale(self) -> judging.Scale:
        if self.asked.scale is None:
            raise Refused("The server asks for a round of judging without the federation's scale.")
        return self.asked.scale

    def _keep_policy(self, learner: Any, statistics: Statistics, rounds: int) -> None:
        """The judged policy does not change."""
