"""FOVA and its rivals with the same client weights, where the records are odd: results/odd_records.json.

    .venv/bin/python benchmarks/odd_records.py                 # measure what is missing, then write the table
    .venv/bin/python benchmarks/odd_records.py --seeds 0         # some seeds

Two expert and two random clients, as in `fova paper same-weights`, with the same networks, steps and seeds. Then
every reward gets a constant that makes all of them negative, or some clients' records are cut into short pieces. A
weight that depends on the zero of the reward or on the length of a record fails here. The table is on the page
docs/study-mixed-quality.md.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from federation_scores import ROOT, write_table

import fova
from fova.data.transitions import Episode, Transitions, from_episodes
from fova.evaluation.statistics import mean_over_runs
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.paper.study import FIVE_SEEDS, RECOMMENDED, SAME_WEIGHTS
from fova.tasks import registry

RESULTS = ROOT / "results" / "odd_records.json"
PAGE = ROOT / "docs" / "study-mixed-quality.md"
MARKER = "odd records"
SCALE = FIVE_SEEDS["small"]
SIZE = 5_000
PIECE = 50  # steps of a record that was cut short
BELOW = 1.0  # the highest reward after the change is so far below 0

Clients = dict[str, Transitions]


# --- What is odd ------------------------------------------------------------------------------------------


def all_negative(clients: Clients) -> Clients:
    """Every reward minus one constant, the same for all clients, so that the highest is below 0."""
    highest = max(float(data.rewards.max()) for data in clients.values())
    return {
        name: replace(data, rewards=data.rewards - np.float32(highest + BELOW)) for name, data in clients.items()
    }


def cut_short(clients: Clients, quality: str) -> Clients:
    """The records of the clients of one quality, in pieces of 50 steps."""
    return {
        name: from_episodes([piece for episode in data.episodes() for piece in pieces(episode)])
        if name.startswith(quality)
        else data
        for name, data in clients.items()
    }


def pieces(episode: Episode) -> list[Episode]:
    """An episode as several records. Only the last of them can have ended by itself."""
    return [
        Episode(
            observations=episode.observations[start : start + PIECE + 1],
            actions=episode.actions[start : start + PIECE],
            rewards=episode.rewards[start : start + PIECE],
            terminated=episode.terminated and start + PIECE >= len(episode),
        )
        for start in range(0, len(episode), PIECE)
    ]


# In this case every algorithm counts rewards from the federation's zero, in its unit, as FOVA does by default.
SAME_ZERO = "the same, counted from the lowest by all"
# On Hopper episodes end when it falls. A constant would change what is best there, so its rewards are left alone.
CASES = {
    "halfcheetah, all rewards negative": ("halfcheetah", all_negative),
    SAME_ZERO: ("halfcheetah", all_negative),
    "halfcheetah, expert records of 50 steps": ("halfcheetah", lambda clients: cut_short(clients, "expert")),
    "halfcheetah, random records of 50 steps": (
        "halfcheetah",
        lambda clients: cut_short(clients, "random"),
    ),
    "hopper, expert records of 50 steps": ("hopper", lambda clients: cut_short(clients, "expert")),
}
SETTINGS = {SAME_ZERO: {"reward_unit": "federation"}}
VARIANTS = {variant.label: variant for variant in (RECOMMENDED, *SAME_WEIGHTS)}


# --- The measurement --------------------------------------------------------------------------------------


def federation(case: str, seed: int) -> Federation:
    name, change = CASES[case]
    task = registry.get(name)
    specs = [ClientSpec(quality, SIZE) for quality in ("expert", "expert", "random", "random")]
    built = Federation.build(specs, task, seed)
    return Federation.of(change(dict(built.clients)), task)


def score(case: str, label: str, seed: int) -> float:
    variant = VARIANTS[label]
    settings = {name: value for name, value in SCALE.settings.items() if name != "samples"}
    if variant.algorithm == "fed-bc":
        del settings["critic_lr"]
    with tempfile.TemporaryDirectory() as folder:
        result = fova.train(
            clients=federation(case, seed),
            algorithm=variant.algorithm,
            preset=variant.preset,
            directory=Path(folder) / "run",
            seed=seed,
            **SCALE.run | {"evaluate_every": 0} | settings | variant.run | SETTINGS.get(case, {}),
        )
    assert result.server is not None
    assert result.server.score is not None
    return round(result.server.score, 1)


def measure(seeds: list[int], scores: dict[str, dict[str, float]]) -> None:
    """Every run that is missing. The file is written after each run, so that a measurement can be continued."""
    for seed in seeds:
        for case in CASES:
            for label in VARIANTS:
                line = scores.setdefault(f"{case} / {label}", {})
                if str(seed) not in line:
                    line[str(seed)] = score(case, label, seed)
                    print(f"{case} / {label}, seed {seed}: {line[str(seed)]}", flush=True)
                    content: dict[str, Any] = {"scale": SCALE.words(), "size": SIZE, "scores": scores}
                    RESULTS.write_text(json.dumps(content, indent=1) + "\n")


def load() -> dict[str, dict[str, float]]:
    return json.loads(RESULTS.read_text())["scores"] if RESULTS.exists() else {}


def rows(scores: dict[str, dict[str, float]]) -> list[list[str]]:
    """The lines of the table: a case, then the mean and the single seeds of each algorithm."""
    return [
        [case, *(mean_over_runs(list(scores[f"{case} / {label}"].values())).text() for label in VARIANTS)]
        for case in CASES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    scores = load()
    measure(parser.parse_args().seeds, scores)
    write_table(MARKER, rows(scores), ("", *VARIANTS), PAGE)


if __name__ == "__main__":
    main()
