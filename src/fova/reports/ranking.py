"""Which of several settings the judge estimates best: the numbers, and the sentence that says so."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fova.data.fields import counted
from fova.evaluation.judging.participation import compared
from fova.evaluation.judging.verdict import Verdict
from fova.reports.groups import Group

MOST_NAMED = 8  # runs in a command; for more, the command is described


@dataclass(frozen=True)
class JudgedSetting:
    """One setting by the judge, for all clients together; means over the seeds that were judged."""

    setting: str
    verdicts: Mapping[int, Verdict]  # by seed
    value: float
    gain: float  # over the data
    better: int  # clients whose policy is better than their data, counted once for each seed
    clients: int
    inside: float | None  # share of states in which the policy acts inside the data; None if unknown

    @property
    def better_off(self) -> str:
        return f"{self.better} of {self.clients}"

    @property
    def covered(self) -> str:
        return "unknown" if self.inside is None else f"{100 * self.inside:.0f} %"


def judged_settings(groups: Sequence[Group]) -> list[JudgedSetting]:
    """The settings that were judged, the best estimate first. Those whose fit diverged come last."""
    found = [_judged(group) for group in groups if group.verdict is not None]
    return sorted(found, key=lambda one: _order(list(one.verdicts.values())))


def _order(verdicts: Sequence[Verdict]) -> float:
    """A key that sorts by the mean estimate, the highest first and those that are no numbers last."""
    value = float(np.mean([verdict.federation.value for verdict in verdicts]))
    return -value if math.isfinite(value) else math.inf


def _judged(group: Group) -> JudgedSetting:
    verdicts = {record.seed: record.verdict for record in group.records if record.verdict is not None}
    figures = [verdict.federation for verdict in verdicts.values()]
    findings = [client.finding for verdict in verdicts.values() for client in verdict.clients.values()]
    inside = [each.inside for each in figures if each.inside is not None]
    return JudgedSetting(
        group.label,
        verdicts,
        float(np.mean([each.value for each in figures])),
        float(np.mean([each.difference for each in figures])),
        findings.count("better"),
        len(findings),
        float(np.mean(inside)) if inside else None,
    )


# --- In words ---


def ranking_in_words(groups: Sequence[Group]) -> list[str]:
    """Which setting the judge estimates best; for own data that was not judged, how to find out."""
    ranked = judged_settings(groups)
    if len(ranked) < 2:
        return _how_to_rank(groups, len(ranked)) if len(groups) > 1 and groups[0].task is None else []
    seeds = sorted(set.intersection(*(set(one.verdicts) for one in ranked)))  # that all settings have
    verdicts = [[one.verdicts[seed] for seed in seeds] for one in ranked]
    if not seeds or any(v.judged_on != first.judged_on for each in verdicts for v, first in zip(each, verdicts[0])):
        return ["The judge's estimates are from different episodes, so they do not rank these settings."]
    named = zip(_names([one.setting for one in ranked]), verdicts)
    return [f"By the judge, {ranking_sentence(sorted(named, key=lambda pair: _order(pair[1])))}"]


def _how_to_rank(groups: Sequence[Group], judged: int) -> list[str]:
    runs = [str(record.directory) for group in groups for record in group.records]
    listed = f"fova judge {shlex.join(runs)}" if len(runs) <= MOST_NAMED else "fova judge, with all of these runs"
    count = f"{judged or 'none'} of {counted(len(groups), 'setting')}"
    return [f"There is no task to play these policies in, and {count} was judged. To rank them: {listed}"]


def _names(settings: Sequence[str]) -> list[str]:
    """What settings are called in a sentence: the name of the run, or the whole label where it is not enough."""
    runs = [setting.partition(": ")[0] for setting in settings]
    return [run if runs.count(run) == 1 else setting for run, setting in zip(runs, settings)]


def ranking_sentence(ranked: Sequence[tuple[str, Sequence[Verdict]]]) -> str:
    """What a ranking says about choosing, the best first. Each has a verdict per seed, on the same episodes."""
    (best, verdicts), *others = ranked
    figures = [verdict.federation for verdict in verdicts]
    reasons = [each.why_no_evidence for each in figures if each.why_no_evidence is not None]
    if reasons:
        return f"{best} has the highest estimate, but {reasons[0]}: not enough evidence to choose it."
    findings = {
        "pays": "It is clearly above",
        "no clear difference": "No clear difference from",
        "not enough evidence": "Not enough evidence about",
    }
    payoffs = {name: compared(figures, [verdict.federation for verdict in other]).payoff for name, other in others}
    words = [f"{best} has the highest estimate."]
    for payoff, finding in findings.items():
        if names := [name for name in payoffs if payoffs[name] == payoff]:
            words.append(f"{finding} {', '.join(names)}.")
    return " ".join(words)
