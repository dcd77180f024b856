"""What the behaviour in each dataset returns: results/behaviour_returns.json and the table in docs/data.md.

    python benchmarks/behaviour_returns.py [TASK ...]

Measures all tasks, or those named, and leaves the rest of the file as it is. Data is made afresh, not read from the
store. Each dataset is played for at least 20 episodes and 20,000 steps.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fova.tasks import registry
from fova.tasks.registry import Task

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "behaviour_returns.json"
PAGE = ROOT / "docs" / "data.md"
START, END = "<!-- table of behaviour returns: benchmarks/behaviour_returns.py -->", "<!-- end of the table -->"
EPISODES, STEPS, SEED = 20, 20_000, 0

# Mean return of D4RL's own datasets, where somebody has published it in a place we could read.
NOTES = "the -v2 file, as noted in github.com/RamiRibat/decision-transformer-ammi, gym/config/dt_gym_{}.py"
JOINED = (
    "medium and expert of the -v2 files joined, weighted by their episodes ({} and {}, rounded) as listed by "
    "huggingface.co/datasets/edbeeching/decision_transformer_gym_replay"
)
D4RL_MEANS = {
    "hopper/random": (18.3, "hopper-random-v1, github.com/Farama-Foundation/D4RL/issues/86"),
    "hopper/medium-replay": (467.30, NOTES.format("hopper")),
    "hopper/medium": (1422.06, NOTES.format("hopper")),
    "hopper/medium-expert": (2090.4, JOINED.format(2190, 1030)),
    "hopper/expert": (3511.36, NOTES.format("hopper")),
    "halfcheetah/medium-replay": (3093.29, NOTES.format("halfcheetah")),
    "halfcheetah/medium": (4770.33, NOTES.format("halfcheetah")),
    "halfcheetah/medium-expert": (7713.4, JOINED.format(1000, 1000)),
    "halfcheetah/expert": (10656.43, NOTES.format("halfcheetah")),
    "walker2d/medium-replay": (682.70, NOTES.format("walker2d")),
    "walker2d/medium": (2852.09, NOTES.format("walker2d")),
    "walker2d/medium-expert": (3796.6, JOINED.format(1190, 1000)),
    "walker2d/expert": (4920.51, NOTES.format("walker2d")),
}


def measure(task: Task, quality: str) -> dict[str, Any]:
    """Play one dataset's behaviour."""
    returns: list[float] = []
    steps = 0
    for episode in task.episodes(quality, STEPS, SEED):
        returns.append(float(episode.rewards.sum(dtype=np.float64)))
        steps += len(episode)
        if len(returns) >= EPISODES and steps >= STEPS:
            break
    mean = float(np.mean(returns))
    score = task.normalised_score(mean)
    return {
        "episodes": len(returns),
        "steps": steps,
        "mean_return": round(mean, 1),
        "spread": round(float(np.std(returns)), 1),
        "normalised_score": None if score is None else round(score, 1),
        "d4rl_reference": {"random": task.random_score, "expert": task.expert_score}.get(quality),
    }


def table(datasets: dict[str, dict[str, Any]]) -> str:
    """The results in Markdown."""
    lines = [
        "| dataset | mean return | spread | episodes | score | D4RL's reference | mean return of D4RL's data |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in datasets.items():
        figures = (found[key] for key in ("normalised_score", "d4rl_reference", "d4rl_mean_return"))
        shown = " | ".join("" if figure is None else f"{figure:,.1f}" for figure in figures)
        lines.append(
            f"| {name} | {found['mean_return']:,.1f} | {found['spread']:,.1f} | {found['episodes']} | {shown} |"
        )
    return "\n".join(lines)


def main() -> None:
    before = json.loads(RESULTS.read_text())["datasets"] if RESULTS.exists() else {}
    measured: dict[str, dict[str, Any]] = {}
    for name in registry.names():
        task = registry.get(name)
        wanted = not sys.argv[1:] or name in sys.argv[1:]
        for quality in task.qualities:
            dataset = f"{name}/{quality}"
            if wanted:
                measured[dataset] = measure(task, quality)
                print(dataset, measured[dataset]["mean_return"], flush=True)
            elif dataset in before:
                measured[dataset] = before[dataset]
            if dataset in measured:
                mean, source = D4RL_MEANS.get(dataset, (None, None))
                measured[dataset] |= {"d4rl_mean_return": mean, "d4rl_mean_return_from": source}
    versions = {
        package: version(package) for package in ("fova", "gymnasium", "gymnasium-robotics", "mujoco", "numpy")
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"seed": SEED, "versions": versions, "datasets": measured}, indent=2) + "\n")
    page = PAGE.read_text(encoding="utf-8")
    head, tail = page.split(START)[0], page.split(END)[1]
    PAGE.write_text(f"{head}{START}\n{table(measured)}\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
