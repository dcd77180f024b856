"""Judge the trained policy of a run over the network: federated fitted Q evaluation, then each client's figures.

Rounds are those of any run over a network, so the same seed gives the same figures as `fova judge` on the pooled
files. Rows stay with the clients.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from flwr.app import RecordDict

from fova.errors import FovaError
from fova.evaluation.judging.judge import JudgeSettings, in_progress, scale_of, verdict
from fova.evaluation.judging.verdict import Figures, Verdict
from fova.federation.statistics import Statistics
from fova.network import messages
from fova.network.engine import FlowerEngine
from fova.network.intake import Refused
from fova.network.judging import Judging, insist_on_open, run_settings
from fova.network.members import Refusal
from fova.network.plan import Plan
from fova.policy import Policy, load_policy

Start = Callable[[Plan], FlowerEngine]


def judge(trained: Plan, folder: Path, settings: JudgeSettings, start: Start) -> Verdict:
    """The verdict of the clients on the policy in `folder`. `start` makes the engine of a plan."""
    insist_on_open(trained.privacy is not None, trained.secure)
    policy = load_policy(folder)
    judging = Judging(policy, trained.algorithm.discount, settings)
    plan = replace(
        trained,
        run_id=uuid.uuid4().hex,
        algorithm_name="fqe",
        algorithm=judging.algorithm(),
        run=run_settings(trained.run, settings),
        judge=judging,
    )
    engine = start(plan)
    _agree_on_scale(engine, policy, judging)
    state = engine.start()
    started = time.monotonic()
    for number in range(settings.rounds):
        engine.progress.status(in_progress(number, settings.rounds, time.monotonic() - started))
        state, _ = engine.round(state)
        if number == 0:
            started = time.monotonic()
    figures = _gather_figures(engine, state.broadcast)
    return verdict(policy, figures, judging.discount, trained.run.hold_out > 0.0, asdict(settings))


def _agree_on_scale(engine: FlowerEngine, policy: Policy, judging: Judging) -> None:
    """Ask the clients about their data, and go on with a plan that says in which terms critics see it."""
    present = sorted(engine.wait_for_clients())
    scale = scale_of(policy, {name: engine.told[name] for name in present}, judging.discount)
    judging = replace(judging, scale=scale)
    engine.plan = replace(engine.plan, algorithm=judging.algorithm(), judge=judging)
    engine.statistics = Statistics(scale.normaliser, scale.unit)


def _gather_figures(engine: FlowerEngine, broadcast: object) -> dict[str, Figures]:
    """Every client's own figures, in order of the names. Who does not answer is named and left out."""
    clients = engine.wait_for_clients()
    questions = {node: messages.figures_question(engine.plan, broadcast) for node in clients.values()}
    names, found = {node: name for name, node in clients.items()}, {}
    engine.progress.status("every client judges the policy on its own episodes")
    for node, reply in engine.asking.ask(messages.FIGURES, questions, engine.network.deadline):
        name = names.pop(node)
        answer = engine.read(reply, partial(_figures, engine, name))
        if isinstance(answer, Refusal):
            engine.progress.note(f"{name} does not report on the policy: {answer.why}")
        else:
            found[name] = answer
    for name in names.values():
        engine.progress.note(f"{name} does not report on the policy: no answer in time")
    if not found:
        raise FovaError(
            "No client reported on the policy, so there is no verdict. The journals of clients say why."
        )
    return {name: found[name] for name in sorted(found)}


def _figures(engine: FlowerEngine, name: str, content: RecordDict) -> Figures:
    if messages.read_client(content, engine.plan) != name:
        raise Refused("it answers in another client's name")
    return messages.read_figures(content, engine.plan, engine.told[name])
