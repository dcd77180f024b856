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
# Bodies that are being received at the same time from clients and strangers, in all and from one address.
LARGEST_TOTAL, LARGEST_FROM_ONE_ADDRESS = 512 * 2**20, 128 * 2**20
BODY_SECONDS, LONGEST_BODY_SECONDS = 60.0, 1800.0  # without a further byte, and for a whole body
HEADER_SECONDS = 15.0
HANDSHAKE_SECONDS, SHUTDOWN_SECONDS = 10.0, 10.0  # of TLS
MOST_CONNECTIONS = 512  # that are open, and as many whose handshake is not finished
MOST_FROM_ONE_ADDRESS = 128


def proof(secret: str, nonce: str) -> str:
    """What only a process with the same secret can answer to a nonce."""
    return hmac.new(secret.encode(), nonce.encode(), hashlib.sha256).hexdigest()


class Refused(Exception):
    """A body is too large, too slow, or one too many."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.answer = PlainTextResponse(f"{words}\n", status)


class Body:
    """The body of one request, as it is received. What it holds counts for its address; None counts nowhere."""

    def __init__(self, held: Counter[str], address: str | None, receive: Any) -> None:
        self.held, self.address, self._receive = held, address, receive
        self.size, self.complete = 0, False
        self.last = asyncio.get_running_loop().time() + LONGEST_BODY_SECONDS

    async def receive(self) -> Any:
        """The next part of the body, or `Refused`."""
        if self.complete:  # what follows the body is the end of the connection, however long it takes
            return await self._receive()
        left = self.last - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), min(BODY_SECONDS, max(left, 0.0)))
        except TimeoutError as error:
            raise Refused(408, "The body is too slow.") from error
        self._count(len(message.get("body", b"")))
        self.complete = not message.get("more_body", False)
        return message

    def _count(self, size: int) -> None:
        self.size += size
        if self.size > LARGEST_BODY:
            raise Refused(413, "The body is too large.")
        if self.address is not None:
            self.held[self.address] += size
            if self.held[self.address] > LARGEST_FROM_ONE_ADDRESS or self.held.total() > LARGEST_TOTAL:
                self.held[self.address] -= size
                self.size -= size
                raise Refused(503, "Too many bodies are being received. Try again.")

    def forget(self) -> None:
        if self.address is not None:
            self.held -= Counter({self.address: self.size})


class Door:
    """ASGI middleware: who may use which interface, and how large a body may be."""

    def __init__(
        self, app: Any, trusted: frozenset[str] = frozenset(), own: frozenset[str] = frozenset(), secret: str = ""
    ) -> None:
        self.app, self.trusted, self.own, self.secret = app, trusted, own, secret
        self.held: Counter[str] = Counter()  # bytes of the clients' bodies that are being received, by address

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
        path, host = scope.get("path", ""), _host(scope)
        if scope["type"] == "http" and path.startswith(FOR_CLIENTS):
            return True
        if host in self.trusted:
            return True
        if not (is_loopback(host) or host in self.own):
            return False
        given = headers.get(SECRET_HEADER.encode(), b"").decode("latin-1")
        return not path.startswith(CONTROL) or (bool(self.secret) and hmac.compare_digest(given, self.secret))

    async def _within_limits(self, scope: Any, headers: dict[bytes, bytes], receive: Any, send: Any) -> None:
        """Call the app, unless the body exceeds a limit: then the answer is ours, whatever the app makes of it."""
        refused = started = False
        # Only what comes over the clients' interface is limited together: strangers must not be able to use up the
        # room of the server's own processes.
        address = _host(scope) if scope["path"].startswith(FOR_CLIENTS) else None
        body = Body(self.held, address, receive)

        async def receive_some() -> Any:
            nonlocal refused
            try:
                return await body.receive()
            except Refused as refusal:
                if not started:
                    await refusal.answer(scope, receive, send)
                refused = True
                raise

        async def send_proof(message: Any) -> None:
            nonlocal started
            if refused:
                return
            started = True
            nonce = headers.get(NONCE_HEADER.encode())
            if message["type"] == "http.response.start" and nonce is not None and scope["path"].startswith(CONTROL):
                shown = proof(self.secret, nonce.decode("latin-1")).encode()
                message = message | {"headers": [*message.get("headers", []), (PROOF_HEADER.encode(), shown)]}
            await send(message)

        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > LARGEST_BODY:
            await Refused(413, "The body is too large.").answer(scope, receive, send)
            return
        try:
            await self.app(scope, receive_some, send_proof)
        except Exception:
            if not refused:
                raise
        finally:
            body.forget()


def _host(scope: Any) -> str:
    return str(scope["client"][0]) if scope.get("client") else ""


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
    # Without a line for every request: strangers could fill the disk with them.
    options |= {"http": BoundedProtocol, "loop": BoundedLoop, "ws": "none", "access_log": False}
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
