"""Tables of an experiment's results, beside the numbers that the paper prints.

Each of our numbers has an interval over seeds, or the single seeds beside it where they are few, and each table
states its scale. Agreement with the paper is judged
by the order of the algorithms and not by the numbers, because data, simulator and scale differ from the paper's.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from itertools import combinations
from typing import Any

import numpy as np

from fova.errors import unknown
from fova.evaluation import metrics
from fova.evaluation.stages import STEPS
from fova.evaluation.statistics import (
    Interval,
    estimate,
    how_sure,
    interquartile_mean,
    mean,
    mean_over_runs,
    median,
    probability_of_improvement,
)
from fova.experiments.results import Results, RunResult
from fova.paper import catalogue
from fova.reports.sheet import Sheet

MISSING = "–"
ORDER = "order as the paper's"


@cache
def paper_figures() -> dict[str, Any]:
    """The numbers that the paper prints: table -> row -> column."""
    text = resources.files("fova.reports").joinpath("paper_figures.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def tables(results: Results) -> dict[str, Sheet]:
    """All tables of a result file, by name. `main` is the table of the experiment's own measure."""
    made = {"main": MAIN[results.measured](results)}
    if len(results.cases()) > 1 and results.axis is None and _scored(results) and _complete(results):
        made["summary"] = summary(results)
        if len(groups := _groups(results)) > 1:
            made["groups"] = by_group(results, groups)
    federated = [run for run in results.runs if run.mode == "federated"]
    if results.measured == "return" and federated and all(run.final and run.final.clients for run in federated):
        made["clients"] = server_and_clients(replace(results, runs=federated))
    return made


def table(results: Results, name: str) -> Sheet:
    found = tables(results)
    if name not in found:
        raise unknown(f"table of {results.name}", name, found)
    return found[name]


# --- The server's return ---------------------------------------------------------------------------------


def returns(results: Results) -> Sheet:
    """The return of the server's final policy: cases in rows, variants in columns, with the paper's numbers."""
    printed = paper_figures().get(results.name, {})
    in_scores = _scored(results) and not printed
    variants, orders = results.variants(), _orders(results, printed)
    rows, bold = [], set()
    for i, case in enumerate(results.cases()):
        found = {variant: _over_seeds(results, case, variant, _final(in_scores)) for variant in variants}
        cells = [_with_paper(found[v], _printed(results, printed, case, v)) for v in variants]
        best = max((v for v in variants if found[v]), key=lambda v: _value(found[v]))
        if len(variants) > 1:
            bold.add((i, 1 + variants.index(best)))
        agreement = [_agreement(results, printed, case, order, found) for order in orders.values()]
        rows.append((case, *cells, _behaviour(results, case, in_scores), *agreement))
    columns = (results.axis or "", *variants, "the data", *(f"{ORDER} ({o})" for o in orders))
    unit = "normalised score" if in_scores else "return"
    paper = "; after a slash the paper's figure" if printed else ""
    highest = " Bold: the highest mean." if bold else ""
    caption = f"{results.scale}. The server's {unit} at the end, {_spread(results)}{paper}.{highest}"
    return Sheet(results.title, caption, columns, tuple(rows), frozenset(bold))


def _final(in_scores: bool) -> Callable[[RunResult], float]:
    def figure(run: RunResult) -> float:
        assert run.final is not None
        return run.final.server.figure if in_scores else run.final.server.mean_return

    return figure


def _behaviour(results: Results, case: str, in_scores: bool) -> str:
    """The mean return in the clients' data, as the baseline."""
    runs = results.of(case=case)
    values = [run.behaviour_return() for run in runs]
    if in_scores:
        from fova.tasks import registry

        task = registry.get(str(runs[0].task))
        values = [score for value in values if (score := task.normalised_score(value)) is not None]
    return _number(float(np.mean(values)))


# --- The order of the algorithms -------------------------------------------------------------------------


def _orders(results: Results, printed: dict[str, Any]) -> dict[str, list[str]]:
    """Sets of variants in which each variant matches a different column of the paper's table.

    If several of our variants match the same column, there is one set for each of them.
    """
    columns = {v: paper[1] for v in results.variants() if (paper := results.of(variant=v)[0].paper) and printed}
    doubles = [v for v in columns if list(columns.values()).count(columns[v]) > 1]
    others = [v for v in columns if v not in doubles]
    if len(columns) < 2:
        return {}
    return {double: [double, *others] for double in doubles} or {"all": others}


def _agreement(
    results: Results, printed: dict[str, Any], case: str, order: Sequence[str], found: dict[str, Interval | None]
) -> str:
    """The number of pairs of algorithms in the same order as in the paper, and whether the winner is the same."""
    paper = {v: figure for v in order if (figure := _printed(results, printed, case, v)) is not None and found[v]}
    return _same_order(paper, {variant: _value(found[variant]) for variant in paper})


def _same_order(paper: Mapping[str, float], ours: Mapping[str, float], best: Callable[..., str] = max) -> str:
    both = [name for name in paper if name in ours]
    if len(both) < 2:
        return MISSING
    pairs = list(combinations(both, 2))
    same = sum((paper[a] > paper[b]) == (ours[a] > ours[b]) for a, b in pairs)
    winner = best(both, key=lambda name: paper[name]) == best(both, key=lambda name: ours[name])
    return f"{same} of {len(pairs)} pairs, {'same' if winner else 'another'} winner"


def _printed(results: Results, printed: dict[str, Any], case: str, variant: str) -> float | None:
    runs = results.of(case=case, variant=variant)
    if not runs or runs[0].paper is None:
        return None
    row, column = runs[0].paper
    figure = printed.get(row, {}).get(column)
    return None if figure is None else float(figure[0])


# --- Over all cases --------------------------------------------------------------------------------------


def summary(results: Results) -> Sheet:
    """Aggregates of the normalised scores over all cases, and the probability that the best variant is better."""
    scores = _complete(results)
    best = _best(scores)
    rows = []
    for variant, matrix in scores.items():
        aggregates = [_shown(estimate(matrix, f)) for f in (interquartile_mean, mean, median)]
        beaten = MISSING if variant == best else _share(probability_of_improvement(scores[best], matrix))
        rows.append((variant, *aggregates, beaten))
    seeds = {len(matrix) for matrix in scores.values()}
    caption = (
        f"{results.scale}. Normalised scores of the server's final policy over {len(results.cases())} cases with "
        f"{'/'.join(map(str, sorted(seeds)))} runs each; in brackets 95 % stratified-bootstrap intervals. "
        "IQM: the mean of the middle half of all runs."
    )
    columns = ("", "IQM", "mean", "median over cases", f"probability that {best} is better")
    position = list(scores).index(best)
    return Sheet(f"{results.title}: all cases", caption, columns, tuple(rows), frozenset({(position, 1)}))


def by_group(results: Results, groups: Mapping[str, list[int]]) -> Sheet:
    """The mean score over each group of cases, and the probability that the best variant of all cases is better."""
    scores = _complete(results)
    best = _best(scores)
    rows = []
    for variant, matrix in scores.items():
        row = [variant]
        for cases in groups.values():
            sure = probability_of_improvement(scores[best][:, cases], matrix[:, cases])
            row += [_shown(estimate(matrix[:, cases], mean)), MISSING if variant == best else _share(sure)]
        rows.append(tuple(row))
    columns = [f"{name}: {word}" for name in groups for word in ("mean", f"{best} is better")]
    numbers = ", ".join(f"{name}: {len(cases)} cases" for name, cases in groups.items())
    caption = (
        f"{results.scale}. Normalised scores of the server's final policy, and the probability that {best} is "
        f"better; in brackets 95 % stratified-bootstrap intervals. {numbers}."
    )
    return Sheet(f"{results.title}: groups of cases", caption, ("", *columns), tuple(rows))


def _groups(results: Results) -> dict[str, list[int]]:
    """The groups of the experiment's cases: name -> positions of its cases in the results."""
    entry = next((entry for entry in catalogue.entries() if entry.name == results.name), None)
    group_of = {case.label: case.group for case in entry.cases} if entry else {}
    named = [(group_of.get(case), i) for i, case in enumerate(results.cases())]
    groups = list(dict.fromkeys(group for group, _ in named if group))
    return {group: [i for other, i in named if other == group] for group in groups}


def _best(scores: Mapping[str, np.ndarray]) -> str:
    """The variant with the largest interquartile mean."""
    return max(scores, key=lambda variant: estimate(scores[variant], interquartile_mean).value)


def _complete(results: Results) -> dict[str, np.ndarray]:
    """The scores [runs, cases] of every variant that has the same number of runs on every case."""
    return {variant: matrix for variant in results.variants() if (matrix := _matrix(results, variant)) is not None}


def _matrix(results: Results, variant: str) -> np.ndarray | None:
    """The scores [runs, cases], or None if the variant does not have the same number of runs on every case."""
    columns = [[_final(True)(run) for run in results.of(case=case, variant=variant)] for case in results.cases()]
    runs = {len(column) for column in columns}
    return np.array(columns).T if len(runs) == 1 and runs != {0} else None


# --- The other measures ----------------------------------------------------------------------------------


def server_and_clients(results: Results) -> Sheet:
    """The server's return, and its difference from the mean return of the clients' own policies."""

    def at_the_end(run: RunResult) -> float:
        return metrics.server_minus_mean_client(_ended(run))

    def along(run: RunResult) -> float:
        return float(
            np.mean([metrics.server_minus_mean_client(e) > 0 for e in run.evaluations if e.clients and e.round])
        )

    measures = {"server": _final(False), "server − mean client": at_the_end}
    if any(evaluation.clients for run in results.runs for evaluation in run.evaluations):
        measures["evaluations with the server ahead"] = along
    return _measures(results, measures, f"{results.scale}. Returns at the end, {_spread(results)}.")


def every_client(results: Results) -> Sheet:
    """The final returns of the server's policy and of the clients' own policies, averaged over equal data."""
    kinds = list(dict.fromkeys(client["data"] for run in results.runs for client in run.clients.values()))

    def of_kind(kind: str) -> Callable[[RunResult], float]:
        def figure(run: RunResult) -> float:
            names = [name for name, client in run.clients.items() if client["data"] == kind]
            return metrics.mean_client({n: _ended(run).clients[n] for n in names}) if names else math.nan

        return figure

    def worst(run: RunResult) -> float:
        return metrics.worst_client(_ended(run).clients)[1].mean_return

    measures = {"server": _final(False)} | {f"{kind} clients": of_kind(kind) for kind in kinds} | {"worst": worst}
    return _measures(results, measures, f"{results.scale}. Returns at the end, {_spread(results)}.")


def continual(results: Results) -> Sheet:
    """PER and BWT: the average performance after all data, and the change on earlier data (backward transfer)."""
    printed = paper_figures()["continual"] if results.name == "continual" else {}
    named = {"per": metrics.average_performance, "bwt": metrics.backward_transfer}
    rows, missing = [], False
    for case in results.cases():
        theirs: dict[str, dict[str, float]] = {name: {} for name in named}
        ours: dict[str, dict[str, float]] = {name: {} for name in named}
        for variant in results.variants():
            runs = results.of(case=case, variant=variant)
            if not runs:
                continue
            matrices = [run.stages for run in runs if _all_stages(run)]
            missing |= len(matrices) < len(runs)
            paper = printed.get(runs[0].paper[0], {}).get(runs[0].paper[1], {}) if runs[0].paper else {}
            figures = []
            for name, measure in named.items():
                found = mean_over_runs([measure(a) for a in matrices]) if matrices else None
                if found is not None:
                    ours[name][variant] = found.value
                if name in paper:
                    theirs[name][variant] = paper[name]
                figures.append(_with_paper(found, paper.get(name)))
            rows.append((f"{case}, {variant}", *figures))
        if printed:
            rows.append((f"{case}: {ORDER}", *(_same_order(theirs[name], ours[name]) for name in named)))
    caption = (
        f"{results.scale}. Returns, {_spread(results)}; after a slash the paper's figure. The performance on a "
        f"stage of the data is the server's return in episodes of at most {STEPS} steps from states of that data."
    )
    if missing:
        caption += f" {MISSING}: the runs have no such episodes; train them again."
    return Sheet(results.title, caption, ("", "PER", "BWT"), tuple(rows))


def _all_stages(run: RunResult) -> bool:
    """Whether a run was played from the states of every stage after every stage. Older runs were not."""
    return bool(run.stages) and all(len(row) == len(run.stages) for row in run.stages)


def cost(results: Results) -> Sheet:
    """Peak memory and time of every algorithm."""
    printed = paper_figures()["cost"] if results.name == "cost" else {}
    ours: dict[str, dict[str, float]] = {"memory_mb": {}, "seconds_per_epoch": {}}
    theirs: dict[str, dict[str, float]] = {"memory_mb": {}, "seconds_per_epoch": {}}
    rows = []
    for variant in results.variants():
        runs = results.of(variant=variant)
        rounds = [(run, run.seconds_median_round) for run in runs if run.seconds_median_round is not None]
        per_thousand = [1000 * seconds / run.run["local_steps"] for run, seconds in rounds]
        memory = [run.peak_memory_mb for run in runs if run.peak_memory_mb is not None]
        paper = printed.get(runs[0].paper[1] if runs[0].paper else "", {})
        cells = []
        for (name, measured), digits in zip(
            {"memory_mb": memory, "seconds_per_epoch": per_thousand}.items(), (1, 2)
        ):
            found = mean_over_runs(measured) if measured else None
            if found is not None:
                ours[name][variant] = found.value
            if name in paper:
                theirs[name][variant] = paper[name]
            cells.append(MISSING if found is None else _with_paper(found, paper.get(name), digits))
        sent = runs[0].bytes_each_way
        rows.append((variant, *cells, MISSING if sent is None else f"{sent / 1e6:.2f}"))
    if printed:
        rows.append((ORDER, *(_same_order(theirs[name], ours[name], min) for name in ours), ""))
    caption = (
        f"{results.scale}. Means over tasks and seeds, {_spread(results)}. Ours: one core, the median round; the "
        "whole process's memory. After a slash the paper's: one GPU, its memory, seconds per epoch of unstated "
        "length."
    )
    columns = ("", "peak memory, MB", "s per 1,000 local steps", "MB each way, client and round")
    return Sheet(results.title, caption, columns, tuple(rows))


def distance(results: Results) -> Sheet:
    """The distance between each client's policy and the global policy that it received, at the end of training."""
    clients = list(dict.fromkeys(name for run in results.runs for name in run.clients))

    def of_client(client: str) -> Callable[[RunResult], float]:
        return lambda run: list(run.distances.values())[-1][client]

    measures = {client: of_client(client) for client in clients}
    caption = f"{results.scale}. Total variation in [0, 1] over the last rounds, {_spread(results)}."
    return _measures(results, measures, caption, digits=3)


MAIN: dict[str, Callable[[Results], Sheet]] = {
    "return": returns,
    "server minus mean client": server_and_clients,
    "every client": every_client,
    "PER and BWT": continual,
    "memory and time": cost,
    "distance to the global policy": distance,
}


def _measures(
    results: Results, measures: dict[str, Callable[[RunResult], float]], caption: str, digits: int = 1
) -> Sheet:
    """A table of several measures, with one row per case and variant."""
    rows = []
    for case in results.cases():
        for variant in results.variants():
            if not results.of(case=case, variant=variant):
                continue
            name = variant if len(results.cases()) == 1 else f"{case}, {variant}"
            found = [_over_seeds(results, case, variant, measure) for measure in measures.values()]
            rows.append((name, *(_shown(interval, digits) for interval in found)))
    return Sheet(results.title, caption, ("", *measures), tuple(rows))


# --- Figures and words -----------------------------------------------------------------------------------


def _scored(results: Results) -> bool:
    return all(run.final is not None and run.final.server.score is not None for run in results.runs)


def _ended(run: RunResult) -> metrics.Evaluation:
    assert run.final is not None
    return run.final


def _over_seeds(results: Results, case: str, variant: str, figure: Callable[[RunResult], float]) -> Interval | None:
    values = [value for run in results.of(case=case, variant=variant) if not math.isnan(value := figure(run))]
    return mean_over_runs(values) if values else None


def _value(interval: Interval | None) -> float:
    return -math.inf if interval is None else interval.value


def _number(value: float, digits: int = 1) -> str:
    return f"{value:,.{0 if abs(value) >= 1000 else digits}f}".replace("-", "−")


def _shown(interval: Interval | None, digits: int = 1) -> str:
    if interval is None:
        return MISSING
    one_run = " (one run)" if len(interval.runs) == 1 else ""
    return interval.text(lambda value: _number(value, digits)) + one_run


def _with_paper(interval: Interval | None, figure: float | None, digits: int = 1) -> str:
    return _shown(interval, digits) + ("" if figure is None else f" / {_number(figure, digits)}")


def _spread(results: Results) -> str:
    return how_sure([len(results.of(case=case, variant=v)) for case in results.cases() for v in results.variants()])


def _share(interval: Interval) -> str:
    return interval.text(lambda value: f"{value:.2f}") + ("" if interval.known else " (one run)")
