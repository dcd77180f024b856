"""Results of earlier runs that stand for planned ones, so that a grid can grow after its run directories are gone.

A run of a result file stands for a planned run if both have the same settings and their clients hold the same
data. Its labels do not matter: a variant or a preset may have another name now. The data is made or loaded anew to
compare it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fova.experiments.results import RunResult, about, in_json
from fova.experiments.specifications import PlannedRun
from fova.run.config import Config
from fova.run.simulated import describe
from fova.run.training import trained_on

COMPARED = ("algorithm", "preset", "settings", "run", "task", "seed", "gradient_steps")
LABELS = ("name", "case", "variant", "at", "paper", "preset", "settings", "run")


class Kept(NamedTuple):
    """The results that are kept, and why others are not."""

    runs: list[RunResult]
    refused: dict[str, str]  # name -> reason


def keep(results: Iterable[RunResult], planned: Sequence[PlannedRun]) -> Kept:
    """The results that stand for planned runs, labelled as planned; the first where there are several."""
    by_name = {run.name: run for run in planned}
    now = {run.name: in_json(about(run)) for run in planned}
    by_settings = {(now[run.name]["algorithm"], now[run.name]["configuration"]): run for run in planned}
    kept: dict[str, RunResult] = {}
    refused: dict[str, str] = {}
    digests = _Digests()
    for result in results:
        run = by_name.get(result.name)
        if run is None or difference(result, run):
            run = by_settings.get((result.algorithm, result.configuration), run)
        if run is None or run.name in kept:
            continue
        reason = difference(result, run) or digests.difference(result, run.config)
        if reason:
            refused[run.name] = reason
        else:
            kept[run.name] = replace(result, **{label: now[run.name][label] for label in LABELS})
    return Kept(list(kept.values()), {name: why for name, why in refused.items() if name not in kept})


def difference(result: RunResult, planned: PlannedRun) -> str:
    """What differs between the settings of a result and those of a planned run; empty if nothing does."""
    now = in_json(about(planned))
    before = in_json({name: getattr(result, name) for name in now})
    if before["configuration"] is not None and all(before[n] == now[n] for n in ("algorithm", "configuration")):
        return ""
    for name in COMPARED:
        if before[name] != now[name]:
            return f"{name} was {_short(before[name], now[name])}, now {_short(now[name], before[name])}"
    if before["configuration"] is None:
        return "the file has no digest of its settings, and defaults may have changed since"
    return f"the settings of preset {before['preset']} or of the clients have changed"


def _short(value: Any, other: Any) -> str:
    """A value, and of a table only what the other table does not have."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {name: item for name, item in value.items() if other.get(name) != item}
    return json.dumps(value)


class _Digests:
    """Digests of the data of configurations. Runs that share data have it made once."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, str]] = {}

    def difference(self, result: RunResult, config: Config) -> str:
        """Which client of a result held other data than it would now; empty if none did."""
        before = {name: client.get("digest") for name, client in result.clients.items()}
        if None in before.values():
            return "the file has no digest of its data"
        now = self._now(config)
        if list(before) != list(now):
            return f"the clients were {', '.join(before)}, now they are {', '.join(now)}"
        changed = [name for name in now if before[name] != now[name]]
        return f"client {changed[0]} held other data" if changed else ""

    def _now(self, config: Config) -> dict[str, str]:
        run = config.run
        bounds = (run.action_low, run.action_high, run.actions, run.action_names)
        key = repr((config.task, config.clients, config.columns, run.seed, run.hold_out, run.data_sequence, bounds))
        if key not in self._of:
            clients = trained_on(config).whole_clients()
            self._of[key] = {name: str(describe(data)["digest"]) for name, data in clients.items()}
        return self._of[key]
