"""Judge the trained policy of a run over the network: federated fitted Q evaluation, then each client's figures.

Rounds are those of any run over a network, so the same seed gives the same figures as `fova judge` on the pooled
files. Rows stay with the clients.

Where clients were promised privacy or secure aggregation, the rounds keep the promise, and figures stay with the
clients, too: each keeps the verdict on its own episodes in its state folder.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import TypeVar

from flwr.app import RecordDict

from fova.errors import FovaError
from fova.evaluation.judging.judge import (
    JudgeSettings,
    Promise,
    in_progress,
    normaliser_of,
    scale_of,
    verdict,
)
from fova.evaluation.judging.verdict import Figures, Verdict
from fova.federation.statistics import Statistics
from fova.network import messages
from fova.network.engine import FlowerEngine
from fova.network.intake import Refused
from fova.network.judging import Judging, run_settings, settings_for
from fova.network.members import Refusal
from fova.network.plan import Plan
from fova.policy import Policy, load_policy
from fova.run.directory import RunDirectory
from fova.run.judged import promise_of
from fova.run.records import read_table

T = TypeVar("T")
Start = Callable[[Plan], FlowerEngine]

ACCOUNT = "judging.json"  # of a private run: the rounds of all fits so far, and what they spent with the training


def judge(trained: Plan, run: RunDirectory, settings: JudgeSettings, start: Start) -> Verdict | None:
    """The verdict of the clients on the policy of a run. `start` makes the engine of a plan.

    None if the clients keep their verdicts.
    """
    promise = enter_account(trained, run, settings.rounds)
    settings = settings_for(trained.run, settings, promise)
    policy, discount = load_policy(run.path), trained.algorithm.discount
    judging = Judging(policy, discount, settings, promise.scale(policy, discount) if promise else None)
    plan = replace(
        trained,
        run_id=uuid.uuid4().hex,
        algorithm_name="fqe",
        algorithm=judging.algorithm(),
        run=run_settings(trained.run, settings, promise),
        judge=judging,
    )
    engine = start(plan)
    if promise is None:
        _agree_on_scale(engine, policy, judging)
    else:
        engine.statistics = Statistics(normaliser_of(policy), promise.reward_unit)
    broadcast = _fit(engine, settings.rounds)
    if promise is not None:
        kept = _let_clients_judge(engine, broadcast)
        engine.progress.note(f"each of {', '.join(kept)} keeps its verdict in judge.json of its state folder")
        return None
    figures = _gather_figures(engine, broadcast)
    return verdict(policy, figures, discount, trained.run.hold_out > 0.0, asdict(settings))


def enter_account(trained: Plan, run: RunDirectory, rounds: int) -> Promise | None:
    """What the clients were promised; None if nothing. Refuses rounds that exceed the privacy budget.

    `judging.json` counts the rounds of all fits of a private run. It is written before the first of them.
    """
    before = read_table(run, ACCOUNT).whole("rounds") if (run.path / ACCOUNT).exists() else 0
    spent = before + rounds
    promise = promise_of(trained.run, trained.algorithm, trained.clients, spent, trained.secure)
    if promise is not None and promise.privacy is not None:
        account = promise.privacy.spent(trained.run.rounds + spent)
        run.write_json(ACCOUNT, {"rounds": spent, "epsilon": account["epsilon"], "delta": account["delta"]})
    return promise


def _fit(engine: FlowerEngine, rounds: int) -> object:
    """The broadcast after the rounds of the fit."""
    state = engine.start()
    started = time.monotonic()
    for number in range(rounds):
        engine.progress.status(in_progress(number, rounds, time.monotonic() - started))
        state, _ = engine.round(state)
        if number == 0:
            started = time.monotonic()
    return state.broadcast


def _agree_on_scale(engine: FlowerEngine, policy: Policy, judging: Judging) -> None:
    """Ask the clients about their data, and go on with a plan that says in which terms critics see it."""
    present = sorted(engine.wait_for_clients())
    scale = scale_of(policy, {name: engine.told[name] for name in present}, judging.discount)
    judging = replace(judging, scale=scale)
    engine.plan = replace(engine.plan, algorithm=judging.algorithm(), judge=judging)
    engine.statistics = Statistics(scale.normaliser, scale.unit)


def _gather_figures(engine: FlowerEngine, broadcast: object) -> dict[str, Figures]:
    """Every client's own figures, in order of the names."""
    return _ask(engine, broadcast, lambda name, content: _figures(engine, name, content))


def _let_clients_judge(engine: FlowerEngine, broadcast: object) -> list[str]:
    """The clients that have judged the policy for themselves. They answer that they did, and nothing else."""
    return list(_ask(engine, broadcast, lambda name, content: _nothing(engine, name, content)))


def _ask(engine: FlowerEngine, broadcast: object, read: Callable[[str, RecordDict], T]) -> dict[str, T]:
    """What clients answer about the policy, in order of the names. Who does not answer is named and left out."""
    clients = engine.wait_for_clients()
    questions = {node: messages.figures_question(engine.plan, broadcast) for node in clients.values()}
    names: dict[int, str] = {node: name for name, node in clients.items()}
    found: dict[str, T] = {}
    engine.progress.status("every client judges the policy on its own episodes")
    for node, reply in engine.asking.ask(messages.FIGURES, questions, engine.network.deadline):
        name = names.pop(node)
        answer = engine.read(reply, partial(read, name))
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


def _nothing(engine: FlowerEngine, name: str, content: RecordDict) -> None:
    if messages.read_client(content, engine.plan) != name:
        raise Refused("it answers in another client's name")
    messages.read_no_figures(content, engine.plan)
