"""A small HTTP server that bounds what its clients can use, with the standard library only.

Clients may be hostile. Connections are bounded in number, requests in bytes and in time, and no request ends the
server. What is answered is decided by the rooms above: `deploy` serves a policy, `reports` a page about a run.
"""

import io
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import MappingProxyType
from typing import Annotated, Any

from fova.errors import FovaError
from fova.machine.interrupts import heeding_signals
from fova.settings import CONNECTIONS, PORTS, SECONDS, Within, argument, check_kinds, check_ranges

LARGEST_HEAD = 128 * 1024  # bytes of a request line and its headers
REQUEST_LINE = re.compile(r"[!-~]+ [!-~]+ HTTP/1\.[0-9]")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # a tab is none here
DRAIN_SECONDS = 1.0  # for a client that still sends a body that was refused
DRAIN_PIECE = 65_536
BUSY = "\r\n".join(
    (
        "HTTP/1.1 503 Service Unavailable",
        "Content-Type: {}",
        "Content-Length: {}",
        "Retry-After: 1",
        "Connection: close\r\n\r\n",
    )
)


@dataclass(frozen=True)
class Limits:
    """What a client may use."""

    bytes: Annotated[int, Within(0)] = 1_000_000  # of a request's body
    seconds: Annotated[float, SECONDS] = 10.0  # from the first byte of a request to its last one
    idle_seconds: Annotated[float, SECONDS] = 30.0  # between two requests on one connection
    connections: Annotated[int, CONNECTIONS] = 64  # at once
    stop_seconds: Annotated[float, SECONDS] = 5.0  # that requests have to finish when the server stops

    def __post_init__(self) -> None:
        check_kinds(self, "of the limits")
        check_ranges(self)


class Listener(ThreadingHTTPServer):
    """The listening socket and its threads, one for each connection."""

    daemon_threads = True
    request_queue_size = 128
    busy = ("text/plain; charset=utf-8", b"Too many connections. Try again later.\n")  # what one too many is told

    def __init__(self, host: str, port: int, limits: Limits, handler: "type[Connection]", remedy: str) -> None:
        """`remedy` says what to do where the port cannot be had."""
        host, port = argument("host", host, str), argument("port", port, Annotated[int, PORTS])
        if not host or "\0" in host:
            raise FovaError(f"host is {host!r}, but must be a name or an address of this machine.")
        self.limits = limits
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._connections = threading.BoundedSemaphore(limits.connections)
        self._answering = 0
        self._idle = threading.Condition()
        try:
            super().__init__((host, port), handler)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FovaError(f"The service cannot listen on {host} port {port}: {reason}. {remedy}") from error

    @property
    def address(self) -> str:
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}"

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer would look up the host's name, which can take long
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def run(self, started: Callable[[str], None]) -> None:
        """Answer requests until Ctrl-C or SIGTERM. `started` is called with the address."""
        with heeding_signals():
            try:
                started(self.address)
                self.serve_forever()
            except KeyboardInterrupt:
                pass
            finally:
                self.stop()

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
            kind, content = self.busy
            request.sendall(BUSY.format(kind, len(content)).encode() + content)
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


class Connection(BaseHTTPRequestHandler):
    """One connection: reads one request at a time, each within the limits."""

    server: Listener
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.1"  # so that a refusal has a status line, whatever was sent
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
        self._incoming.allow(self.server.limits.seconds, LARGEST_HEAD)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Whether the request can be answered. A malformed one is refused: a proxy may have read it otherwise."""
        if not super().parse_request():
            return False
        self._incoming.bytes_left = None
        if fault := self._fault():
            self.send_error(HTTPStatus.BAD_REQUEST, explain=fault)
            return False
        return True

    def _fault(self) -> str | None:
        """What RFC 9112 forbids in the request's head. The standard library drops or joins such lines."""
        if not REQUEST_LINE.fullmatch(self.requestline):
            return "The request line must be METHOD PATH HTTP/1.1, with single blanks."
        if self.headers.defects or self.headers.get_payload():
            return "A header line is malformed."
        for name, value in self.headers.items():
            if not HEADER_NAME.fullmatch(name) or CONTROL_CHARACTER.search(value):
                return "A header line is malformed."
        if len(self.headers.get_all("Host", [])) != 1 and self.request_version != "HTTP/1.0":
            return "There must be one Host."
        return None

    def drain(self) -> None:
        """Take what the client still sends, for a moment. Otherwise it could lose the answer."""
        self._incoming.allow(DRAIN_SECONDS)
        taken = 0
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while taken < self.server.limits.bytes and (piece := self._buffered.read1(DRAIN_PIECE)):
                taken += len(piece)

    def write(self, status: int, kind: str, body: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        """Send an answer. HEAD gets its head only, and so does a client that has the body already."""
        self.send_response(status)
        about = {"Content-Type": kind, "Content-Length": str(len(body)), **headers}
        for name, value in (about | ({"Connection": "close"} if self.close_connection else {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and status != HTTPStatus.NOT_MODIFIED:
            self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged for a request; proxies do that."""


class _Timed(io.RawIOBase):
    """Reads a socket until a deadline, however slowly the bytes arrive, and no further than it may."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = 0.0
        self.bytes_left: int | None = None  # None: no limit

    def allow(self, seconds: float, size: int | None = None) -> None:
        """Set the deadline to so many seconds from now, and how many bytes may come until then."""
        self._deadline = time.monotonic() + seconds
        self.bytes_left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if self.bytes_left is not None and self.bytes_left <= 0:
            raise HTTPException(f"more than {LARGEST_HEAD:,} bytes")  # `http.server` answers with status 431
        before = self._connection.gettimeout()
        self._connection.settimeout(left)
        try:
            count = self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(before)  # that of writing
        if self.bytes_left is not None:
            self.bytes_left -= count
        return count
