"""`fova client`: take part in a federation over a network."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fova.commands.columns import columns_of, load_tables
from fova.commands.flags import parse
from fova.commands.flower import insist_on_files, insist_on_flower
from fova.commands.terminal import Terminal
from fova.errors import FovaError, unknown
from fova.machine.interrupts import heeding_signals
from fova.progress import choose

if TYPE_CHECKING:
    from fova.data.action_kind import ActionKind
    from fova.data.tables.columns import Columns
    from fova.data.transitions import Transitions
    from fova.network.client import ClientConfig
    from fova.run.config import ConfigFile


@dataclass(frozen=True)
class ClientOptions:
    """Take part in a federation with the data on this machine. Runs until it is stopped (Ctrl-C).

    The data stays on this machine. The client sends network parameters, a weight and named metrics. If the server
    normalises observations, it also sends a count, a sum and a sum of squares per column.
    """

    server: str | None = None
    """Address of the server, as HOST:PORT."""
    data: str | None = None
    """A data file (CSV, Parquet, NPZ, HDF5, Minari), or with --task a quality of the task's data."""
    name: str | None = None
    """Name of this client in the federation; with TLS, the name its key was made for (default: the data's name)."""
    certificates: Path = Path("certificate")
    """Folder with ca.crt and client.key, from `fova certificates make`."""
    state: Path | None = None
    """Folder for the state that the client keeps between rounds (default: fova-client/NAME)."""
    columns: tuple[str, ...] = ()
    """What the columns mean if the data is a table (CSV, TSV, Parquet), as at the server: episode=patient_id
    time=hour observations=hr,map action=dose reward=score terminal=died. Or the [columns] table of --config."""
    missing: tuple[str, ...] = ()
    """What to do with missing values of a column of the table, as at the server: hr=carry lab_*=mean."""
    config: Path | None = None
    """A TOML file with [server] and a [[client]] table of this --name, in place of these flags."""
    task: str | None = None
    """Make data of this task instead of reading a file. For trials."""
    size: int | None = None
    """Transitions to take (default: all of a file)."""
    offset: int | None = None
    """Row to start from."""
    action_low: tuple[float, ...] = ()
    """Lowest action, to check the data before the client connects to the server."""
    action_high: tuple[float, ...] = ()
    """Highest action, for the same check."""
    actions: Literal["auto", "discrete", "continuous"] = "auto"
    """Kind of the actions, for the same check: discrete (codes), continuous (quantities), or as the data shows."""
    insist_privacy: str | None = None
    """The least privacy that this client accepts, as clip=1,noise=2,epsilon=8: it refuses plans that clip higher or
    add less noise, and stops answering for good when epsilon is spent. Its account is kept in the state folder."""
    insist_secure_aggregation: bool = False
    """Take part only in runs with --secure-aggregation, where the server learns sums over clients and no single
    update."""
    peers: Path | None = None
    """Folder with the public keys (NAME.pub) of the other clients, from where the keys were made and not from the
    server. With secure aggregation, a server that gives out false keys in their names is refused."""
    insecure: bool = False
    """Connect without encryption and without checking the server's identity. For trials on one machine."""
    quiet: bool = False
    """Print nothing but errors."""


def command(arguments: list[str]) -> None:
    options = parse(ClientOptions, "fova client", arguments)
    insist_on_flower()
    from fova.network.addresses import insist_on_server
    from fova.network.certificates import insist_on_sound_client
    from fova.network.deployment import participate
    from fova.run.config import ConfigFile, read_toml

    file = read_toml(options.config) if options.config else ConfigFile()
    address = insist_on_server(options.server or _address_in(file))
    config = _client_config(options, file)
    progress = choose(options.quiet, True, Terminal())
    progress.status(f"reading {config.data}")
    columns = columns_of(options.columns, options.missing, file.columns)
    if columns is not None:
        config = replace(config, columns=_kept_columns(columns, Path(config.state)))
    # Bad data and bad keys are reported before the server is contacted.
    data = _checked_data(config, _bounds(options), columns, options.actions)
    folder = None if options.insecure else options.certificates
    if folder is not None:
        insist_on_files(folder, ("ca.crt", "client.key"), "fova client")
        insist_on_sound_client(folder)
    progress.note(f"{config.name}: {len(data):,} transitions; connecting to {address}")
    try:
        with heeding_signals():
            participate(config, address, folder, progress)
    except KeyboardInterrupt:
        progress.note("Stopped. The client's state is saved.")


def _kept_columns(columns: "Columns", state: Path) -> str:
    """A file in the client's state folder with the mapping; every process of the client reads it from there."""
    import tomli_w

    from fova.machine.files import write_atomically

    state.mkdir(parents=True, exist_ok=True)
    file = state / "columns.toml"
    write_atomically(file, tomli_w.dumps({"columns": columns.to_table()}).encode())
    return str(file)


def _checked_data(
    config: "ClientConfig", bounds: tuple[Any, Any] | None, columns: "Columns | None", actions: "ActionKind"
) -> "Transitions":
    """The client's data, checked as far as that is possible without the server."""
    from fova.data.tables.loading import TableReader

    reader = None if columns is None else TableReader(columns)
    if columns is not None and bounds is None and config.task is None:
        bounds = _own_bounds(config.data, columns)
    ((_, data),) = config.load(bounds, actions=actions, reader=reader).clients.items()
    return data


def _bounds(options: ClientOptions) -> tuple[Any, Any] | None:
    if bool(options.action_low) != bool(options.action_high):
        raise FovaError("Give --action-low and --action-high together.")
    return (options.action_low, options.action_high) if options.action_low else None


def _own_bounds(data: str, columns: "Columns") -> tuple[Any, Any] | None:
    """The range of the actions in a table, in place of the bounds that only the server knows; None for choices."""
    (source,) = load_tables([data], columns).values()
    if source.action_names is not None:
        return None
    actions = source.transitions.actions
    return actions.min(axis=0) - 1, actions.max(axis=0) + 1  # a column may have one value only


def _address_in(file: "ConfigFile") -> str:
    from fova.network.addresses import with_port
    from fova.network.server_config import ServerConfig
    from fova.settings import fill

    server = fill(ServerConfig, file.server, "of [server]")
    if "host" not in file.server:
        raise FovaError("Give the server's address, for instance: --server fl.example.org:8443")
    return with_port(server.host, server.port)


def _client_config(options: ClientOptions, file: "ConfigFile") -> "ClientConfig":
    """The client's configuration, from its flags or from its table in a configuration file."""
    from fova.federation.client_specs import complete
    from fova.network.client import ClientConfig

    described = {spec.name: spec for spec in complete(file.clients) if spec.name}
    if options.config and options.data is None and options.name not in described:
        raise unknown(
            "client in the configuration", str(options.name), map(str, described), "Choose one: --name NAME"
        )
    spec = described.get(options.name) if options.name else None
    data = options.data or (spec.data if spec else None)
    if data is None:
        raise FovaError("Name this client's data, for instance: --data ward-1.npz")
    path = Path(data)
    name = options.name or path.stem
    return ClientConfig(
        name=name,
        data=str(path.resolve()) if path.exists() else data,
        state=str((options.state or Path("fova-client") / name).resolve()),
        task=options.task or file.task,
        size=options.size if options.size is not None else (spec.size if spec else None),
        offset=options.offset if options.offset is not None else (spec.offset if spec else None),
        insist_privacy=options.insist_privacy or (spec.insist_privacy if spec else None),
        insist_secure_aggregation=options.insist_secure_aggregation,
        peers=_checked_peers(options.peers),
    )


def _checked_peers(folder: Path | None) -> str | None:
    if folder is None:
        return None
    from fova.network.certificates import public_keys

    if not public_keys(folder, Terminal(stderr=True).write_line):
        raise FovaError(f"{folder} holds no public keys. Copy certificates/server/clients there: NAME.pub")
    return str(folder.resolve())
