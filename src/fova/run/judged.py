"""Judge finished runs on the episodes that they held out, and keep the verdict in their directories.

`judge.json` in a run directory holds the verdict on the server's policy. A run in local mode has no server: there
every client's own policy is judged, and `judge.json` holds what each client would find out about its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.evaluation.judging.judge import JudgeSettings, Promise, judge, verdict
from fova.evaluation.judging.verdict import Verdict
from fova.federation.clients import ClientSpec, Federation
from fova.policy import Policy, load_policy
from fova.progress import Progress, Quiet
from fova.run.config import Config, RunConfig, load_config, unit_of_reward
from fova.run.directory import VERDICT, RunDirectory
from fova.run.simulated import described
from fova.run.training import insist_on_same_data, trained_on

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Judged:
    """A run with its verdict."""

    directory: Path
    verdict: Verdict


def judge_run(
    directory: str | Path,
    settings: JudgeSettings | None = None,
    data: Sequence[str] = (),
    federation: Federation | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Judge a run's policy and write `judge.json` in its directory.

    The policy is judged on the episodes that the run held out, or on the files `data`, which must be new to it. A
    run on a `Federation` of your own arrays needs it again.
    """
    progress = progress or Quiet()
    run = RunDirectory.open(Path(directory))
    config = load_config(run.path / "config.toml")
    tell = progress.status
    if data:
        judged = _verdict_on_new_data(run, config, data, settings, tell)
    else:
        _insist_on_data(run, config, federation)
        given = trained_on(config, federation, progress)
        insist_on_same_data(run, described(given))
        judged = judge_policies(run, config, given, settings, tell)
    if not data:
        run.write_json(VERDICT, judged.to_json())
    return judged


def judge_policies(
    run: RunDirectory, config: Config, federation: Federation, settings: JudgeSettings | None, tell: Tell
) -> Verdict:
    """The verdict on the server's policy, or in local mode on every client's own policy at this client."""
    discount = config.algorithm.discount
    if config.run.mode != "local":
        settings = (settings or JudgeSettings()).combining_like(config.run.aggregation)
        promise = promise_of(config.run, config.algorithm, len(federation.clients), settings.rounds)
        return judge(load_policy(run.path), federation, discount, settings, tell, promise)
    policies = own_policies(run)
    figures = {}
    for name, data in federation.clients.items():
        if name not in policies:
            raise FovaError(f"{run.path} holds no policy of client {name!r}. Continue with: fova train --resume")
        tell(f"judging the policy of {name}")
        found = judge(policies[name], alone(federation, name, data), discount, settings)
        figures[name] = found.clients[name]
    about = next(iter(policies.values()))
    about = replace(about, facts=about.facts | {"client": "each client's own"})
    return verdict(about, figures, discount, bool(federation.held_out), found.settings)


def promise_of(
    run: RunConfig, algorithm: Any, clients: int, more_rounds: int, secure: bool = False
) -> Promise | None:
    """What the clients of a run were promised; None if nothing. Refuses a fit that exceeds the privacy budget.

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
    assert unit is not None  # a run that hides its clients says its unit
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
    run: RunDirectory, config: Config, data: Sequence[str], settings: JudgeSettings | None, tell: Tell
) -> Verdict:
    policy = load_policy(run.path)
    specs = [ClientSpec(name) for name in data]
    federation = Federation.build(specs, action=policy.space.action, tell=tell)
    return replace(judge(policy, federation, config.algorithm.discount, settings, tell), held_out=True)


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
    """The runs in order of their estimated value, the best first."""
    return sorted(runs, key=lambda judged: judged.verdict.federation.value, reverse=True)


def comparable(runs: Sequence[Judged]) -> bool:
    """Whether the runs were judged on the same episodes: as many, with the same return."""

    def about(judged: Judged) -> Any:
        clients = judged.verdict.clients.items()
        return judged.verdict.discount, {n: (f.episodes, f.rows, f.data_value) for n, f in clients}

    return all(about(judged) == about(runs[0]) for judged in runs)
