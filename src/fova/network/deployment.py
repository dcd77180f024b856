"""Start, monitor and stop the Flower processes of a real federation.

`serve` runs a SuperLink and trains one run on it. `participate` runs a SuperNode until it is stopped. Both disable
Flower's telemetry, its update checks and the installation of packages at run time. Both keep Flower's files out of
the user's home directory.
"""

import hashlib
import hmac
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import httpx
import tomli_w
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import ListRunsRequest, RegisterNodeRequest, StartRunRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from fova.errors import FovaError
from fova.machine.files import write_atomically
from fova.machine.interrupts import Interrupted, StopSignal, stop_signal
from fova.network import certificates, clock, journal, processes
from fova.network.addresses import with_port
from fova.network.client import ClientConfig
from fova.network.intake import one_line
from fova.network.server import STOP_REQUEST
from fova.network.superlink import (
    CONTROL_HOSTS,
    NONCE_HEADER,
    OWN_HOSTS,
    PROOF_HEADER,
    SECRET,
    SECRET_HEADER,
    proof,
)
from fova.network.supernode import bundle
from fova.progress import Failed, Finished, Progress
from fova.run.directory import RunDirectory

QUIET_FLOWER = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
SECONDS_TO_START = 60.0
SECONDS_TO_STOP, SECONDS_TO_STOP_WORKER = 15.0, 5.0
SECONDS_BETWEEN_CHECKS = 10.0
STARTS = 5  # of a SuperLink that dies
# A SuperNode gives up after this time if the server does not answer. The reason is then printed.
SECONDS_TO_CONNECT = 30
# A client restarts its SuperNode after this time if it ended (server restarted, network down).
SECONDS_TO_RECONNECT = 5.0


@dataclass(frozen=True)
class Address:
    """Address and certificates of a server. `certificates` is None for plain text, for tests on one machine."""

    host: str
    port: int
    certificates: Path | None
    control_hosts: tuple[str, ...] = ()


# --- The server -------------------------------------------------------------------------------------------


def serve(run: RunDirectory, address: Address, progress: Progress) -> None:
    """Train the run on a SuperLink of its own, from its last saved round. One that dies is started again."""
    for attempt in range(1, STARTS + 1):
        try:
            _serve_once(run, address, progress)
            return
        except SuperLinkDied as error:
            if attempt == STARTS:
                raise
            progress.note(f"{error} Starting it again; the run goes on from its last saved round.")


class SuperLinkDied(FovaError):
    """The SuperLink ended while the training went on."""


def _serve_once(run: RunDirectory, address: Address, progress: Progress) -> None:
    insist_on_a_free_port(address)
    reader = journal.Reader(run.path / "journal.jsonl")
    secret = secrets.token_hex(32)
    with _superlink(run, address, secret) as process, _control(address, secret) as control:
        _wait_until_up(process, control, run)
        known: set[str] = set()
        _register(control, address, known, progress)
        started = control.StartRun(
            StartRunRequest(
                fab=fab_to_proto(_fab()),
                override_config=user_config_to_proto({"directory": str(run.path.resolve())}),
            )
        )
        checked, warned = time.monotonic(), False
        with stop_signal(progress.note) as stop:
            while not _ended(reader, run, stop, progress):
                if process.poll() is not None:
                    raise SuperLinkDied(f"The SuperLink ended by itself. Its log is {_log(run.path)}.")
                if time.monotonic() - checked > SECONDS_BETWEEN_CHECKS:
                    checked = time.monotonic()
                    try:
                        _register(control, address, known, progress)
                        _insist_on_running(control, started.run_id, run)
                        warned = False
                    except httpx.HTTPError as error:  # it is busy, or stopped for a while; the training goes on
                        if not warned:
                            progress.note(f"the SuperLink does not answer ({type(error).__name__}); asking again")
                        warned = True
                time.sleep(0.5)


def insist_on_a_free_port(address: Address) -> None:
    """Refuse a port that another process listens on: its SuperLink would be taken for ours."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise FovaError(
            f"The server cannot listen on {address.host}: {error}. Give an address of this machine."
        ) from error
    family, kind, protocol, _, place = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
        except OSError as error:
            raise FovaError(
                f"Port {address.port} of {address.host} cannot be used: {error.strerror}. Another server may be "
                "running; stop it, or choose another port: --port"
            ) from error


def _ended(reader: journal.Reader, run: RunDirectory, stop: StopSignal, progress: Progress) -> bool:
    """Whether the training has ended. Shows the journal's new events and forwards a stop request."""
    if stop.wanted:
        (run.path / STOP_REQUEST).touch()
        stop.acknowledge()
    for event in reader.new():
        match event:
            case Failed(words) if stop.wanted:
                raise Interrupted(words)
            case Failed(words):
                raise FovaError(f"{words}\nContinue with: fova server --resume {run.path}")
            case Finished():
                return True
            case _:
                progress(event)
    return False


def _superlink(run: RunDirectory, address: Address, secret: str) -> Any:
    command = ["--host", address.host, "--port", str(address.port), "--disable-runtime-dependency-installation"]
    if address.certificates is None:
        command += ["--insecure"]
    else:
        folder = address.certificates
        command += ["--enable-supernode-auth", "--ssl-ca-certfile", str(folder / "ca.crt")]
        command += ["--ssl-certfile", str(folder / "server.crt"), "--ssl-keyfile", str(folder / "server.key")]
    settings = {
        CONTROL_HOSTS: " ".join(sorted(address.control_hosts)),
        # A machine that connects to its own public address appears with that address.
        OWN_HOSTS: " ".join(sorted(_addresses(address.host))),
        SECRET: secret,
    }
    return _flower("superlink", command, run.path, settings)


def _addresses(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise FovaError(f"The server cannot listen on {host}: {error}. Give an address of this machine.") from error


class OwnSuperLink:
    """Shows our secret with every request, and accepts an answer only from a SuperLink that has it, too."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def intercept(self, context: Any, call_next: Any) -> Any:
        nonce = secrets.token_hex(16)
        context.request.headers.update({SECRET_HEADER: self.secret, NONCE_HEADER: nonce})
        response = call_next(context)
        shown = response.headers.get(PROOF_HEADER, "")
        if not response.is_error and not hmac.compare_digest(shown, proof(self.secret, nonce)):
            raise FovaError("Another program answers in the name of our SuperLink. Choose another port: --port")
        return response


@contextmanager
def _control(address: Address, secret: str) -> Iterator[ControlHttpClient]:
    """Connect to the SuperLink's control interface, which asks for our secret."""
    authority = None if address.certificates is None else str(address.certificates / "ca.crt")
    with ControlHttpClient.from_server_address(
        with_port(certificates.reached_by(address.host), address.port),
        authority is None,
        authority,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI"), OwnSuperLink(secret)],
    ) as client:
        yield client


def _wait_until_up(process: subprocess.Popen[bytes], control: ControlHttpClient, run: RunDirectory) -> None:
    patience = time.monotonic() + SECONDS_TO_START
    while process.poll() is None and time.monotonic() < patience:
        try:
            control.ListRuns(ListRunsRequest())
        except httpx.TransportError:
            time.sleep(0.5)
        else:
            return
    reason = "ended at once" if process.poll() is not None else f"did not start within {SECONDS_TO_START:.0f} s"
    raise FovaError(f"The SuperLink {reason}. Is the port in use? The end of its log:\n{_last_words(run.path)}")


def _register(control: ControlHttpClient, address: Address, known: set[str], progress: Progress) -> None:
    """Register every client with a public key, including clients that are added while the server runs.

    A key that cannot be registered is named once and skipped.
    """
    if address.certificates is None:
        return

    def warn(words: str) -> None:
        if words not in known:
            progress.note(words)
            known.add(words)

    for name, key in certificates.registered(address.certificates, warn).items():
        if name not in known:
            known.add(name)
            try:
                control.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
            except httpx.HTTPStatusError as error:
                progress.note(f"{name} cannot be registered and cannot join: {one_line(error.response.text)}")


def _insist_on_running(control: ControlHttpClient, run_id: int, run: RunDirectory) -> None:
    status = control.ListRuns(ListRunsRequest(run_id=run_id)).run_dict[run_id].status
    if status.status == "finished" and status.sub_status != "completed":
        raise FovaError(
            f"The training stopped early: {status.details or status.sub_status}\nContinue with: "
            f"fova server --resume {run.path}"
        )


def _fab() -> Fab:
    content = bundle()
    return Fab(hashlib.sha256(content).hexdigest(), content, {})


# --- A client ---------------------------------------------------------------------------------------------


def participate(config: ClientConfig, server: str, folder: Path | None, progress: Progress) -> None:
    """Run a SuperNode for this client until it is stopped. Restart it when it ends by itself."""
    if folder is not None:
        config = replace(config, key=str((folder / "client.key").resolve()))
    state = Path(config.state)
    state.mkdir(parents=True, exist_ok=True)
    reader = journal.Reader(state / "journal.jsonl")
    said = ""
    while True:
        port, secret = _free_port(), _secret(state)
        with _supernode(config, server, folder, state, port, secret) as process:
            _watch(process, partial(_worker, state, port, secret), reader, progress)
        words = f"{server} {_why(_last_words(state), server, folder)}."
        if words != said:
            progress.note(f"{words} Trying again every {SECONDS_TO_RECONNECT:.0f} s.")
            said = words
        time.sleep(SECONDS_TO_RECONNECT)


def _watch(
    process: subprocess.Popen[bytes],
    start_worker: Callable[[], subprocess.Popen[bytes]],
    reader: journal.Reader,
    progress: Progress,
) -> None:
    """Show what the client's processes say until the SuperNode ends. A worker that ends is started again."""
    worker, started = start_worker(), time.monotonic()
    try:
        while process.poll() is None:
            for event in reader.new():
                progress(event)
            if worker.poll() is not None and time.monotonic() - started > SECONDS_TO_RECONNECT:
                progress.note("The process that trains has ended. Another one goes on from the saved state.")
                worker, started = start_worker(), time.monotonic()
            time.sleep(0.5)
    finally:
        _stop(worker, signal.SIGTERM, SECONDS_TO_STOP_WORKER)


def _secret(state: Path) -> Path:
    """A new secret in a file of this user's. A SuperNode gives messages only to the worker that has it."""
    file = state / ".flwr" / "worker-secret"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(secrets.token_bytes(32))
    return file


def _worker(state: Path, port: int, secret: Path) -> subprocess.Popen[bytes]:
    """Start the process that answers the SuperNode's messages."""
    command = [sys.executable, "-m", "fova.network.worker", "--insecure"]  # between two processes of this machine
    command += ["--runtime-api-address", f"127.0.0.1:{port}", "--superexec-auth-secret-file", str(secret)]
    with _log(state).open("ab") as log:
        return _start(command, _environment(state), log)


def _supernode(config: ClientConfig, server: str, folder: Path | None, state: Path, port: int, secret: Path) -> Any:
    command = ["--superlink", server, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
    command += ["--max-wait-time", str(SECONDS_TO_CONNECT)]
    if folder is None:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", str(folder / "ca.crt")]
        command += ["--auth-supernode-private-key", str(folder / "client.key")]
    command += ["--node-config", str(_node_config(config, state))]
    return _flower("supernode", command, state, {})


def _node_config(config: ClientConfig, state: Path) -> Path:
    """The client's configuration as a file. On a command line, Flower reads no name with quotes or backslashes."""
    file = state / ".flwr" / "client.toml"
    known = {name: value for name, value in asdict(config).items() if value is not None}
    write_atomically(file, tomli_w.dumps(known).encode())
    return file


# Flower's message when a SuperNode ends, and the explanation that is printed.
REFUSED = "401 Unauthorized"
ENDINGS = {
    "Failed to activate SuperNode": "does not know this client's key, or still thinks that it is connected (that "
    "passes within a minute)",
    "CERTIFICATE_VERIFY_FAILED": "does not show a certificate of our authority (ca.crt) for this address",
    "Connection refused": "does not answer",
    "Name or service not known": "is an address that cannot be found",
    REFUSED: "refuses this client's signature. Is client.key the key whose .pub file the server has, and is this "
    "machine's clock right?",
    "Failed to initialize the connection": "does not understand us: is one side --insecure and the other not?",
}


def _why(words: str, server: str, folder: Path | None) -> str:
    """The reason why a SuperNode ended, from the last lines of its log and from the server's clock."""
    certain = next((meaning for said, meaning in ENDINGS.items() if said in words), None)
    if folder is not None and (certain is None or REFUSED in words):
        certain = clock.in_words(clock.seconds_ahead(server, folder / "ca.crt")) or certain
    return certain or "ended the connection"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- Processes --------------------------------------------------------------------------------------------


@contextmanager
def _flower(
    part: str, arguments: list[str], folder: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of Flower's processes and stop it on exit. Its output goes to flower.log in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = processes.mark_of(folder)
    processes.end(mark)  # what an earlier start left behind
    with _log(folder).open("ab") as log:
        command = [sys.executable, "-m", f"fova.network.{part}", *arguments]
        process = _start(command, _environment(folder) | environment, log)
    try:
        yield process
    finally:
        _stop(process, signal.SIGINT, SECONDS_TO_STOP)
        processes.end(mark)  # Flower's helpers have sessions of their own and may outlive it


def _environment(folder: Path) -> dict[str, str]:
    """The environment of the processes that work for a folder."""
    settings = os.environ | QUIET_FLOWER
    settings |= {"FLWR_HOME": str((folder / ".flwr").resolve()), processes.MARK: processes.mark_of(folder)}
    settings[processes.PARENT] = str(os.getpid())
    # Flower starts its helper programs by name. They are installed beside this Python.
    settings["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), settings.get("PATH", "")))
    return settings


def _stop(process: subprocess.Popen[bytes], number: signal.Signals, seconds: float) -> None:
    """Ask a process to end, and kill it if it does not in time."""
    process.send_signal(number)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _start(command: list[str], environment: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    # A separate session: Ctrl-C reaches this process only, which then stops Flower in the right order.
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )


def _log(folder: Path) -> Path:
    return folder / "flower.log"


def _last_words(folder: Path, lines: int = 15) -> str:
    text = _log(folder).read_text(errors="replace")
    return "\n".join(text.splitlines()[-lines:])
