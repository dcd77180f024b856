"""A policy behind HTTP, with the standard library only: POST /act, GET /health, GET /schema.

Clients may be hostile. A request is bounded in bytes and in time, connections are bounded in number, errors are
short JSON, and no request ends the service. There is no encryption and no authentication: the service listens on
this machine unless it is told otherwise, and a proxy in front of it provides both.
"""

import io
import json
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from types import MappingProxyType
from typing import Any

from fova.deploy.answers import WARN_BEYOND, Answers, NotJSON
from fova.errors import FovaError
from fova.machine.interrupts import heeding_signals
from fova.policy import Policy, load_policy

METHODS = {"/act": ("POST",), "/health": ("GET", "HEAD"), "/schema": ("GET", "HEAD")}
DRAIN_SECONDS = 1.0  # for a client that still sends a body that was refused
DRAIN_PIECE = 65_536
BUSY = "\r\n".join(
    (
        "HTTP/1.1 503 Service Unavailable",
        "Content-Type: application/json",
        "Content-Length: {}",
        "Retry-After: 1",
        "Connection: close\r\n\r\n",
    )
)


@dataclass(frozen=True)
class Limits:
    """What a client may use."""

    bytes: int = 1_000_000  # of a request's body
    seconds: float = 10.0  # from the first byte of a request to its last one
    idle_seconds: float = 30.0  # between two requests on one connection
    connections: int = 64  # at once
    stop_seconds: float = 5.0  # that requests have to finish when the service stops


def serve(
    policy: Policy | str | Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    warn_beyond: float = WARN_BEYOND,
    limits: Limits | None = None,
    started: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve a policy until Ctrl-C or SIGTERM. `started` is called with the service's address."""
    loaded = policy if isinstance(policy, Policy) else load_policy(policy)
    service = Service(Answers(loaded, warn_beyond), host, port, limits or Limits())
    in_main_thread = threading.current_thread() is threading.main_thread()
    with heeding_signals() if in_main_thread else nullcontext():
        try:
            started(service.address)
            service.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            service.stop()


class Service(ThreadingHTTPServer):
    """The listening socket and its threads, one for each connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answers: Answers, host: str, port: int, limits: Limits) -> None:
        self.answers, self.limits = answers, limits
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._connections = threading.BoundedSemaphore(limits.connections)
        self._answering = 0
        self._idle = threading.Condition()
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise FovaError(
                f"The service cannot listen on {host} port {port}: {error}. Choose others with --host and --port."
            ) from error

    @property
    def address(self) -> str:
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}"

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer would look up the host's name, which can take long
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def stop(self) -> None:
        """Accept no more connections, and let requests that are being answered finish."""
        self.server_close()
        with self._idle:
            self._idle.wait_for(lambda: not self._answering, self.limits.stop_seconds)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """A request is being answered; `stop` waits for it."""
        with self._idle:
            self._answering += 1
        try:
            yield
        finally:
            with self._idle:
                self._answering -= 1
                self._idle.notify_all()

    # --- Connections ---

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.settimeout(DRAIN_SECONDS)
            content = _json({"error": "Too many connections. Try again later."})
            request.sendall(BUSY.format(len(content)).encode() + content)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is the client's matter; anything else is a mistake of ours."""
        if not isinstance(sys.exception(), OSError):
            traceback.print_exc()


class _Refused(Exception):
    """A request that is refused before its body is read to the end."""

    def __init__(self, status: HTTPStatus, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class Handler(BaseHTTPRequestHandler):
    """One connection: reads one request at a time and answers it with JSON."""

    server: Service
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "fova", ""
    # Head and body in one packet, at once: two packets can wait 40 ms for each other.
    wbufsize, disable_nagle_algorithm = -1, True

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.limits.seconds)  # for a client that does not read its answer
        self._incoming = _Timed(self.connection)
        self.rfile = self._buffered = io.BufferedReader(self._incoming)

    def handle_one_request(self) -> None:
        self._incoming.allow(self.server.limits.idle_seconds)
        try:
            begun = self._buffered.peek(1)
        except TimeoutError:
            begun = b""
        if not begun:
            self.close_connection = True
            return
        self._incoming.allow(self.server.limits.seconds)
        super().handle_one_request()

    # --- Requests ---

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def _answer(self) -> None:
        """Answer the request, or say in JSON what is wrong with it."""
        with self.server.answering():
            try:
                body = _json(self._content())
            except _Refused as refused:
                self.close_connection = True
                self._error(refused.status, str(refused), refused.headers)
                self._drain()
            except NotJSON as error:
                self._error(HTTPStatus.BAD_REQUEST, str(error))
            except FovaError as error:
                self._error(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
            except OSError:
                raise  # the connection is broken, so there is nobody to answer
            except Exception:  # noqa: BLE001 (a mistake of ours must not end the connection without a word)
                traceback.print_exc()
                self._error(HTTPStatus.INTERNAL_SERVER_ERROR, "The service failed. Its log says why.")
            else:
                self._write(HTTPStatus.OK, body)

    def _content(self) -> dict[str, Any]:
        """What is answered to a correct request."""
        path = self.path.partition("?")[0]
        if path not in METHODS:
            raise _Refused(HTTPStatus.NOT_FOUND, f"There is no such path. Known: {', '.join(METHODS)}.")
        if self.command not in METHODS[path]:
            allowed = ", ".join(METHODS[path])
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes {allowed} only.", Allow=allowed)
        if path == "/act":
            return self.server.answers.act(self._body())
        # A body is not read here, so what follows it could not be told from a request.
        self.close_connection |= "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        return self.server.answers.health() if path == "/health" else self.server.answers.schema()

    def _body(self) -> bytes:
        length = self._length()
        try:
            body = self.rfile.read(length)
        except TimeoutError as error:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time.") from error
        if len(body) < length:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"The body ended after {len(body)} of {length} bytes.")
        return body

    def _length(self) -> int:
        """The number of bytes of the body, which must be given and within the limit."""
        given = self.headers.get_all("Content-Length", [])
        if not given or "Transfer-Encoding" in self.headers:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Send the body with Content-Length, not in chunks.")
        digits = given[0].strip()
        if len(given) > 1 or not (digits.isascii() and digits.isdigit()):
            raise _Refused(HTTPStatus.BAD_REQUEST, "Content-Length must be one whole number.")
        most = self.server.limits.bytes
        if len(digits) > len(str(most)) or int(digits) > most:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The body may have {most:,} bytes at most. Send fewer observations at a time.",
            )
        return int(digits)

    def handle_expect_100(self) -> bool:
        """Invite the body of a request that announces it, unless it is refused anyway."""
        if self.path.partition("?")[0] == "/act":
            try:
                self._length()
            except _Refused:
                return True  # `_answer` refuses it
        invited = super().handle_expect_100()
        self.wfile.flush()
        return invited

    # --- Answers ---

    def _write(self, status: HTTPStatus, body: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        self.send_response(status)
        about = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        for name, value in (about | ({"Connection": "close"} if self.close_connection else {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _error(self, status: HTTPStatus, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        self._write(status, _json({"error": message}), headers)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses: malformed request lines and headers, unknown methods."""
        status = HTTPStatus(code)
        self.close_connection = True
        self._error(status, f"{status.phrase}: {explain or message or status.description}")

    def _drain(self) -> None:
        """Take what the client still sends, for a moment. Otherwise it could lose the answer."""
        self._incoming.allow(DRAIN_SECONDS)
        taken = 0
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while taken < self.server.limits.bytes and (piece := self._buffered.read1(DRAIN_PIECE)):
                taken += len(piece)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged for a request; proxies do that."""


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False).encode()


class _Timed(io.RawIOBase):
    """Reads a socket until a deadline, however slowly the bytes arrive."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = 0.0

    def allow(self, seconds: float) -> None:
        """Set the deadline to so many seconds from now."""
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        before = self._connection.gettimeout()
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(before)  # that of writing
