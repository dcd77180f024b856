"""Flower's SuperLink behind a door: who may use which interface, and how much anybody may send before it is known.

A SuperLink serves all its interfaces on one port. The control interface can start runs, and a run is code: it needs
a secret that only the server's user can read, or an address in FOVA_CONTROL_HOSTS. The runtime interface is for
processes of this machine. Only the clients' interface is open to others. Run as `python -m fova.network.superlink`,
with the arguments of `flower-superlink`.

Before a peer has shown its key, it can open connections and send headers and bodies. All three have limits here:
the number of connections, the time for a handshake and for headers, the size and the time of a body.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import os
import ssl
from collections import Counter
from typing import Any, ClassVar

import uvicorn
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

FOR_CLIENTS, CONTROL = "/v1/fleet/", "/v1/control/"
CONTROL_HOSTS = "FOVA_CONTROL_HOSTS"  # addresses of other machines, separated by spaces
OWN_HOSTS = "FOVA_OWN_HOSTS"  # addresses of this machine, likewise
SECRET = "FOVA_CONTROL_SECRET"  # the environment of a process can be read by its own user only
SECRET_HEADER, NONCE_HEADER, PROOF_HEADER = "x-fova-secret", "x-fova-nonce", "x-fova-proof"

# Flower sends arrays in chunks of 20 MiB.
LARGEST_BODY = 32 * 2**20
LARGEST_TOTAL = 512 * 2**20  # bodies that are being received at the same time
BODY_SECONDS = 60.0  # without a further byte
HEADER_SECONDS = 15.0
HANDSHAKE_SECONDS, SHUTDOWN_SECONDS = 10.0, 10.0  # of TLS
MOST_CONNECTIONS = 512  # that are open, and as many whose handshake is not finished
MOST_FROM_ONE_ADDRESS = 128


def proof(secret: str, nonce: str) -> str:
    """What only a process with the same secret can answer to a nonce."""
    return hmac.new(secret.encode(), nonce.encode(), hashlib.sha256).hexdigest()


class _TooMuch(Exception):
    """A body is too large or too slow."""


class Door:
    """ASGI middleware: who may use which interface, and how large a body may be."""

    def __init__(
        self, app: Any, trusted: frozenset[str] = frozenset(), own: frozenset[str] = frozenset(), secret: str = ""
    ) -> None:
        self.app, self.trusted, self.own, self.secret = app, trusted, own, secret
        self.total = 0  # bytes of bodies that are being received

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope.get("headers", [])}
        if not self._may(scope, headers):
            refusal = PlainTextResponse("Only the user who runs the server may use this.\n", status_code=403)
            await refusal(scope, receive, send)
            return
        await self._within_limits(scope, headers, receive, send)

    def _may(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> bool:
        path, host = scope.get("path", ""), scope["client"][0] if scope.get("client") else ""
        if scope["type"] == "http" and path.startswith(FOR_CLIENTS):
            return True
        if host in self.trusted:
            return True
        if not (is_loopback(host) or host in self.own):
            return False
        given = headers.get(SECRET_HEADER.encode(), b"").decode("latin-1")
        return not path.startswith(CONTROL) or (bool(self.secret) and hmac.compare_digest(given, self.secret))

    async def _within_limits(self, scope: Any, headers: dict[bytes, bytes], receive: Any, send: Any) -> None:
        received, complete, started = 0, False, False

        async def receive_some() -> Any:
            nonlocal received, complete
            if complete:  # what follows the body is the end of the connection, however long it takes
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), BODY_SECONDS)
            except TimeoutError as error:
                raise _TooMuch from error
            size = len(message.get("body", b""))
            received, self.total = received + size, self.total + size
            complete = not message.get("more_body", False)
            if received > LARGEST_BODY or self.total > LARGEST_TOTAL:
                raise _TooMuch
            return message

        async def send_proof(message: Any) -> None:
            nonlocal started
            started = True
            nonce = headers.get(NONCE_HEADER.encode())
            if message["type"] == "http.response.start" and nonce is not None and scope["path"].startswith(CONTROL):
                shown = proof(self.secret, nonce.decode("latin-1")).encode()
                message = message | {"headers": [*message.get("headers", []), (PROOF_HEADER.encode(), shown)]}
            await send(message)

        declared = headers.get(b"content-length", b"0")
        try:
            if not declared.isdigit() or int(declared) > LARGEST_BODY:
                raise _TooMuch
            await self.app(scope, receive_some, send_proof)
        except _TooMuch:
            if not started:
                await PlainTextResponse("The body is too large or too slow.\n", 413)(scope, receive, send)
        finally:
            self.total -= received


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_full(connections: Counter[str], address: str) -> bool:
    """Whether there is no room for one more connection from this address.

    This machine's own connections have room of their own: the server's processes must reach the SuperLink.
    """
    if is_loopback(address):
        return connections[address] >= MOST_CONNECTIONS
    return connections[address] >= MOST_FROM_ONE_ADDRESS or connections.total() >= MOST_CONNECTIONS


class BoundedLoop(asyncio.SelectorEventLoop):
    """An event loop with a limit on connections whose handshake is not finished, and on its time.

    Uvicorn hears of a connection after its handshake. Until then each takes a quarter of a megabyte.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shaking_hands: Counter[str] = Counter()

    async def _accept_connection2(
        self, factory: Any, conn: Any, extra: Any, sslcontext: Any = None, server: Any = None, *_: Any
    ) -> None:
        address = str(extra["peername"][0])
        if is_full(self.shaking_hands, address):
            conn.close()
            return
        self.shaking_hands[address] += 1
        try:
            await super()._accept_connection2(  # type: ignore[misc]
                factory, conn, extra, sslcontext, server, HANDSHAKE_SECONDS, SHUTDOWN_SECONDS
            )
        finally:
            self.shaking_hands -= Counter([address])


class BoundedProtocol(H11Protocol):
    """Uvicorn's HTTP protocol with a limit on connections and on the time until a request's headers are there."""

    by_address: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._timer: asyncio.TimerHandle | None = None
        full = is_full(self.by_address, self._address)
        self.by_address[self._address] += 1
        if full:
            transport.abort()
            return
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.by_address[self._address] -= 1
        if not self.by_address[self._address]:
            del self.by_address[self._address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_headers()

    def _wait_for_headers(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def serve_within_limits(app: Any, **options: Any) -> None:
    """`uvicorn.run` with this module's event loop and protocol, and TLS 1.3 only."""
    options |= {"http": BoundedProtocol, "loop": BoundedLoop, "ws": "none"}
    config = uvicorn.Config(app, **options)
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
    uvicorn.Server(config).run()


def allow_many_descriptors() -> None:
    """Let this process open as many files as the system allows: connections that wait for a handshake are files."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main() -> None:
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink

    from fova.network.processes import end_with_parent

    trusted, own = (frozenset(os.environ.get(name, "").split()) for name in (CONTROL_HOSTS, OWN_HOSTS))
    door = Middleware(Door, trusted=trusted, own=own, secret=os.environ.pop(SECRET, ""))
    extensions.get_middleware = lambda: (door,)
    uvicorn.run = serve_within_limits  # Flower calls it by this name
    allow_many_descriptors()
    end_with_parent()  # without `fova server`, a SuperLink would keep the port in use
    flower_superlink()


if __name__ == "__main__":
    main()
