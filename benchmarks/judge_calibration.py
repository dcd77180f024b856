"""How far the judge is to be trusted: its estimates beside true returns. results/judge_calibration.json.

    python benchmarks/judge_calibration.py                   measure what is missing, then write the tables
    python benchmarks/judge_calibration.py --tables-only     write the tables of docs/judging.md

For every task: a federation of four clients of unequal quality, policies of unequal quality from several algorithms
and rounds of training, their true discounted return from rollouts, and what the judge says about each from the
held-out episodes. Interrupt it at any time; the next start goes on with what is missing.
"""

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import fova
from fova.evaluation.judging.judge import JudgeSettings, judge
from fova.evaluation.judging.verdict import Verdict
from fova.evaluation.rollouts import play
from fova.federation.clients import ClientSpec, Federation
from fova.machine.files import write_atomically
from fova.policy import Policy, load_policy
from fova.tasks import registry

RESULTS = Path("results/judge_calibration.json")
PAGE = Path("docs/judging.md")
HOLD_OUT, EPISODES = 0.3, 20
SETTINGS = JudgeSettings(rounds=25, steps=200, critics=3, batch_size=128)


@dataclass(frozen=True)
class Setting:
    """A task and its clients. Discounted by `discount`, what follows the time limit is negligible."""

    clients: tuple[str, ...]
    size: int
    discount: float


TASKS = {
    "maze2d-umaze": Setting(("expert", "noisy", "undirected", "random"), 6000, 0.97),
    "hopper": Setting(("expert", "medium", "medium-replay", "random"), 10_000, 0.99),
    "halfcheetah": Setting(("expert", "medium", "medium-replay", "random"), 10_000, 0.99),
}
# label -> algorithm, settings, and the rounds whose policies are judged
POLICIES: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "fed-bc": ("fed-bc", {}, (2, 10, 40)),
    "fed-bc by returns": ("fed-bc", {"aggregation": "returns"}, (10, 40)),
    "fova": ("fova", {}, (5, 40)),
    "fed-td3bc": ("fed-td3bc", {}, (5, 40)),
    "fed-iql": ("fed-iql", {}, (40,)),
}


def federation_of(task: str) -> Federation:
    setting = TASKS[task]
    specs = [ClientSpec(quality, setting.size) for quality in setting.clients]
    return Federation.build(specs, registry.get(task)).holding_out(HOLD_OUT)


def trained(task: str, label: str, federation: Federation, folder: Path) -> dict[str, Policy]:
    """The policies of one training, by label and round. They are kept in `folder`."""
    algorithm, settings, rounds = POLICIES[label]
    paths = {number: folder / f"{task}-{label.replace(' ', '-')}-{number}.safetensors" for number in rounds}
    if not all(path.exists() for path in paths.values()):

        def keep(summary: fova.RoundSummary) -> None:
            if summary.round in paths and summary.policy is not None:
                summary.policy.save(paths[summary.round])

        with tempfile.TemporaryDirectory() as scratch:
            fova.train(
                task, federation, algorithm=algorithm, directory=Path(scratch) / "run", on_round=keep,
                rounds=max(rounds), local_steps=100, hidden=(64, 64), evaluate_every=0, final_episodes=1,
                **settings,
            )  # fmt: skip
    return {f"{label}, round {number}": load_policy(path) for number, path in paths.items()}


def measured(policy: Policy, task: str, federation: Federation) -> dict[str, Any]:
    """A policy's true value, and what the judge says."""
    setting = TASKS[task]
    truth = play({"policy": policy}, registry.get(task), EPISODES, discount=setting.discount)["policy"]
    plain = play({"policy": policy}, registry.get(task), EPISODES)["policy"]
    verdict = judge(policy, federation, setting.discount, SETTINGS)
    standard_error = float(truth.returns.std(ddof=1) / np.sqrt(EPISODES))
    return {
        "true_value": truth.mean_return,
        "true_error": standard_error,
        "true_return": plain.mean_return,
        "score": plain.score,
        "verdict": verdict.to_json(),
    }


# --- What the figures say ---------------------------------------------------------------------------------


def summary(task: str, entries: dict[str, Any]) -> dict[str, float]:
    """Rank correlation, regret at 1 and coverage over the policies of one task."""
    truth = np.array([entry["true_value"] for entry in entries.values()])
    error = np.array([entry["true_error"] for entry in entries.values()])
    whole = [Verdict.from_json(entry["verdict"], "results").federation for entry in entries.values()]
    value = np.array([figures.value for figures in whole])
    low, high = (np.array([getattr(figures, name) for figures in whole]) for name in ("low", "high"))
    bias = np.array([abs(figures.bias) for figures in whole])
    spread = truth.max() - truth.min()
    # Rollouts have an error of their own: an interval covers if it overlaps the truth's 90 % interval.
    covers = (low - 1.645 * error <= truth) & (truth <= high + 1.645 * error)
    narrow = (low + bias - 1.645 * error <= truth) & (truth <= high - bias + 1.645 * error)
    return {
        "policies": len(truth),
        "spearman": float(spearmanr(truth, value).statistic),
        "regret": float((truth.max() - truth[value.argmax()]) / spread),
        "coverage": float(covers.mean()),
        "coverage_without_allowance": float(narrow.mean()),
        "error": float(np.abs(value - truth).mean() / spread),
        "inside": float(np.mean([figures.inside for figures in whole])),
    }


def measure(results: dict[str, Any], folder: Path) -> None:
    for task in TASKS:
        federation = None
        for label, (_, _, rounds) in POLICIES.items():
            names = [f"{label}, round {number}" for number in rounds]
            if all(name in results.get(task, {}) for name in names):
                continue
            federation = federation or federation_of(task)
            for name, policy in trained(task, label, federation, folder).items():
                if name not in results.setdefault(task, {}):
                    results[task][name] = measured(policy, task, federation)
                    write_atomically(RESULTS, (json.dumps(results, indent=1) + "\n").encode())
                    print(task, name, round(results[task][name]["true_value"], 1), flush=True)


def write_tables(results: dict[str, Any]) -> None:
    rows = []
    for task, entries in results.items():
        found = summary(task, entries)
        rows.append(
            f"| {task} | {found['policies']:.0f} | {found['spearman']:.2f} | {found['regret']:.2f} "
            f"| {100 * found['coverage']:.0f} % | {100 * found['coverage_without_allowance']:.0f} % "
            f"| {found['error']:.2f} | {100 * found['inside']:.0f} % |"
        )
    head = [
        "| task | policies | rank correlation | regret@1 | covered | covered, no allowance | error | inside |",
        "|---|---|---|---|---|---|---|---|",
    ]
    write_table(PAGE, "calibration", [*head, *rows])
    detail = [
        "| task | policy | score | true value | estimate [90 % interval] | inside |",
        "|---|---|---|---|---|---|",
    ]
    for task, entries in results.items():
        for name, entry in entries.items():
            f = Verdict.from_json(entry["verdict"], "results").federation
            score = "" if entry["score"] is None else f"{entry['score']:.1f}"
            inside = "" if f.inside is None else f"{100 * f.inside:.0f} %"
            estimate = f"{f.value:.1f} [{f.low:.1f}, {f.high:.1f}]"
            detail.append(f"| {task} | {name} | {score} | {entry['true_value']:.1f} | {estimate} | {inside} |")
    write_table(PAGE, "calibration-policies", detail)


def write_table(page: Path, marker: str, lines: list[str]) -> None:
    """Put a table between its two markers on the page."""
    start, end = f"<!-- table: {marker} -->", f"<!-- end of table: {marker} -->"
    text = page.read_text(encoding="utf-8")
    head, tail = text.split(start)[0], text.split(end)[1]
    page.write_text(f"{head}{start}\n" + "\n".join(lines) + f"\n{end}{tail}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables-only", action="store_true")
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/judge-calibration"), help="where policies are kept"
    )
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.tables_only:
        options.folder.mkdir(parents=True, exist_ok=True)
        measure(results, options.folder)
    write_tables(results)


if __name__ == "__main__":
    main()
