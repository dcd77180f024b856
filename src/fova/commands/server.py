"""`fova server`: train one policy across clients on other machines."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from fova.commands.flags import asks_for_help, parse
from fova.commands.flower import insist_on_files, insist_on_flower
from fova.commands.helping import insist_on_resuming_only
from fova.commands.terminal import Terminal
from fova.errors import FovaError
from fova.machine.interrupts import explained, heeding_signals
from fova.progress import choose

if TYPE_CHECKING:
    from fova.network.server_config import ServerConfig


# What may be given anew with --resume: where the server listens, and whether the policy is judged afterwards.
ANEW = {"host", "port", "certificates", "control-hosts", "judge", "no-judge", "judge-rounds"}


@dataclass(frozen=True)
class ServerOptions:
    """Train one policy across clients on other machines: wait for them, run the rounds, write the run's files.

    The flags are those of `fova train` without --clients. Clients connect with `fova client`. To see who takes part
    in a run, who was refused and why, and who is out: fova server status RUN
    """

    task: str | None = None
    """The task to learn, if it is one of `fova tasks`. With a task, the server evaluates the policy regularly."""
    columns: tuple[str, ...] = ()
    """What the columns of tables (CSV, TSV, Parquet) mean, the same at all clients: episode=patient_id time=hour
    observations=hr,map,lab_* action=dose reward=score terminal=died. Clients read their own tables by it."""
    missing: tuple[str, ...] = ()
    """What to do with missing values of a column: refuse (the default), carry (forward within the episode), mean
    (of the federation, with an indicator), carry-mean, or unknown (of a category). As in hr=carry lab_*=mean."""
    config: Path | None = None
    """A TOML file with [server] and, if wanted, task, [run] and [algorithm]. Flags override it."""
    algorithm: str = "fova"
    """The algorithm's name."""
    preset: str | None = None
    """The preset of the algorithm to start from."""
    name: str | None = None
    """Directory of the run under runs/."""
    resume: Path | None = None
    """Continue the run in this directory. Its settings are taken from the directory; only where the server listens
    (--host, --port, --certificates, --control-hosts) and --judge can be given anew."""
    insecure: bool = False
    """Connect without encryption and without checking the clients' identity. For trials on one machine."""
    prepare: bool = False
    """Only make the run's directory and print its path. For users who start Flower themselves."""
    quiet: bool = False
    """Print nothing but errors."""
    plain: bool = False
    """Print plain lines instead of a live display."""


@dataclass(frozen=True)
class StatusOptions:
    """Show who takes part in a run over a network: rounds that counted, last answer, refusals, who is out."""

    run: Positional[Path]
    """Directory of the run."""


def show_status(arguments: list[str]) -> None:
    from fova.network.status import status_of, table
    from fova.run.directory import RunDirectory

    run = RunDirectory.open(parse(StatusOptions, "fova server status", arguments).run)
    status, terminal = status_of(run), Terminal()
    terminal.write_line(f"{run.path}: round {status.rounds}{', finished' if status.complete else ''}")
    if status.members:
        terminal.print(table(status))


def command(arguments: list[str]) -> None:
    if arguments[:1] == ["status"]:
        show_status(arguments[1:])
        return
    from fova.commands.run_arguments import parse_run

    if not asks_for_help(arguments):
        insist_on_flower()  # before the flags are read: some flags are defined in modules that import Flower
    tables = {"server": ("fova.network.server_config", "ServerConfig")}
    config, options = parse_run(arguments, ServerOptions, "fova server", tables)
    from fova.network.deployment import Address, insist_on_a_free_port, serve
    from fova.network.server_config import create_run, insist_on_default_rounds, read_server, write_server
    from fova.run.directory import VERDICT, RunDirectory, free_name, named

    anew = _given_anew(arguments) if options.resume else set()
    if options.resume:
        run = RunDirectory.open(options.resume)
        run_id, network = read_server(run)
        network = replace(network, **{name: getattr(options.server, name) for name in anew})
    else:
        network = options.server
        stem = f"server-{Path(config.algorithm_name).stem}-{config.task or 'data'}"
        path = free_name(stem, Path("runs")) if options.name is None else named(options.name)
    if not network.judge and ("judge_rounds" in anew or not options.resume):
        insist_on_default_rounds(network)
    folder = _check_certificates(network, options.insecure)
    address = Address(network.host, network.port, folder, network.control_hosts)
    if not options.prepare:
        insist_on_a_free_port(address)
    if not options.resume:
        run = create_run(path, config, network)
    elif anew:
        write_server(run, run_id, network)
    if options.prepare:
        print(f"{run.path.resolve()}")
        return
    terminal = Terminal()
    progress = choose(options.quiet, options.plain, terminal)
    try:
        progress.note(f"listening on {network.host}:{network.port}, {'plain text' if folder is None else 'TLS'}")
        how_to_resume = f"Stopped. Finished rounds are saved.\nContinue with: fova server --resume {run.path}"
        with explained(lambda: how_to_resume), heeding_signals():
            serve(run, address, progress)
    finally:
        progress.finish()
    terminal.write_line(f"policy   {run.policy}\nmetrics  {run.path / 'metrics.jsonl'}")
    if network.judge and (run.path / VERDICT).exists():
        _show_verdict(run.path / VERDICT, terminal)
    elif network.judge:
        terminal.write_line("Every client keeps its verdict on its own episodes: judge.json in its state folder")


def _given_anew(arguments: list[str]) -> set[str]:
    """The settings of a resumed run that are given anew. Others are refused: the run has them already."""
    given = insist_on_resuming_only(arguments, ANEW | {"insecure", "prepare", "quiet", "plain"}) & ANEW
    return {name.removeprefix("no-").replace("-", "_") for name in given}


def _show_verdict(path: Path, terminal: Terminal) -> None:
    from fova.evaluation.judging.verdict import Verdict
    from fova.reports.verdicts import trust_table, verdict_table

    verdict = Verdict.from_json(json.loads(path.read_text()), str(path))
    terminal.print(verdict_table(verdict))
    terminal.print(trust_table(verdict))
    terminal.write_line(f"{verdict.sentence()}\nverdict  {path}")


def _check_certificates(network: "ServerConfig", insecure: bool) -> Path | None:
    """The folder of certificates, or None without TLS. Raises an error if a file is missing or cannot be used."""
    if insecure:
        return None
    from fova.network.certificates import insist_on_sound_server, registered

    folder = Path(network.certificates)
    insist_on_files(folder, ("ca.crt", "server.crt", "server.key"), "fova server")
    if not list((folder / "clients").glob("*.pub")):
        raise FovaError(
            f"{folder / 'clients'} holds no client's public key, so no client could join. Add clients with: "
            "fova certificates make --clients NAME"
        )
    insist_on_sound_server(folder, network.host)
    if not registered(folder, Terminal(stderr=True).write_line):
        raise FovaError(f"{folder / 'clients'} holds no public key that can be used, so no client could join.")
    return folder
