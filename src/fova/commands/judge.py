"""`fova judge`: how good the policies of runs are, from logged episodes alone."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fova.commands.flags import parse
from fova.commands.terminal import Terminal
from fova.errors import FovaError

if TYPE_CHECKING:
    from fova.run.judged import Judged

SETTINGS = ("rounds", "steps", "critics", "hidden", "batch_size", "critic_lr", "huber", "aggregation", "seed")

NOT_COMPARABLE = (
    "These runs were judged on different episodes, so their values are not comparable. Train them with the same "
    "clients, --seed and --hold-out, or judge them on the same files with --data."
)


@dataclass(frozen=True)
class JudgeOptions:
    """Judge the policies of runs without a simulator, on the episodes that the runs held out.

    One run: tables and a verdict for every client. Several: a ranking, too. The verdict is written to judge.json in
    the run's directory, where `fova report` finds it. A policy's file inside a run's directory can stand in the
    place of a run, for instance a round in best/ or a client's own policy in clients/.
    """

    runs: tuple[Path, ...]
    """Directories of runs, for instance runs/wards, or policies inside them."""
    data: tuple[str, ...] = ()
    """Judge on these data files instead, one per client. They must not have trained the policy."""
    rounds: int = 60
    """Rounds of the fit."""
    steps: int = 100
    """Gradient steps of every critic at every client in a round."""
    critics: int = 4
    """Repetitions of the fit; their spread is part of the intervals."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the critics' hidden layers."""
    batch_size: int = 128
    """Transitions in a minibatch."""
    critic_lr: float = 1e-3
    """Adam's learning rate."""
    huber: float = 1.0
    """Error, in units of reward, beyond which the loss is linear; 0 is the squared loss."""
    aggregation: str = "algorithm"
    """How the server combines critics: algorithm (by rows), uniform, median, trimmed-mean or krum."""
    seed: int = 0
    """Seed of the fit. The same seed gives the same figures."""
    json: bool = False
    """Print JSON instead of tables."""
    quiet: bool = False
    """Show no progress."""
    plain: bool = False
    """Print plain lines instead of a live display."""


def command(arguments: list[str]) -> None:
    options = parse(JudgeOptions, "fova judge", arguments, positional=True)
    if not options.runs:
        raise FovaError("Name at least one run, for instance: fova judge runs/wards")
    if len({os.path.realpath(run) for run in options.runs}) < len(options.runs):
        raise FovaError("A run is named twice. Name each run once.")
    from fova.evaluation.judging.judge import JudgeSettings
    from fova.progress import choose
    from fova.run.judged import Judged, judge_run, run_and_policy

    settings = JudgeSettings(**{name: getattr(options, name) for name in SETTINGS})
    for run in options.runs:
        run_and_policy(run)  # a run that is not there is noticed before the first is judged
    terminal = Terminal()
    progress = choose(options.quiet or options.json, options.plain, terminal)
    try:
        judged = [Judged(run, judge_run(run, settings, options.data, progress=progress)) for run in options.runs]
    finally:
        progress.finish()
    if options.json:
        print(json.dumps({str(one.path): one.verdict.to_json() for one in judged}, indent=2))
        return
    _show(judged, bool(options.data), terminal)


def _show(judged: "list[Judged]", on_new_data: bool, terminal: Terminal) -> None:
    from fova.reports.ranking import ranking_sentence
    from fova.reports.verdicts import ranking_table, trust_table, verdict_table
    from fova.run.judged import comparable, ranked

    for one in judged:
        terminal.write_line(f"{one.path}: {one.verdict.policy}")
        terminal.print(verdict_table(one.verdict))
        terminal.print(trust_table(one.verdict))
        terminal.write_line(one.verdict.sentence())
        if one.path.is_dir() and not on_new_data:
            terminal.write_line(f"verdict  {one.path / 'judge.json'}")
    if len(judged) > 1:
        ranking = [(str(one.path), one.verdict) for one in ranked(judged)]
        terminal.print(ranking_table(ranking))
        verdicts = [(name, [verdict]) for name, verdict in ranking]
        terminal.write_line(ranking_sentence(verdicts) if comparable(judged) else NOT_COMPARABLE)
