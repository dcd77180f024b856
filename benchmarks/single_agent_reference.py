"""Our TD3+BC and CQL, centralised, beside a well-known single-agent implementation on the same rows and budget.

    python -m venv reference && reference/bin/pip install d3rlpy gymnasium mujoco
    .venv/bin/python benchmarks/single_agent_reference.py reference/bin/python --rows 20000 --steps 10000

Both train on the very same normalised rows with the same widths, batch size, learning rates and number of gradient
steps, and play the same episodes at the end with their best actions. Prints a table of ratios and writes
results/single_agent_reference.json.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import fova
from fova.clients import ClientSpec, Federation
from fova.evaluation.rollouts import EVALUATION_SEED, play
from fova.tasks import registry

OURS = {
    "td3bc": ("fed-td3bc", {}),
    "cql": ("cql-fl", {"hidden": (256, 256)}),
}


def reference(
    python: str, rows: Path, name: str, steps: int, seed: int, environment: str, episodes: int
) -> list[float]:
    side = Path(__file__).with_name("d3rlpy_side.py")
    command = [python, side, rows, name, steps, seed, environment, episodes, EVALUATION_SEED]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"The reference failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def ours(name: str, federation: Federation, steps: int, seed: int, episodes: int, directory: Path) -> list[float]:
    algorithm, settings = OURS[name]
    rounds = max(1, steps // 1000)
    run = {"rounds": rounds, "local_steps": steps // rounds, "seed": seed, "evaluate_every": 0, "final_episodes": 1}
    result = fova.train(
        clients=federation, algorithm=algorithm, directory=directory / f"{name}-{seed}", **run, **settings
    )
    assert result.policy is not None
    assert federation.task is not None
    return list(play({"ours": result.policy}, federation.task, episodes)["ours"].returns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", help="a Python that has d3rlpy, gymnasium and mujoco")
    parser.add_argument("--task", default="hopper")
    parser.add_argument("--environment", default="Hopper-v5")
    parser.add_argument("--quality", default="medium-expert")
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--algorithms", nargs="+", choices=list(OURS), default=list(OURS))
    options = parser.parse_args()
    task = registry.get(options.task)
    federation = Federation.build([ClientSpec(options.quality, options.rows)], task)
    normaliser = federation.normaliser()
    data = next(iter(federation.prepared(normaliser).values()))
    table = []
    with tempfile.TemporaryDirectory() as scratch:
        rows = Path(scratch) / "rows.npz"
        np.savez(
            rows,
            observations=data.observations,
            actions=data.actions,
            rewards=data.rewards,
            terminals=data.terminals,
            timeouts=(data.episode_ends & (data.terminals == 0)).astype(np.float32),
            mean=normaliser.mean,
            std=normaliser.std,
        )
        for name in options.algorithms:
            for seed in range(options.seeds):
                theirs = reference(
                    options.reference, rows, name, options.steps, seed, options.environment, options.episodes
                )
                mine = ours(name, federation, options.steps, seed, options.episodes, Path(scratch))
                line = {"algorithm": name, "seed": seed, "ours": np.mean(mine), "d3rlpy": np.mean(theirs)}
                table.append({key: float(v) if isinstance(v, np.floating) else v for key, v in line.items()})
                print(f"{name:6} seed {seed}   ours {line['ours']:8.1f}   d3rlpy {line['d3rlpy']:8.1f}", flush=True)
    setting = {key: value for key, value in vars(options).items() if key != "reference"}
    path = Path(__file__).parents[1] / "results" / "single_agent_reference.json"
    path.write_text(json.dumps({"setting": setting, "returns": table}, indent=2) + "\n")
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
