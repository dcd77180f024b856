"""Judge finished runs on the episodes that they held out, and keep the verdict in their directories.

`judge.json` in a run directory holds the verdict on the server's policy. A run in local mode has no server: there
every client's own policy is judged, and `judge.json` holds what each client would find out about its own.

A policy's file inside a run's directory (a kept round, a client's own policy) is judged on the same episodes, and
nothing is written.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fova.data.paths import as_path
from fova.data.tables.loading import TableReader, Trained
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.evaluation.judging import judge as judging
from fova.evaluation.judging.judge import JudgeSettings, Promise, verdict
from fova.evaluation.judging.verdict import Verdict
from fova.federation.client_specs import ClientSpec, sources_of
from fova.federation.clients import Federation
from fova.policy import Policy, load_policy
from fova.progress import Event, Note, Progress, Quiet, Status
from fova.run.config import Config, RunConfig, load_config, unit_of_reward
from fova.run.directory import VERDICT, RunDirectory
from fova.run.simulated import described
from fova.run.training import insist_on_same_data, trained_on
from fova.settings import argument
from fova.spaces import Discrete

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Judged:
    """A run, or a policy's file inside one, with its verdict."""

    path: Path
    verdict: Verdict


def judge(
    policy: Policy | str | Path,
    federation: Federation | None = None,
    discount: float | None = None,
    settings: JudgeSettings | None = None,
    tell: Tell = lambda message: None,
    data: str | Path | Sequence[str | Path] = (),
) -> Verdict:
    """How good a policy is for each client, from logged episodes alone, and how far to trust that.

        print(fova.judge("runs/wards").sentence())

    `policy` is a run directory, a policy or a policy's file. Without a `federation` a run is judged as by
    `fova judge`: on the episodes that it held out, and the verdict is written to `judge.json`; or on the files
    `data`, which are new to it. With a federation, the policy is judged on the episodes that it holds out
    (`Federation.holding_out`), or on all of them if it holds out none, and nothing is written. `discount` is by
    default the run's, or 0.99 beside a federation. `tell` receives progress messages.
    """
    policy = argument("policy", policy, Policy | str | Path)
    if federation is not None and data:
        raise FovaError("Give a federation or data, not both.")
    if federation is not None:
        return judging.judge(policy, federation, 0.99 if discount is None else discount, settings, tell)
    if isinstance(policy, Policy):
        raise FovaError(
            "Say on which data the policy is to be judged: fova.judge(policy, federation), with "
            "fova.Federation.of(transitions) or fova.Federation.of_tables(frames, columns). A run needs no data: "
            'fova.judge("runs/NAME").'
        )
    if discount is not None:
        raise FovaError("A run is judged with its own discount. Leave discount out, or give a federation.")
    settings = argument("settings", settings, JudgeSettings | None)
    files = [str(file) for file in ((data,) if isinstance(data, str | Path) else data)]
    return judge_run(policy, settings, files, progress=_Telling(argument("tell", tell, Callable)))


class _Telling(Quiet):
    """Passes messages to a function."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def handle(self, event: Event) -> None:
        if isinstance(event, Status | Note):
            self._tell(event.text)


def judge_run(
    path: str | Path,
    settings: JudgeSettings | None = None,
    data: Sequence[str] = (),
    federation: Federation | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Judge a run's policy and write `judge.json` in its directory.

    The policy is judged on the episodes that the run held out, or on the files `data`, which must be new to it. A
    run on a `Federation` of your own arrays needs it again. `path` may also be a policy's file inside a run's
    directory. Then nothing is written.
    """
    progress = progress or Quiet()
    run, policy = run_and_policy(Path(path))
    config = load_config(run.path / "config.toml")
    tell = progress.status
    if data:
        return _verdict_on_new_data(policy or load_policy(run.path), config, data, settings, tell)
    _insist_on_data(run, config, federation)
    given = trained_on(config, federation, progress)
    insist_on_same_data(run, described(given))
    if policy is not None:
        return judge_one(policy, config, given, settings, tell)
    judged = judge_policies(run, config, given, settings, tell)
    run.write_json(VERDICT, judged.to_json())
    return judged


def run_and_policy(path: Path) -> tuple[RunDirectory, Policy | None]:
    """The run of a path, and the policy if the path is a policy's file inside the run's directory."""
    if path.suffix != ".safetensors":
        return RunDirectory.open(path), None
    if path.parent.name == "checkpoints":
        raise FovaError(
            f"{path} is a state of the training, not a policy. With --select judge a run keeps the policies of its "
            "best rounds in best/."
        )
    for directory in path.absolute().parents[:2]:
        if (directory / "config.toml").is_file():
            return RunDirectory(directory), load_policy(path)
    raise FovaError(
        f"{path} does not lie in a run's directory, which says what to judge it on. Give a run, or a policy inside "
        "one, for instance: fova judge runs/wards/best/round-000010.safetensors"
    )


def judge_one(
    policy: Policy, config: Config, federation: Federation, settings: JudgeSettings | None, tell: Tell
) -> Verdict:
    """The verdict on one policy at every client of a run."""
    settings = (settings or JudgeSettings()).combining_like(config.run.aggregation)
    promise = promise_of(config.run, config.algorithm, len(federation.clients), settings.rounds)
    return judging.judge(policy, federation, config.algorithm.discount, settings, tell, promise)


def judge_policies(
    run: RunDirectory, config: Config, federation: Federation, settings: JudgeSettings | None, tell: Tell
) -> Verdict:
    """The verdict on the server's policy, or in local mode on every client's own policy at this client."""
    if config.run.mode != "local":
        return judge_one(load_policy(run.path), config, federation, settings, tell)
    discount = config.algorithm.discount
    policies = own_policies(run)
    figures = {}
    for name, data in federation.clients.items():
        if name not in policies:
            raise FovaError(f"{run.path} holds no policy of client {name!r}. Continue with: fova train --resume")
        tell(f"judging the policy of {name}")
        found = judging.judge(policies[name], alone(federation, name, data), discount, settings)
        figures[name] = found.clients[name]
    about = next(iter(policies.values()))
    about = replace(about, facts=about.facts | {"client": "each client's own"})
    return verdict(about, figures, discount, bool(federation.held_out), found.settings)


def promise_of(
    run: RunConfig, algorithm: Any, clients: int, more_rounds: int, secure: bool = False
) -> Promise | None:
    """The privacy of a run's clients; None without privacy. Refuses a fit that exceeds the privacy budget.

    A client's training episodes and the episodes that it holds out are the same client's data, so `more_rounds` of
    fitting are added to the rounds of the training.
    """
    try:
        privacy = replace(run, rounds=run.rounds + more_rounds).private(clients)
    except FovaError as error:
        raise FovaError(f"Training ({run.rounds} rounds) and judging ({more_rounds} rounds): {error}") from error
    if privacy is None and not secure:
        return None
    unit = unit_of_reward(run, algorithm)
    assert unit is not None  # a private run always gives its unit
    return Promise(unit, privacy)


def alone(federation: Federation, name: str, data: Transitions) -> Federation:
    """The federation with a single client."""
    held_out = {name: federation.held_out[name]} if name in federation.held_out else {}
    return replace(federation, clients={name: data}, held_out=held_out, later=())


def own_policies(run: RunDirectory) -> Mapping[str, Policy]:
    """Every client's own policy of a finished run, by the client's name."""
    found = (load_policy(path) for path in sorted(run.client_policies.glob("*.safetensors")))
    return {str(policy.facts.get("client")): policy for policy in found}


def _verdict_on_new_data(
    policy: Policy, config: Config, data: Sequence[str], settings: JudgeSettings | None, tell: Tell
) -> Verdict:
    _insist_on_new(config, data)
    specs = [ClientSpec(name) for name in data]
    action = policy.space.action
    reader = None
    if config.columns is not None and policy.inputs is not None:
        choices = action.names if isinstance(action, Discrete) else None
        reader = TableReader(config.columns, trained=Trained(policy.inputs, choices))
    federation = Federation.build(specs, action=action, tell=tell, reader=reader)
    settings = (settings or JudgeSettings()).combining_like(config.run.aggregation)
    return replace(judging.judge(policy, federation, config.algorithm.discount, settings, tell), held_out=True)


def _insist_on_new(config: Config, data: Sequence[str]) -> None:
    """Refuse files that trained the policy."""
    trained = {os.path.realpath(name) for name in sources_of(config.clients) if os.path.exists(name)}
    for name in data:
        if os.path.realpath(as_path(name)) in trained:
            raise FovaError(
                f"The policy was trained on {name}. Judge it on data that is new to it, or without --data on the "
                "episodes that its run held out."
            )


def _insist_on_data(run: RunDirectory, config: Config, federation: Federation | None) -> None:
    if federation is None and not config.clients:
        over_network = (run.path / "server.json").is_file()
        how = (
            "Its clients hold the data: judge it over the network with `fova server --judge`"
            if over_network
            else "It was trained on arrays in memory: fova.judge(policy, federation) judges it on the same arrays"
        )
        raise FovaError(f"{run.path} does not say where its data is. {how}, or give files with --data.")


# --- Several runs -------------------------------------------------------------------------------------------


def ranked(runs: Sequence[Judged]) -> list[Judged]:
    """The runs in order of their estimated value, the best first. Runs whose fit diverged come last."""

    def value(judged: Judged) -> float:
        found = judged.verdict.federation.value
        return found if math.isfinite(found) else -math.inf

    return sorted(runs, key=value, reverse=True)


def comparable(runs: Sequence[Judged]) -> bool:
    """Whether the runs were judged on the same episodes: the same number, with the same return."""
    return all(judged.verdict.judged_on == runs[0].verdict.judged_on for judged in runs)
