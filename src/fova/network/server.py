"""The ServerApp of a real federation: it runs the training loop with the engine on Flower.

The loop is that of every run, so a run over a network leaves the same files. Killed at any moment, the server goes
on as a new Flower run from the last checkpoint, and no round counts twice.
"""

import shutil
import time
from dataclasses import replace
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fova.errors import FovaError
from fova.evaluation.judging.judge import JudgeSettings
from fova.machine.interrupts import Interrupted, StopSignal
from fova.network import judging_server
from fova.network.asking import Asking, Pause
from fova.network.engine import HELLO_SECONDS, SECONDS_BETWEEN_LOOKS, FlowerEngine
from fova.network.journal import Journal
from fova.network.plan import Plan
from fova.network.secure_engine import SecureEngine
from fova.network.server_config import ServerConfig, make_plan, read_server
from fova.network.surveying import Surveyor, agreement
from fova.progress import Progress
from fova.run.config import load_config
from fova.run.directory import VERDICT, RunDirectory
from fova.run.loop import Finished, Loop
from fova.tasks import registry

STOP_REQUEST = "stop-request"  # a file in the run's directory that asks the server to stop after this round

app = ServerApp()


def train(grid: Grid, run: RunDirectory, progress: Progress, pause: Pause = time.sleep) -> Finished:
    """Train the run in this directory over the clients that the grid reaches, from where it stands."""
    config = load_config(run.path / "config.toml")
    run_id, network = read_server(run)
    request = run.path / STOP_REQUEST
    request.unlink(missing_ok=True)
    loop: Loop | None = None

    def pause_unless_stopped(seconds: float) -> None:
        if request.exists():
            raise Interrupted(loop.what_is_kept() if loop else "Stopped before training began.")
        pause(seconds)

    surveyor = Surveyor(Asking(grid, progress, pause_unless_stopped, pause), run_id, network.min_clients)
    seconds = min(HELLO_SECONDS, network.deadline)
    agreed = agreement(run, config, lambda columns: surveyor.gather(columns, seconds, SECONDS_BETWEEN_LOOKS))
    plan = make_plan(config, network, run_id, agreed)
    answers = run.path / "answers"

    def start(plan: Plan) -> FlowerEngine:
        kind = SecureEngine if plan.secure else FlowerEngine
        return kind(grid, plan, network, progress, pause_unless_stopped, pause, answers)

    engine = start(plan)
    task = registry.get(config.task) if config.task else None
    # Every round is saved: its clients have moved on and cannot repeat it.
    config = replace(config, algorithm=plan.algorithm, run=replace(config.run, checkpoint_seconds=0.0))
    loop = Loop(config, run, engine, task, progress, plan.privacy, "fova server --resume")
    try:
        with run.lock():
            finished = loop.finish(loop.train(StopSignal(progress.note, request.exists, threads=False)))
            if network.judge:
                judge_policy(plan, run, network, start)
    finally:
        request.unlink(missing_ok=True)
        shutil.rmtree(answers, ignore_errors=True)
    progress.finish()
    return finished


def judge_policy(plan: Plan, run: RunDirectory, network: ServerConfig, start: judging_server.Start) -> None:
    """Judge the trained policy over the network and write the verdict into the run's directory."""
    settings = JudgeSettings(rounds=network.judge_rounds)
    found = judging_server.judge(plan, run, settings, start)
    if found is not None:
        run.write_json(VERDICT, found.to_json())


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, or go on training, the run in the directory that the run configuration names."""
    run = RunDirectory.open(Path(str(context.run_config["directory"])))
    journal = Journal(run.path / "journal.jsonl")
    try:
        train(grid, run, journal)
    except Interrupted as stopped:
        journal.fail(str(stopped))
    except (FovaError, OSError) as error:
        journal.fail(str(error))
        raise
