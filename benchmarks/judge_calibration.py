"""How far the judge is to be trusted: its estimates beside true returns. results/judge_calibration.json.

    nice python benchmarks/judge_calibration.py

One command does everything: it makes the data, trains the policies, plays them, judges them and writes the tables
of docs/judging.md. For every task: a federation of four clients of unequal quality, nine policies (each client's
own clone, several algorithms, early and late rounds), their true discounted return from rollouts, and what the
judge says about each, with its default settings. Every policy and every verdict is kept when it is done. Interrupt
it at any time; the next start goes on with what is missing.

The criteria stand here, before anything is measured: `CRITERIA`. Settings of the judge are to be chosen on other
data and other policies: `--seed 100 --results other.json` makes some.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fova
from fova.evaluation.judging.judge import JudgeSettings, judge
from fova.evaluation.rollouts import play
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.machine.files import write_atomically
from fova.paper import calibration, marked
from fova.policy import Policy, load_policy
from fova.run.directory import RunDirectory
from fova.run.judged import own_policies
from fova.tasks import registry

RESULTS = Path("results/judge_calibration.json")
SEED = 1  # of the data, of which episodes are held out, and of the training
CRITERIA = {"rank_correlation": 0.7, "coverage": 0.8}  # least mean over tasks, least share of all 90 % intervals
HOLD_OUT = 0.5
FIGURES = ("value", "low", "high", "data_value", "bias", "episode_error", "fit_error", "inside")
TRAINING: dict[str, Any] = {
    "local_steps": 100, "hidden": (64, 64), "batch_size": 128, "actor_lr": 1e-3, "evaluate_every": 0,
    "final_episodes": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A task and its clients. Discounted by `discount`, what follows the time limit is negligible."""

    clients: tuple[str, ...]
    discount: float = 0.99
    size: int = 20_000
    episodes: int = 20  # rollouts of a policy


TASKS = {
    "hopper": Setting(("expert", "medium", "medium-replay", "random")),
    "halfcheetah": Setting(("expert", "medium", "medium-replay", "random")),
    "maze2d-umaze": Setting(("expert", "noisy", "undirected", "random"), discount=0.97, episodes=600),
    "sepsis": Setting(("expert", "fair", "clinician", "poor"), episodes=2000),
}
# label -> algorithm, settings, and the rounds whose policies are judged
POLICIES: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "own clone": ("fed-bc", {"mode": "local"}, ()),  # one policy of each client
    "fed-bc": ("fed-bc", {}, (40,)),
    "fed-bc by returns": ("fed-bc", {"aggregation": "returns"}, (5, 40)),
    "fova": ("fova", {}, (10, 40)),
}
POLICIES_OF_A_TASK = 4 + sum(len(rounds) for _, _, rounds in POLICIES.values())


def federation_of(task: str, seed: int) -> Federation:
    setting = TASKS[task]
    specs = [ClientSpec(quality, setting.size) for quality in setting.clients]
    return Federation.build(specs, registry.get(task), seed).holding_out(HOLD_OUT, seed)


def trained(task: str, label: str, federation: Federation, seed: int, folder: Path) -> dict[str, Policy]:
    """The policies of one training, by label. They are kept in `folder`."""
    algorithm, settings, rounds = POLICIES[label]
    settings = settings | TRAINING | {"seed": seed}
    directory = folder / f"{task}-{label.replace(' ', '-')}"
    if not (directory / "done").exists():

        def keep(summary: fova.RoundSummary) -> None:
            if summary.round in rounds and summary.policy is not None:
                summary.policy.save(directory / f"round-{summary.round}.safetensors")

        run = directory / f"run-{time.time_ns()}"  # an interrupted one is left alone
        last = max(rounds, default=40)
        fova.train(task, federation, algorithm=algorithm, directory=run, on_round=keep, rounds=last, **settings)
        (directory / "done").write_text(run.name)
    if not rounds:
        run = directory / (directory / "done").read_text()
        return {f"{label} of {name}": policy for name, policy in own_policies(RunDirectory.open(run)).items()}
    return {f"{label}, round {n}": load_policy(directory / f"round-{n}.safetensors") for n in rounds}


def measured(policy: Policy, task: str, federation: Federation) -> dict[str, Any]:
    """A policy's true value, and what the judge says about the federation."""
    setting = TASKS[task]
    truth = play({"policy": policy}, registry.get(task), setting.episodes, discount=setting.discount)["policy"]
    start = time.process_time()
    found = judge(policy, federation, setting.discount)
    return {
        "true_value": truth.mean_return,
        "true_error": float(truth.returns.std(ddof=1) / np.sqrt(setting.episodes)),
        "seconds": round(time.process_time() - start, 1),  # of processor time, for the judge
        "judged": {name: found.to_json()["federation"][name] for name in FIGURES},
    }


def measure(results: dict[str, Any], path: Path, folder: Path) -> None:
    seed = results["seed"]
    for number, task in enumerate(TASKS, start=1):
        done = results["tasks"].setdefault(task, {})
        if len(done) == POLICIES_OF_A_TASK:
            continue
        federation = federation_of(task, seed)
        for label in POLICIES:
            for name, policy in trained(task, label, federation, seed, folder).items():
                if name in done:
                    continue
                done[name] = measured(policy, task, federation)
                write_atomically(path, (json.dumps(results, indent=1) + "\n").encode())
                place = f"task {number} of {len(TASKS)}, policy {len(done)} of {POLICIES_OF_A_TASK}"
                truth, judged = done[name]["true_value"], done[name]["judged"]
                interval = f"[{judged['low']:.4g}, {judged['high']:.4g}]"
                print(
                    f"{place}: {task}, {name}: true {truth:.4g}, judged {judged['value']:.4g} {interval}",
                    flush=True,
                )


def conclude(path: Path) -> None:
    """Print whether the criteria hold."""
    tasks = calibration.load(path).values()
    found = {
        "rank_correlation": float(np.mean([task.rank_correlation for task in tasks])),
        "coverage": float(np.concatenate([task.covered for task in tasks]).mean()),
    }
    for name, least in CRITERIA.items():
        print(f"{name}: {found[name]:.2f}, at least {least} wanted: {'yes' if found[name] >= least else 'NO'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/judge-calibration"), help="keeps the policies")
    parser.add_argument("--seed", type=int, default=SEED, help="other seeds are for choosing settings of the judge")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    settings = asdict(JudgeSettings())
    judge_settings = settings | {"hidden": list(settings["hidden"])}
    fresh = {"seed": options.seed, "judge": judge_settings, "hold_out": HOLD_OUT, "tasks": {}}
    path: Path = options.results
    results = json.loads(path.read_text()) if path.exists() else fresh
    if results | {"tasks": {}} != fresh:
        parser.error(f"{path} was measured with another seed or other settings. Move it away to begin anew.")
    folder = options.folder / f"seed-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    measure(results, path, folder)
    conclude(path)
    if path == RESULTS:
        marked.main(Path())


if __name__ == "__main__":
    main()
