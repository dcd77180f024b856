"""How a server treats its clients, and the directory of a run over a network."""

import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from fova.data.tables.survey import Agreement, stated
from fova.errors import FovaError
from fova.federation.action_spaces import bounded, insist_on_actions
from fova.network.addresses import is_address, is_host
from fova.network.plan import Plan
from fova.network.surveying import space_of
from fova.run.config import Config
from fova.run.directory import RunDirectory
from fova.run.judged import promise_of
from fova.run.records import read_table
from fova.run.training import insist_on_training
from fova.settings import Within, check_ranges, fill, shown
from fova.spaces import MOST_ACTIONS, Discrete, Space
from fova.tasks import registry

SECONDS_IN_A_YEAR = 31_536_000
MOST_COLUMNS = 100_000


@dataclass(frozen=True)
class ServerConfig:
    """How a server treats its clients; the part of a real federation that a simulation does not have."""

    min_clients: Annotated[int, Within(1, 1_000_000)] = 2
    """Fewest clients to start with, and fewest good submissions that make a round."""
    deadline: Annotated[float, Within(0, SECONDS_IN_A_YEAR, above=True)] = 600.0
    """Seconds that clients have to answer in a round; whoever is later is left out of it."""
    eject_after: Annotated[int, Within(0, 1_000_000)] = 10
    """Messages of one client that have to be refused or rejected before it is out of the run; 0 never."""
    judge: bool = False
    """After training, judge the policy on the episodes that clients hold out (--hold-out). Rows stay with them;
    with --privacy or --secure-aggregation every client also keeps its figures to itself."""
    judge_rounds: Annotated[int, Within(1, 100_000)] = 60
    """Rounds of the fit, if the policy is judged."""
    secure_aggregation: bool = False
    """The server learns the mean of the clients' updates and metrics in a round, and no single one: clients send
    them under masks that cancel. Needs --aggregation uniform or size; see docs/privacy.md#secure-aggregation."""
    observation: Annotated[int | None, Within(1, MOST_COLUMNS)] = None
    """Numbers in an observation, where there is no task."""
    action: Annotated[int | None, Within(1, MOST_COLUMNS)] = None
    """Numbers in a continuous action, where there is no task."""
    discrete_actions: Annotated[int | None, Within(2, MOST_ACTIONS)] = None
    """Number of discrete actions, where there is no task; --action-names says more."""
    host: str = "0.0.0.0"
    """Address to listen on. Other machines reach only the clients' interface there, never the control interface."""
    port: Annotated[int, Within(1, 65535)] = 8443
    """Port to listen on."""
    certificates: str = "certificates/server"
    """Folder with ca.crt, server.crt, server.key and the clients' public keys, from `fova certificates make`."""
    control_hosts: tuple[str, ...] = ()
    """Other machines that may use Flower's control interface, as addresses. Whoever may can run code here."""

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in ("host", "certificates"):
            if not getattr(self, name):
                raise FovaError(f"{name} is empty. Leave it out for the default, or say which one.")
        if not is_host(self.host):
            raise FovaError(
                f"host is {shown(self.host)}, but must be a name or an address of this machine, without a port."
            )
        for host in self.control_hosts:
            if not is_address(host):  # callers are known by their addresses; a name would let nobody in
                raise FovaError(f"control_hosts has {shown(host)}, but must be addresses such as 10.0.0.7.")


def make_plan(config: Config, network: ServerConfig, run_id: str, agreed: Agreement | None = None) -> Plan:
    """What every client will be told. `agreed` is how the clients' tables are encoded, if they hold some."""
    task = registry.get(config.task) if config.task else None
    if agreed is not None and task and agreed.recipe.width != task.space.observation:
        raise FovaError(
            f"The columns make observations of {agreed.recipe.width} numbers, but those of {config.task} have "
            f"{task.space.observation}."
        )
    if task:
        space = task.space
    elif agreed is not None:
        space = space_of(agreed, config)
    elif config.columns is not None:  # the clients are asked about their columns later
        space = Space.unit(1, len(config.columns.action))
    else:
        space = _described_space(config, network)
    if config.run.action_low:
        bounds = (config.run.action_low, config.run.action_high)
        space = Space(space.observation, bounded(space.action, bounds))
    return Plan(
        run_id,
        config.algorithm_name,
        config.algorithm,
        config.run,
        space,
        network.min_clients,
        config.columns,
        agreed,
        network.secure_aggregation,
    )


def _insist_on_one_space(config: Config, network: ServerConfig) -> None:
    """Refuse settings that describe a space beside that of the task or the columns."""
    source = "the task says" if config.task else "the columns say"
    for name in ("observation", "action", "discrete_actions"):
        given = getattr(network, name)
        if given is not None and (config.task or config.columns is not None):
            raise FovaError(f"{name} is {given}, but {source} it already. Leave --{name.replace('_', '-')} out.")
    if config.task:
        action = registry.get(config.task).space.action
        insist_on_actions(config.task, action, {}, config.run.actions, config.run.action_names)


def _described_space(config: Config, network: ServerConfig) -> Space:
    """The space that the settings of a server without a task describe."""
    names, count = config.run.action_names, network.discrete_actions
    if names and count not in (None, len(names)):
        raise FovaError(f"There are {len(names)} action_names, but discrete_actions is {count}. Give one of them.")
    if (names or count) and (network.action or config.run.actions == "continuous"):
        raise FovaError("Both continuous and discrete actions are described. --action is for continuous ones.")
    if network.observation and names:
        return Space(network.observation, Discrete(names))
    if network.observation and count:
        return Space(network.observation, Discrete.numbered(count))
    if network.observation and network.action and config.run.actions != "discrete":
        return Space.unit(network.observation, network.action)
    raise FovaError(
        "Without a task the server cannot know how wide the data is. Give --task, or both --observation and "
        "--action, or for discrete actions --observation with --action-names or --discrete-actions NUMBER."
    )


def insist_on_default_rounds(network: ServerConfig) -> None:
    """Refuse rounds of a fit that will not take place."""
    if network.judge_rounds != ServerConfig.judge_rounds:
        raise FovaError("judge_rounds is given, but the policy is not judged. Add --judge.")


def create_run(path: Path, config: Config, network: ServerConfig) -> RunDirectory:
    """The directory of a new federation; everything that can be wrong with its settings is found before."""
    run = RunDirectory(path)
    run.insist_on_new()
    insist_on_training(config)
    _insist_on_one_space(config, network)
    run_id = uuid.uuid4().hex
    private = config.run.privacy != "off"
    make_plan(config, network, run_id, stated(config.columns) if config.columns and private else None)
    if network.judge:  # together with the training it may exceed the privacy budget
        secure = network.secure_aggregation
        promise_of(config.run, config.algorithm, network.min_clients, network.judge_rounds, secure)
    if config.run.mode != "federated":
        raise FovaError(f"mode is {config.run.mode!r}, but clients of a real federation can only be federated.")
    run.create(config)
    write_server(run, run_id, network)
    return run


def write_server(run: RunDirectory, run_id: str, network: ServerConfig) -> None:
    run.write_json("server.json", {"run_id": run_id, **asdict(network)})


def read_server(run: RunDirectory) -> tuple[str, ServerConfig]:
    """The number of a federation's run, and how its server was set up."""
    about = read_table(run, "server.json")
    network = {name: value for name, value in about.content.items() if name != "run_id"}
    return about.text("run_id"), fill(ServerConfig, network, f"of {run.path / 'server.json'}")
