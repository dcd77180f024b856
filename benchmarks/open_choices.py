"""What the descriptions of the baselines leave open: what our choice does, measured in a small setting.

    .venv/bin/python benchmarks/open_choices.py                 # everything; what is measured already is kept
    .venv/bin/python benchmarks/open_choices.py fedora fed-bc   # some algorithms
    .venv/bin/python benchmarks/open_choices.py --table         # prints what is measured, as Markdown

Two expert and two random clients in maze2d-umaze, small networks, few steps: enough to see which choices matter,
not to rank algorithms. Writes results/open_choices.json.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import fova
from fova.evaluation.statistics import mean_over_runs

RESULTS = Path(__file__).parents[1] / "results" / "open_choices.json"
SETTING: dict[str, Any] = {
    "task": "maze2d-umaze",
    "clients": ["expert", "expert", "random", "random"],
    "size": 2000,
    "rounds": 20,
    "local_steps": 100,
    "hidden": (64, 64),
    "batch_size": 64,
    "final_episodes": 20,
}
# name -> what is different from our default; the first of each algorithm is the default itself
CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    "fed-td3bc": {
        "ours": {},
        "observations as they are": {"normalise": False},
        "LayerNorm in the critics": {"critic_layer_norm": True},
    },
    "fedora": {
        "ours": {},
        "observations as they are (as published)": {"normalise": False},
        "LayerNorm in the critics": {"critic_layer_norm": True},
        "the larger value is not taken as target": {"optimistic": False},
    },
    "fed-bc": {
        "ours: Gaussian, clipped": {},
        "Gaussian, squashed": {"actor": "squashed"},
        "deterministic": {"actor": "deterministic"},
    },
    "fed-iql": {"ours: Gaussian, clipped": {}, "Gaussian, squashed": {"actor": "squashed"}},
    "drpo": {"ours": {"preset": "paper"}, "gradient not clipped": {"preset": "paper", "gradient_clip": 0.0}},
    "cql-fl": {
        "ours: Gaussian, squashed": {"preset": "paper"},
        "Gaussian, clipped": {"preset": "paper", "actor": "clipped"},
    },
}
SEEDS = range(3)


def measure(algorithm: str, choice: dict[str, Any], seed: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = fova.train(
            **(SETTING | choice), algorithm=algorithm, seed=seed, evaluate_every=0, directory=Path(folder) / "run"
        )
    assert result.server is not None
    return result.server.mean_return


def load() -> dict[str, dict[str, list[float]]]:
    measured: dict[str, dict[str, list[float]]] = {}
    if RESULTS.exists():
        measured = json.loads(RESULTS.read_text())["returns"]
    return measured


def table(returns: dict[str, dict[str, list[float]]]) -> str:
    lines = []
    for algorithm, choices in returns.items():
        lines += ["", f"| {algorithm} | server's return, {len(SEEDS)} seeds |", "|---|---:|"]
        lines += [f"| {name} | {mean_over_runs(values).text()} |" for name, values in choices.items()]
    return "\n".join(lines[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", nargs="*", metavar="algorithm", help=f"of {', '.join(CHOICES)}")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    returns = load()
    if options.table:
        print(table(returns))
        return
    for algorithm in options.algorithms or CHOICES:
        for name, choice in CHOICES[algorithm].items():
            if name in returns.get(algorithm, {}):
                continue
            values = [measure(algorithm, choice, seed) for seed in SEEDS]
            returns.setdefault(algorithm, {})[name] = values
            RESULTS.write_text(json.dumps({"setting": SETTING, "returns": returns}, indent=1) + "\n")
            print(f"{algorithm:10} {name:45} {mean_over_runs(values).text()}", flush=True)


if __name__ == "__main__":
    main()
