"""Run directories written by hand, so that every figure in a report can be foretold."""

import json
from pathlib import Path
from typing import Any

CLIENTS = {
    "expert-1": {"rows": 100, "episodes": 2, "behaviour_return": 40.0},
    "random-1": {"rows": 50, "episodes": 10, "behaviour_return": 10.0},
}


def shares(behaviour: float, world: float) -> dict[str, float]:
    """A client's metrics in one round."""
    return {
        "vote_local": 1.0 - behaviour - world,
        "vote_behaviour": behaviour,
        "vote_global": world,
        "weight": 0.5,
        "value": 10.0 * behaviour,
        "rows": 100.0,
        "policy_distance": 0.25,
    }


def make_run(
    directory: Path,
    seed: int = 0,
    rounds: int = 10,
    shift: float = 0.0,
    finished: bool = True,
    algorithm: str = "fova",
    task: str | None = "maze2d-umaze",
    clients: str = '[{ data = "expert", size = 100 }, { data = "random", size = 100 }]',
    extra: str = "",
) -> Path:
    """A run whose server's return grows from `shift` by 3 a round; played every second round and at the end.

    The expert client's data wins ever more of its votes, the global policy those of the random client.
    """
    directory.mkdir(parents=True)
    task_line = f'task = "{task}"\n' if task else ""
    (directory / "config.toml").write_text(
        f"{task_line}client = {clients}\n[run]\nrounds = {rounds}\nlocal_steps = 100\nseed = {seed}\n"
        f'[algorithm]\nname = "{algorithm}"\n{extra}'
    )
    (directory / "clients.json").write_text(json.dumps(CLIENTS))
    metrics = [_entry(number, rounds, shift, algorithm, task) for number in range(rounds + 1)]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in metrics))
    if finished:
        result = {
            "server": {"return": 3.0 * rounds + shift, "score": 50.0 + shift},
            "expert-1": {"return": 36.0 + shift, "score": 60.0},
            "random-1": {"return": 14.0 + shift, "score": 5.0},
        }
        (directory / "result.json").write_text(json.dumps(result if task else {}))
    return directory


def _entry(number: int, rounds: int, shift: float, algorithm: str, task: str | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"round": number}
    if task and number % 2 == 0:
        entry["server"] = {"return": 3.0 * number + shift, "score": 0.0}
    if number and algorithm == "fova":
        grown = 0.4 * number / rounds
        entry["clients"] = {"expert-1": shares(0.5 + grown, 0.05), "random-1": shares(0.3, 0.2 + grown)}
    return entry
