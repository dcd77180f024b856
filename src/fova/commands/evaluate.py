"""`fova evaluate`: play the policies of a run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fova.commands.flags import parse
from fova.commands.terminal import Terminal
from fova.errors import FovaError
from fova.settings import SEEDS, Within

if TYPE_CHECKING:
    from fova.policy import Policy


@dataclass(frozen=True)
class EvaluateOptions:
    """Play the policies of a run in its task and print their returns."""

    run: Path
    """The run's directory, for instance runs/fova-maze2d-umaze-1, or a policy's .safetensors file."""
    episodes: Annotated[int, Within(1, 100_000)] = 20
    """Episodes to play with each policy."""
    seed: Annotated[int | None, SEEDS] = None
    """Seed of the first episode; the seeds of later episodes count up from it (default: as in training)."""
    clients: bool = False
    """Also play every client's own policy."""
    task: str | None = None
    """Play in this task instead of the one the policy was trained for."""
    json: bool = False
    """Print JSON instead of a table."""


def command(arguments: list[str]) -> None:
    options = parse(EvaluateOptions, "fova evaluate", arguments, positional=True)
    from fova.evaluation.rollouts import first_seed, play
    from fova.tasks import registry

    policies = _policies(options)
    facts = next(iter(policies.values())).facts
    task = facts.get("task") if options.task is None else options.task
    if task == "":
        raise FovaError("task is empty. Name one of `fova tasks`, or leave --task out.")
    if not task:
        raise FovaError(
            "This policy was trained without a task, so there is nothing to play. Name one with --task."
        )
    seed = first_seed(facts.get("seed", 0)) if options.seed is None else options.seed
    played = play(policies, registry.get(task), options.episodes, seed)
    if options.json:
        print(json.dumps({name: rollouts.to_json() for name, rollouts in played.items()}, indent=2))
        return
    from fova.reports.tables import rollouts_table

    Terminal().print(rollouts_table(played))


def _policies(options: EvaluateOptions) -> "dict[str, Policy]":
    """The server's policy. With --clients, or if the run has no server, also the clients' policies."""
    without_server = options.run.is_dir() and not (options.run / "policy.safetensors").exists()
    if options.clients or (without_server and (options.run / "checkpoints").is_dir()):
        from fova.run.training import policies_of

        return policies_of(options.run)
    from fova.policy import load_policy

    return {"server": load_policy(options.run)}
