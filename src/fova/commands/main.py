"""The command line: wiring only. Each command is one function; heavy parts are imported when it runs."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from fova.commands.flags import parse
from fova.errors import FovaError, unknown
from fova.machine.interrupts import Interrupted, leave
from fova.version import __version__

if TYPE_CHECKING:
    from fova.run.config import Config
    from fova.run.training import Result

HELP = f"""fova {__version__}: offline federated reinforcement learning when clients' data differ in quality

usage: fova COMMAND [options]        fova COMMAND --help explains a command

  fova demo                          train on built-in data, draw what happened (a few minutes)
  fova train ...                     train one policy across many clients
  fova evaluate RUN                  play a run's policies again
  fova compare ...                   several algorithms on the same data, in one table
  fova report RUN ... -o PAGE        one page about runs: words, curves, votes, tables; opens offline
  fova plot RUN ... -o FOLDER        pictures of runs for papers: PNG, SVG, PDF
  fova tasks                         the tasks that data can be made for
  fova data ...                      make, inspect, check and convert data
  fova paper [NAME]                  the paper's tables and figures, each by one command
  fova theory                        the paper's statements, checked on finite MDPs
  fova server, fova client           the same training over a network; fova certificates makes keys for it

by example

  two clients with expert data, two with random data, 5,000 transitions each:
    fova train --task maze2d-umaze --clients expert expert random random --size 5000

  your own logs, no simulator (observations, actions, rewards, terminals, timeouts):
    fova train --clients ward-1.npz ward-2.npz --name wards

  who takes part written down in a file, with one [[client]] table each:
    fova train --config federation.toml --rounds 50

  the paper's equations to the letter, a smaller network, another seed:
    fova train --task maze2d-umaze --clients expert random --preset equations --hidden 128 128 --seed 1

  five algorithms, three seeds each, one table:
    fova compare --task hopper --clients expert expert random random --size 5000 --rounds 50

  go on after an interruption:
    fova train --resume runs/wards
"""


def main() -> None:
    """Run a command. What the user can fix ends in one message and exit code 2, never in a traceback."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        _dispatch(sys.argv[1:])
    except FovaError as error:
        interrupted = isinstance(error, Interrupted)
        errors.print(escape(str(error)) if interrupted else f"[red]error:[/] {escape(str(error))}")
        leave(130 if interrupted else 2)
    except KeyboardInterrupt as interrupt:
        errors.print(str(interrupt) or "Stopped. What was finished before is kept.")
        leave(130)
    except OSError as error:
        errors.print(f"[red]error:[/] {escape(str(error))}\nWhat was saved before is untouched.")
        sys.exit(2)


def escape(text: str) -> str:
    """Text as it is, square brackets included."""
    return text.replace("[", "\\[")


def _dispatch(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return
    if arguments[0] in ("-V", "--version"):
        print(f"fova {__version__}")
        return
    name, *rest = arguments
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS, "See: fova --help")
    COMMANDS[name](rest)


# --- fova train -------------------------------------------------------------------------------------------


def _train(arguments: list[str]) -> None:
    from fova.progress import choose
    from fova.run import training

    console = Console()
    config, options = parse_train(arguments)
    others = {a for a in arguments if a.startswith("--")} - {"--resume", "--quiet", "--plain"}
    if options.resume and others:
        raise FovaError(f"--resume takes its settings from the run; leave out {', '.join(sorted(others))}.")
    progress = choose(options.quiet, options.plain, console)
    try:
        if options.resume:
            result = training.resume(options.resume, progress)
        else:
            result = training.start(config, Path("runs") / options.name if options.name else None, progress)
    finally:
        progress.finish()  # gives the terminal its cursor back
    if not options.quiet:
        _show_result(result, console)


@dataclass(frozen=True)
class TrainOptions:
    """Train one policy across the data of many clients.

    Describe the federation with --task and --clients, or in a TOML file given with --config. Everything is
    written to a new directory under runs/.
    """

    task: str | None = None
    """What is being learned; see `fova tasks`. Without a task, clients are files and nothing is played."""
    clients: tuple[str, ...] = ()
    """One entry per client: a quality of the task's data (expert, random, ...) or a data file; 2-expert-2-random
    stands for four."""
    size: int | None = None
    """Transitions of each client (default: 5000 of a quality, all of a file)."""
    config: Path | None = None
    """A TOML file with task, [[client]] tables and, if wanted, [run] and [algorithm]. Flags win over it."""
    algorithm: str = "fova"
    """The algorithm: a name, or the path of a .py file that holds one."""
    preset: str | None = None
    """Which of the algorithm's presets to start from (fova: recommended, equations, released)."""
    name: str | None = None
    """Directory of the run under runs/ (default: algorithm, task and a number)."""
    resume: Path | None = None
    """Go on with the interrupted run in this directory; other options are then taken from it."""
    quiet: bool = False
    """Print nothing but errors."""
    plain: bool = False
    """Print plain lines instead of a live display."""


def parse_train(arguments: list[str]) -> tuple["Config", TrainOptions]:
    """The configuration that the arguments of `fova train` describe."""
    from fova.commands.run_arguments import parse_run
    from fova.federation.clients import ClientSpec

    config, parsed = parse_run(arguments, TrainOptions, "fova train")
    clients = tuple(ClientSpec(data) for data in parsed.clients) or config.clients
    if parsed.size is not None:
        clients = tuple(replace(client, size=parsed.size) for client in clients)
    return replace(config, clients=clients), parsed


def _show_result(result: "Result", console: Console) -> None:
    from fova.reports.tables import result_table, what_it_took

    if result.server is not None:
        console.print(result_table(result))
    for line in what_it_took(result.directory):
        console.print(line, highlight=False, soft_wrap=True)
    if result.policy is not None:
        console.print(f"policy   {result.directory / 'policy.safetensors'}", highlight=False)
    console.print(f"metrics  {result.directory / 'metrics.jsonl'}", highlight=False)
    if result.server is not None:
        console.print(f"again    fova evaluate {result.directory}", highlight=False)
    console.print(f"to read  fova report {result.directory}", highlight=False)


# --- fova evaluate ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluateOptions:
    """Play the policies of a run in its task and print their returns."""

    run: Path
    """The run's directory, for instance runs/fova-maze2d-umaze-1, or a policy's .safetensors file."""
    episodes: int = 20
    """Episodes to play with each policy."""
    seed: int | None = None
    """Seed of the first episode; the others count up from it. By default the one training evaluates with."""
    clients: bool = False
    """Play every client's own policy, too."""
    task: str | None = None
    """Play in this task instead of the one the policy was trained for."""
    json: bool = False
    """Print JSON instead of a table."""


def _evaluate(arguments: list[str]) -> None:
    import json

    from fova.evaluation.rollouts import EVALUATION_SEED, play
    from fova.policy import load_policy
    from fova.reports.tables import rollouts_table
    from fova.tasks import registry

    options = parse(EvaluateOptions, "fova evaluate", arguments, positional=True)
    if options.episodes < 1:
        raise FovaError(f"episodes is {options.episodes}, but must be at least 1.")
    without_server = options.run.is_dir() and not (options.run / "policy.safetensors").exists()
    if options.clients or (without_server and (options.run / "checkpoints").is_dir()):
        from fova.run.training import policies_of

        policies = policies_of(options.run)
    else:
        policies = {"server": load_policy(options.run)}
    task_name = options.task or next(iter(policies.values())).facts.get("task")
    if not task_name:
        raise FovaError(
            "This policy was trained without a task, so there is nothing to play. Name one with --task."
        )
    seed = EVALUATION_SEED if options.seed is None else options.seed
    played = play(policies, registry.get(task_name), options.episodes, seed)
    if options.json:
        print(json.dumps({name: rollouts.to_json() for name, rollouts in played.items()}, indent=2))
    else:
        Console().print(rollouts_table(played))


# --- fova compare -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompareOptions:
    """Train several algorithms on the same data with the same seeds and budget, and print one table.

    Interrupted or repeated, it keeps what is finished and goes on with the rest.
    """

    task: str
    """What is being learned; see `fova tasks`."""
    clients: tuple[str, ...]
    """One entry per client: a quality of the task's data or a data file."""
    algorithms: tuple[str, ...] = ("fova", "fedora", "drpo", "cql-fl", "fed-td3bc")
    """Which algorithms; also fed-iql, fed-bc, or the path of a .py file."""
    modes: tuple[Literal["federated", "local", "centralised"], ...] = ("federated",)
    """federated, and the reference lines local (each client alone) and centralised (all data pooled)."""
    size: int | None = None
    """Transitions of each client (default: 5000 of a quality, all of a file)."""
    seeds: int = 3
    """Runs of each algorithm, with seeds 0, 1, 2, ..."""
    rounds: int = 50
    """Rounds of every run."""
    local_steps: int = 100
    """Gradient steps of every client in a round."""
    hidden: tuple[int, ...] = ()
    """Widths of the hidden layers for all algorithms (default: each algorithm's own)."""
    batch_size: int | None = None
    """Transitions in a minibatch for all algorithms (default: each algorithm's own)."""
    actor_lr: float | None = None
    """The actor's learning rate for all algorithms (default: each algorithm's own)."""
    critic_lr: float | None = None
    """The critics' learning rate for all algorithms (default: each algorithm's own)."""
    critic_layer_norm: bool | None = None
    """LayerNorm in the critics of all algorithms (default: each algorithm's own)."""
    evaluate_every: int = 10
    """Play the server's policy every so many rounds."""
    final_episodes: int = 20
    """Episodes of the evaluation at the end, which the table shows."""
    name: str | None = None
    """Folder of the runs under runs/ (default: compare, the task and the clients)."""
    jobs: int | None = None
    """Runs that are trained at the same time, each with one thread (default: one per core)."""
    dry_run: bool = False
    """Say what would be run, and run nothing."""
    plain: bool = False
    """Print plain lines instead of a live display."""


def _compare(arguments: list[str]) -> None:
    from fova.experiments.comparison import comparison
    from fova.experiments.conduct import conduct
    from fova.reports.page import write_report
    from fova.reports.tables import comparison_table

    options = parse(CompareOptions, "fova compare", arguments)
    if options.seeds < 1:
        raise FovaError(f"seeds is {options.seeds}, but must be at least 1.")
    shared: dict[str, Any] = {"hidden": options.hidden or None}
    shared |= {
        name: getattr(options, name) for name in ("batch_size", "actor_lr", "critic_lr", "critic_layer_norm")
    }
    run_fields = ("rounds", "local_steps", "evaluate_every", "final_episodes")
    entry, scale = comparison(
        options.task,
        options.clients,
        options.size,
        options.algorithms,
        options.modes,
        options.seeds,
        run={name: getattr(options, name) for name in run_fields},
        settings={name: value for name, value in shared.items() if value is not None},
    )
    name = options.name or "-".join(("compare", options.task, *(Path(data).stem for data in options.clients)))
    directory = Path("runs") / name
    console = Console()
    results = conduct(entry, scale, directory, options.jobs, options.plain, options.dry_run, console)
    if results is None:
        return
    console.print(comparison_table(results))
    report = write_report([directory], directory / "report.html", pictures={})
    console.print(f"figures  {directory / 'results.json'}\nreport   {report}", highlight=False)


# --- The other commands -----------------------------------------------------------------------------------


def _demo(arguments: list[str]) -> None:
    from fova.commands import demo
    from fova.progress import choose
    from fova.reports.tables import result_table

    options = parse(DemoOptions, "fova demo", arguments)
    console = Console()
    console.print(
        "Four clients in a maze: two log an expert that drives to the goal, two log random driving. Nobody shares "
        "data.\nfova trains one policy across them; the star in the pictures is the goal."
    )
    result, picture, report = demo.run(choose(False, options.plain, console), Path("runs"), options.rounds)
    console.print(result_table(result))
    console.print(f"picture  {picture}\nreport   {report}", highlight=False)


@dataclass(frozen=True)
class DemoOptions:
    """Train a small federation on built-in data and draw what happened."""

    rounds: int = 30
    """Rounds to train."""
    plain: bool = False
    """Print plain lines instead of a live display."""


def _tasks(arguments: list[str]) -> None:
    from fova.reports.tables import tasks_table

    parse(TasksOptions, "fova tasks", arguments)
    Console().print(tasks_table())


@dataclass(frozen=True)
class TasksOptions:
    """List the tasks, the data that can be made for each, and the reference scores."""


@dataclass(frozen=True)
class TheoryOptions:
    """Check the paper's statements on random finite MDPs and print a verdict for each."""

    mdps: int = 100
    """Random MDPs to check each statement on."""
    seed: int = 0
    """Seed of the MDPs."""
    directory: Path = Path("runs/theory")
    """Where the tables and pictures go."""


def _theory(arguments: list[str]) -> None:
    from fova.paper.theory.table import format_table, run

    options = parse(TheoryOptions, "fova theory", arguments)
    print(
        format_table(
            run(options.directory, options.mdps, options.seed, lambda words: print(f"... {words}", flush=True))
        )
    )
    print(f"tables and pictures  {options.directory}")


def _kept_in(module: str, function: str) -> Callable[[list[str]], None]:
    """A command that has a module of its own, which is imported when the command runs."""

    def command(arguments: list[str]) -> None:
        getattr(importlib.import_module(module), function)(arguments)

    return command


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "compare": _compare,
    "data": _kept_in("fova.commands.data", "main"),
    "train": _train,
    "evaluate": _evaluate,
    "demo": _demo,
    "report": _kept_in("fova.commands.report", "report"),
    "plot": _kept_in("fova.commands.report", "plot"),
    "tasks": _tasks,
    "theory": _theory,
    "paper": _kept_in("fova.commands.paper", "main"),
    "server": _kept_in("fova.commands.network", "server"),
    "client": _kept_in("fova.commands.network", "client"),
    "certificates": _kept_in("fova.commands.network", "certificates"),
}


if __name__ == "__main__":
    main()
