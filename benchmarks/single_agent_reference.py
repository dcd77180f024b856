"""Our TD3+BC and CQL, centralised, beside a well-known single-agent implementation on the same rows and budget.

    python -m venv reference && reference/bin/pip install d3rlpy gymnasium mujoco
    .venv/bin/python benchmarks/single_agent_reference.py reference/bin/python td3bc --steps 15000
    .venv/bin/python benchmarks/single_agent_reference.py --table

Both train on the very same normalised rows with the same widths, batch size, learning rates and number of gradient
steps, and play the same episodes with their best actions, several times on the way. What was measured is added to
results/single_agent_reference.json, and what is there already is not measured again. `--table` prints it.
"""

import argparse
import json
import subprocess
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

import fova
from fova.evaluation.rollouts import EVALUATION_SEED
from fova.evaluation.statistics import mean_over_runs
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.federation.statistics import client_statistics, common_normaliser
from fova.run.directory import RunDirectory
from fova.tasks import registry

RESULTS = Path(__file__).parents[1] / "results" / "single_agent_reference.json"
OURS = {"td3bc": ("fed-td3bc", "published"), "cql": ("cql-fl", "paper")}  # algorithm and preset


# --- Measuring ---


def reference(python: str, rows: Path, setting: dict[str, Any]) -> list[float]:
    side = Path(__file__).with_name("d3rlpy_side.py")
    told = rows.with_name("setting.json")
    told.write_text(json.dumps(setting))
    done = subprocess.run([python, side, rows, told], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"The reference failed:\n{done.stderr[-2000:]}")
    returns: list[float] = json.loads(done.stdout.splitlines()[-1])
    return returns


def ours(federation: Federation, setting: dict[str, Any], scratch: Path) -> list[float]:
    algorithm, preset = OURS[setting["algorithm"]]
    result = fova.train(
        clients=federation,
        algorithm=algorithm,
        preset=preset,
        directory=scratch / "run",
        rounds=setting["evaluations"],
        local_steps=setting["steps"] // setting["evaluations"],
        evaluate_every=1,
        final_episodes=1,
        **{name: setting[name] for name in ("seed", "episodes", "batch_size", "actor_lr", "critic_lr")},
        hidden=tuple(setting["hidden"]),
    )
    return [entry["server"]["return"] for entry in RunDirectory.open(result.directory).metrics()[1:]]


def write_rows(federation: Federation, path: Path) -> None:
    told = {name: client_statistics(data) for name, data in federation.clients.items()}
    normaliser, _ = common_normaliser(told, federation.space.observation)
    data = next(iter(federation.prepared(normaliser).values()))
    np.savez(
        path,
        observations=data.observations,
        actions=data.actions,
        rewards=data.rewards,
        terminals=data.terminals,
        timeouts=(data.episode_ends & (data.terminals == 0)).astype(np.float32),
        mean=normaliser.mean,
        std=normaliser.std,
    )


def measure(python: str, setting: dict[str, Any]) -> dict[str, Any]:
    task = registry.get(setting["task"])
    federation = Federation.build([ClientSpec(setting["quality"], setting["rows"])], task)
    behaviour = next(iter(federation.clients.values())).whole_episode_returns().mean()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        write_rows(federation, rows)
        curves = {"ours": ours(federation, setting, Path(folder)), "d3rlpy": reference(python, rows, setting)}
    return {"setting": setting, "behaviour": float(behaviour), **curves}


# --- The file and the table ---


def load() -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return runs


def group_of(run: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in run["setting"].items() if name != "seed"})


def table(runs: list[dict[str, Any]]) -> str:
    """One line per setting: the mean over the later half of each curve, and its interval over seeds."""
    lines = [
        "| data | algorithm | steps | seeds | behaviour | ours | d3rlpy |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for _, group in groupby(sorted(runs, key=group_of), group_of):
        members = list(group)
        setting = members[0]["setting"]
        late = {
            side: mean_over_runs([np.mean(run[side][len(run[side]) // 2 :]) for run in members])
            for side in ("ours", "d3rlpy")
        }
        lines.append(
            f"| {setting['task']} {setting['quality']}, {setting['rows']:,} rows | {setting['algorithm']} "
            f"| {setting['steps']:,} | {len(members)} | {members[0]['behaviour']:.0f} "
            f"| {late['ours']} | {late['d3rlpy']} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", nargs="?", help="a Python that has d3rlpy, gymnasium and mujoco")
    parser.add_argument("algorithm", nargs="?", choices=list(OURS))
    parser.add_argument("--task", default="halfcheetah")
    parser.add_argument("--quality", default="medium-expert")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--steps", type=int, default=15_000)
    parser.add_argument("--evaluations", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--actor-lr", type=float, default=3e-4)
    parser.add_argument("--critic-lr", type=float, default=3e-4)
    parser.add_argument("--table", action="store_true", help="print what is measured already, as Markdown")
    setting = vars(parser.parse_args())
    python, seeds = setting.pop("reference"), setting.pop("seeds")
    if setting.pop("table"):
        print(table(load()))
        return
    if python is None or setting["algorithm"] is None:
        parser.error("Give the other Python and an algorithm, or --table.")
    specification = registry.get(setting["task"]).make().spec
    setting |= {"environment": specification.id, "evaluation_seed": EVALUATION_SEED}
    for seed in seeds:
        if any(run["setting"] == setting | {"seed": seed} for run in load()):
            continue
        run = measure(python, setting | {"seed": seed})
        RESULTS.write_text(json.dumps([*load(), run], indent=1) + "\n")
        print(
            f"seed {seed}",
            *(f"{s} {np.round(run[s]).astype(int).tolist()}" for s in ("ours", "d3rlpy")),
            flush=True,
        )


if __name__ == "__main__":
    main()
