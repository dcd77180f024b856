"""`fova server`, `fova client` and `fova certificates`: a federation over a network. Wiring only."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fova.commands.flags import parse
from fova.errors import FovaError, unknown
from fova.machine.interrupts import explained, heeding_signals
from fova.progress import choose
from fova.run.config import ConfigFile, read_toml

if TYPE_CHECKING:
    from fova.network.client import ClientConfig
    from fova.network.server import ServerConfig


def server(arguments: list[str]) -> None:
    _insist_on_flower()
    from fova.commands.run_arguments import parse_run
    from fova.network.deployment import Address, serve
    from fova.network.server import ServerConfig, create_run, read_server
    from fova.run.directory import RunDirectory, free_name

    config, options = parse_run(arguments, ServerOptions, "fova server", {"server": ServerConfig})
    if options.resume:
        run = RunDirectory.open(options.resume)
        _, network = read_server(run)
    else:
        network = options.server
        stem = f"server-{Path(config.algorithm_name).stem}-{config.task or 'data'}"
        path = Path("runs") / options.name if options.name else free_name(stem, Path("runs"))
        _check_certificates(network, options.insecure)
        run = create_run(path, config, network)
    if options.prepare:
        print(f"{run.path.resolve()}")
        return
    folder = _check_certificates(network, options.insecure)
    address = Address(network.host, network.port, folder, network.control_hosts)
    console = Console()
    progress = choose(options.quiet, options.plain, console)
    try:
        progress.note(f"listening on {network.host}:{network.port}, {'plain text' if folder is None else 'TLS'}")
        how_to_go_on = f"Stopped. Finished rounds are saved.\nGo on with: fova server --resume {run.path}"
        with explained(lambda: how_to_go_on), heeding_signals():
            serve(run, address, progress)
    finally:
        progress.finish()
    console.print(f"policy   {run.policy}\nmetrics  {run.path / 'metrics.jsonl'}", highlight=False)


@dataclass(frozen=True)
class ServerOptions:
    """Train one policy across clients on other machines: wait for them, run the rounds, write the run's files.

    The training is described as for `fova train`, without --clients: those come by themselves (fova client).
    """

    task: str | None = None
    """What is being learned, if it is a task of `fova tasks`; the server then plays the policy now and then."""
    config: Path | None = None
    """A TOML file with [server] and, if wanted, task, [run] and [algorithm]. Flags win over it."""
    algorithm: str = "fova"
    """The algorithm's name."""
    preset: str | None = None
    """Which of the algorithm's presets to start from."""
    name: str | None = None
    """Directory of the run under runs/."""
    resume: Path | None = None
    """Go on with the run in this directory, with the settings that it was started with."""
    insecure: bool = False
    """Plain text and no proof of who a client is. For trials on one machine."""
    prepare: bool = False
    """Only make the run's directory and print it, for those who start Flower themselves."""
    quiet: bool = False
    """Print nothing but errors."""
    plain: bool = False
    """Print plain lines instead of a live display."""


def client(arguments: list[str]) -> None:
    _insist_on_flower()
    from fova.network.deployment import participate

    options = parse(ClientOptions, "fova client", arguments)
    file = read_toml(options.config) if options.config else ConfigFile()
    address = options.server or _written_address(file)
    config = _client_config(options, file)
    progress = choose(options.quiet, True, Console())
    progress.status(f"reading {config.data}")
    ((_, data),) = config.load(_bounds(options)).clients.items()  # what is wrong with the data is said at once
    progress.note(f"{config.name}: {len(data):,} transitions; connecting to {address}")
    folder = None if options.insecure else options.certificates
    if folder is not None:
        _insist_on_files(folder, ("ca.crt", "client.key"), "fova client")
    try:
        with heeding_signals():
            participate(config, address, folder, progress)
    except KeyboardInterrupt:
        progress.note("Stopped. What this client carries from round to round is saved.")


@dataclass(frozen=True)
class ClientOptions:
    """Take part in a federation with the data on this machine. Runs until it is stopped (Ctrl-C).

    Data stays here. What leaves: network parameters, a weight, named metrics, and if the server normalises
    observations, a count, a sum and a sum of squares per column.
    """

    server: str | None = None
    """The server, as HOST:PORT."""
    data: str | None = None
    """A data file (NPZ, Parquet, HDF5, Minari), or with --task a quality of its data."""
    name: str | None = None
    """What the federation calls this client; with TLS, the name its key was made for (default: the data's name)."""
    certificates: Path = Path("certificate")
    """Folder with ca.crt and client.key, from `fova certificates make`."""
    state: Path | None = None
    """Folder for what the client carries from round to round (default: fova-client/NAME)."""
    config: Path | None = None
    """A TOML file with [server] and a [[client]] table of this --name, which say the same."""
    task: str | None = None
    """Make data of this task instead of reading a file; for trials."""
    size: int | None = None
    """Transitions to take (default: all of a file)."""
    offset: int | None = None
    """Row to start from."""
    action_low: tuple[float, ...] = ()
    """Lowest action, to check the data before the server is asked for its bounds."""
    action_high: tuple[float, ...] = ()
    """Highest action, likewise."""
    insecure: bool = False
    """Plain text and no proof of who the server is. For trials on one machine."""
    quiet: bool = False
    """Print nothing but errors."""


def certificates(arguments: list[str]) -> None:
    _insist_on_flower()
    from fova.network.certificates import make

    if arguments[:1] not in (["make"], ["-h"], ["--help"]):
        raise FovaError("There is one command: fova certificates make --hosts fl.example.org --clients north south")
    options = parse(CertificatesOptions, "fova certificates make", [a for a in arguments if a != "make"])
    made = make(options.directory, options.hosts, options.clients, options.days)
    console = Console(highlight=False, soft_wrap=True)
    for path in made:
        console.print(f"made  {path}")
    if not made:
        console.print("Everything is there already; nothing was changed.")
    console.print(
        f"\nkeep  {options.directory}/authority    where only you can read it; it is needed to add clients"
    )
    console.print(f"copy  scp -r {options.directory}/server SERVER:certificates/server")
    for name in options.clients:
        console.print(f"copy  scp -r {options.directory}/{name} {name.upper()}:certificate")


@dataclass(frozen=True)
class CertificatesOptions:
    """Make an authority, a certificate for the server and a key pair for every client. Nothing is overwritten."""

    hosts: tuple[str, ...] = ()
    """Names or addresses that clients use for the server."""
    clients: tuple[str, ...] = ()
    """Names of the clients. Run again with further names to add clients."""
    directory: Path = Path("certificates")
    """Where they go."""
    days: int = 825
    """How long the server's certificate is valid."""


# --- What all three need ---


def _insist_on_flower() -> None:
    try:
        import flwr  # noqa: F401
    except ImportError as error:
        raise FovaError("A federation over a network needs Flower: pip install 'fova[flower]'") from error


def _check_certificates(network: "ServerConfig", insecure: bool) -> Path | None:
    if insecure:
        return None
    folder = Path(network.certificates)
    _insist_on_files(folder, ("ca.crt", "server.crt", "server.key"), "fova server")
    if not list((folder / "clients").glob("*.pub")):
        raise FovaError(
            f"{folder / 'clients'} holds no client's public key, so nobody could join. Add clients with: "
            "fova certificates make --clients NAME"
        )
    return folder


def _insist_on_files(folder: Path, names: tuple[str, ...], command: str) -> None:
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise FovaError(
            f"{folder} has no {' and no '.join(missing)}. Make them with `fova certificates make` and say where "
            f"they are with --certificates; or, for a trial on one machine only: {command} --insecure"
        )


def _written_address(file: ConfigFile) -> str:
    if "host" not in file.server:
        raise FovaError("Say where the server is, for instance: --server fl.example.org:8443")
    return f"{file.server['host']}:{file.server.get('port', 8443)}"


def _client_config(options: ClientOptions, file: ConfigFile) -> "ClientConfig":
    """Who this client is: from its flags, or from its table in a configuration file."""
    from fova.network.client import ClientConfig

    written = {spec.name: spec for spec in file.clients if spec.name}
    if options.config and options.data is None and options.name not in written:
        raise unknown("client in the configuration", str(options.name), map(str, written), "Say which: --name NAME")
    spec = written.get(options.name) if options.name else None
    data = options.data or (spec.data if spec else None)
    if data is None:
        raise FovaError("Say where this client's data is, for instance: --data ward-1.npz")
    path = Path(data)
    name = options.name or path.stem
    return ClientConfig(
        name=name,
        data=str(path.resolve()) if path.exists() else data,
        state=str((options.state or Path("fova-client") / name).resolve()),
        task=options.task or file.task,
        size=options.size if options.size is not None else (spec.size if spec else None),
        offset=options.offset if options.offset is not None else (spec.offset if spec else None),
    )


def _bounds(options: ClientOptions) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    return (options.action_low, options.action_high) if options.action_low else None
