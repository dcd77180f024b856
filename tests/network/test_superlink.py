"""The door before a SuperLink, tried with callers from here and from elsewhere."""

import asyncio
import contextlib
import inspect
import socket
import ssl
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from fova.network import superlink
from fova.network.certificates import make
from fova.network.superlink import Door, proof
from patience import PATIENCE


async def behind_the_door(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


SECRET = "only the server's user knows"


def answer(path, caller, trusted=frozenset(), headers=None, content=None, app=behind_the_door):
    async def ask():
        door = Door(app, trusted, frozenset({"192.0.2.7"}), SECRET)
        transport = httpx.ASGITransport(door, client=(caller, 50000))
        async with httpx.AsyncClient(transport=transport, base_url="https://server") as client:
            return await client.post(path, headers=headers, content=content)

    return asyncio.run(ask())


def status(path, caller, trusted=frozenset(), secret=SECRET):
    return answer(path, caller, trusted, {superlink.SECRET_HEADER: secret}).status_code


@pytest.mark.parametrize("path", ["/v1/control/start-run", "/v1/runtime/pull-object", "/docs", "/v1/fleet"])
def test_from_elsewhere_only_the_clients_interface_is_open(path):
    assert status("/v1/fleet/pull-messages", "10.0.0.9") == 200
    assert status(path, "10.0.0.9") == 403
    assert status(path, "127.0.0.1") == 200
    assert status(path, "::1") == 200


def test_a_machine_can_be_trusted_by_name_of_its_address():
    assert status("/v1/control/start-run", "10.0.0.9", frozenset({"10.0.0.9"})) == 200
    assert status("/v1/control/start-run", "10.0.0.8", frozenset({"10.0.0.9"})) == 403


@pytest.mark.parametrize("path", ["/v1/fleet/../control/start-run", "//v1/fleet/x", "/V1/FLEET/x"])
def test_paths_that_only_look_like_the_clients_interface(path):
    async def ask():
        reached = []

        async def inside(scope, receive, send):
            reached.append(scope["path"])
            await behind_the_door(scope, receive, send)

        scope = {"type": "http", "path": path, "client": ("10.0.0.9", 1), "method": "POST", "headers": []}

        async def receive():
            return {"type": "http.request"}

        async def send(message):
            pass

        await Door(inside)(scope, receive, send)
        return reached

    reached = asyncio.run(ask())
    # Starlette matches routes on the raw path, so what starts with the clients' prefix never reaches another route.
    assert all(path.startswith("/v1/fleet/") for path in reached)


def test_flower_still_has_the_hook_and_the_one_port_that_the_door_is_for():
    """A newer Flower may move things; then the door must be looked at again."""
    from flwr.superlink import extensions, main

    assert "*extensions.get_middleware()" in inspect.getsource(main._get_middleware)
    assert callable(extensions.get_middleware)
    assert "include_router(control_router)" in inspect.getsource(main.create_app)


# --- The control interface ---


@pytest.mark.parametrize("caller", ["127.0.0.1", "::1", "192.0.2.7"])
def test_on_this_machine_the_control_interface_asks_for_the_secret(caller):
    path = "/v1/control/start-run"
    assert status(path, caller) == 200
    assert status(path, caller, secret="wrong") == 403
    assert answer(path, caller).status_code == 403
    assert answer("/v1/runtime/pull-object", caller).status_code == 200, "Flower's own processes have tokens"


def test_without_a_secret_nobody_is_let_in():
    async def ask():
        transport = httpx.ASGITransport(Door(behind_the_door), client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="https://server") as client:
            return (await client.post("/v1/control/x", headers={superlink.SECRET_HEADER: ""})).status_code

    assert asyncio.run(ask()) == 403


def test_the_superlink_proves_that_it_has_the_secret():
    headers = {superlink.SECRET_HEADER: SECRET, superlink.NONCE_HEADER: "abc"}
    shown = answer("/v1/control/list-runs", "127.0.0.1", headers=headers).headers[superlink.PROOF_HEADER]
    assert shown == proof(SECRET, "abc") != proof(SECRET, "abd")
    assert superlink.PROOF_HEADER not in answer("/v1/fleet/x", "10.0.0.9", headers=headers).headers


# --- Limits before anybody is known ---


def test_the_limits_are_those_of_the_page():
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    within = superlink
    for words in (
        f"| connections | {within.MOST_CONNECTIONS} in all, {within.MOST_FROM_ONE_ADDRESS} from one address;",
        f"{within.HANDSHAKE_SECONDS:.0f} s for the handshake, {within.HEADER_SECONDS:.0f} s for the headers",
        f"{within.BODY_SECONDS:.0f} s without a further byte of a body",
        f"{within.LONGEST_BODY_SECONDS / 60:.0f} minutes for a whole body",
        f"| size of a body | {within.LARGEST_BODY / 2**20:g} MiB |",
        f"{within.LARGEST_TOTAL / 2**20:g} MiB in all, {within.LARGEST_FROM_ONE_ADDRESS / 2**20:g} MiB from one",
    ):
        assert words in page, words


async def reads_all(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await behind_the_door(scope, receive, send)


def test_a_large_body_is_refused_before_it_is_received():
    declared = answer("/v1/fleet/x", "10.0.0.9", headers={"content-length": str(2**31)}, content=b"", app=reads_all)
    assert declared.status_code == 413

    def endless():
        for _ in range(100):
            yield bytes(2**20)

    async def pieces():
        for piece in endless():
            yield piece

    assert answer("/v1/fleet/x", "10.0.0.9", content=pieces(), app=reads_all).status_code == 413
    assert answer("/v1/fleet/x", "10.0.0.9", content=bytes(2**20), app=reads_all).status_code == 200


async def ask_while_others_wait(door, waiting, asked):
    """Status of a request while another body is being received, and that of the other one when it ends."""
    gate = asyncio.Event()

    async def slow():
        yield bytes(2 * 2**20)
        await gate.wait()
        yield b"x"

    def client(address):
        transport = httpx.ASGITransport(door, client=(address, 1))
        return httpx.AsyncClient(transport=transport, base_url="https://server")

    async with client(waiting) as first, client(asked[0]) as second:
        held = asyncio.create_task(first.post("/v1/fleet/x", content=slow()))
        while not door.held:
            await asyncio.sleep(0.01)
        found = await second.post(asked[1], content=bytes(2 * 2**20))
        gate.set()
        return (await held).status_code, found.status_code


@pytest.mark.parametrize(
    ("limit", "asked", "status"),
    [
        ("LARGEST_TOTAL", ("10.0.0.8", "/v1/fleet/x"), 503),
        ("LARGEST_TOTAL", ("127.0.0.1", "/v1/runtime/push-object"), 200),  # the server's own processes
        ("LARGEST_FROM_ONE_ADDRESS", ("10.0.0.9", "/v1/fleet/x"), 503),
        ("LARGEST_FROM_ONE_ADDRESS", ("10.0.0.8", "/v1/fleet/x"), 200),
    ],
)
def test_bodies_that_arrive_together_are_limited_together(monkeypatch, limit, asked, status):
    monkeypatch.setattr(superlink, limit, 3 * 2**20)
    door = Door(reads_all, secret=SECRET)
    assert asyncio.run(ask_while_others_wait(door, "10.0.0.9", asked)) == (200, status)
    assert not door.held


def test_a_refusal_is_ours_whatever_the_app_makes_of_it():
    """Flower answers 500 to whatever goes wrong while it reads a body."""

    async def catches_all(scope, receive, send):
        try:
            await reads_all(scope, receive, send)
        except Exception:  # noqa: BLE001
            await send({"type": "http.response.start", "status": 500, "headers": []})
            await send({"type": "http.response.body", "body": b"Internal error"})

    async def pieces():
        for _ in range(100):
            yield bytes(2**20)

    refused = answer("/v1/fleet/x", "10.0.0.9", content=pieces(), app=catches_all)
    assert (refused.status_code, refused.text) == (413, "The body is too large.\n")


def test_a_body_that_trickles_is_given_up(monkeypatch):
    monkeypatch.setattr(superlink, "LONGEST_BODY_SECONDS", 0.2)

    async def trickle():
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    assert answer("/v1/fleet/x", "10.0.0.9", content=trickle(), app=reads_all).status_code == 408


def test_a_body_that_never_comes_is_given_up(monkeypatch):
    monkeypatch.setattr(superlink, "BODY_SECONDS", 0.05)

    async def ask():
        never, sent = asyncio.Event(), []

        async def receive():
            await never.wait()

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "path": "/v1/fleet/x", "client": ("10.0.0.9", 1), "method": "POST", "headers": []}
        await Door(reads_all)(scope, receive, send)
        return sent[0]["status"]

    assert asyncio.run(ask()) == 408


# --- Connections that never become requests ---


@pytest.fixture
def server(monkeypatch):
    """A server on loopback with small limits, in a thread."""
    monkeypatch.setattr(superlink, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(superlink, "MOST_CONNECTIONS", 20)
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(behind_the_door, http=superlink.BoundedProtocol, loop="asyncio", lifespan="off")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    yield listening.getsockname()
    running.should_exit = True
    thread.join(PATIENCE)


def is_closed(connection):
    connection.settimeout(PATIENCE)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_half_sent_requests_are_cut_off_and_others_are_served(server, monkeypatch):
    half = []
    for _ in range(20):
        connection = socket.create_connection(server)
        with contextlib.suppress(ConnectionError):  # cut off already, if the machine is busy
            connection.sendall(b"POST /v1/fleet/x HTTP/1.1\r\nHost: x\r\n")
        half.append(connection)
    assert all(is_closed(connection) for connection in half), "no headers within the time"
    monkeypatch.setattr(superlink, "HEADER_SECONDS", PATIENCE)
    assert httpx.post(f"http://{server[0]}:{server[1]}/x", timeout=PATIENCE).text == "inside"


def test_a_second_request_on_a_connection_has_a_time_limit_too(server, monkeypatch):
    monkeypatch.setattr(superlink, "HEADER_SECONDS", PATIENCE)
    wait_for_headers, waits = superlink.BoundedProtocol._wait_for_headers, threading.Event()
    monkeypatch.setattr(
        superlink.BoundedProtocol, "_wait_for_headers", lambda protocol: (wait_for_headers(protocol), waits.set())
    )
    with socket.create_connection(server) as connection:
        assert waits.wait(PATIENCE)
        monkeypatch.setattr(superlink, "HEADER_SECONDS", 0.3)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.settimeout(PATIENCE)
        assert b"200" in connection.recv(1000)
        connection.sendall(b"GET / HTTP/1.1\r\nHost:")
        while (received := connection.recv(1000)) and b"inside" in received:
            pass
        assert received == b"" or is_closed(connection)


def test_no_more_than_so_many_connections_are_open(server, monkeypatch):
    monkeypatch.setattr(superlink, "HEADER_SECONDS", PATIENCE)
    connections = [socket.create_connection(server) for _ in range(20)]
    with socket.create_connection(server) as one_more:
        one_more.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert is_closed(one_more)
    connections[0].sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    connections[0].settimeout(PATIENCE)
    assert b"200" in connections[0].recv(1000), "those that were there first are served"
    for connection in connections:
        connection.close()


class Wire(asyncio.Transport):
    """A connection from an address, which is never used."""

    def __init__(self, address):
        super().__init__({"peername": (address, 50000), "sockname": ("127.0.0.1", 8443)})
        self.aborted = False

    def abort(self):
        self.aborted = True

    def close(self):
        """There is nothing to close."""


def test_connections_are_counted_by_address_while_they_are_open(monkeypatch):
    counts = Counter()
    monkeypatch.setattr(superlink.BoundedProtocol, "by_address", counts)
    monkeypatch.setattr(superlink, "MOST_FROM_ONE_ADDRESS", 2)
    config = uvicorn.Config(behind_the_door, lifespan="off")
    config.load()
    loop = asyncio.new_event_loop()

    def connected(address):
        wire = Wire(address)
        protocol = superlink.BoundedProtocol(config, ServerState(), {}, loop)
        protocol.connection_made(wire)
        return protocol, wire

    try:
        first, second, third = (connected("10.0.0.9") for _ in range(3))
        other = connected("10.0.0.8")
        assert counts == {"10.0.0.9": 3, "10.0.0.8": 1}
        assert [wire.aborted for _, wire in (first, second, third, other)] == [False, False, True, False]
        assert [protocol._timer is None for protocol, _ in (first, third)] == [False, True]
        for protocol, _ in (third, first, other):
            protocol.connection_lost(None)
        assert counts == {"10.0.0.9": 1}
        assert "10.0.0.8" not in counts, "strangers cannot fill the memory with addresses"
        assert first[0]._timer is None
        second[0].connection_lost(None)
        assert not counts
    finally:
        loop.close()


# --- Connections before their handshake ---


@pytest.fixture
def secure_server(tmp_path, monkeypatch):
    """The same with TLS; it ends connections that do not finish their handshake only when the test is over."""
    monkeypatch.setattr(superlink, "MOST_CONNECTIONS", 20)
    monkeypatch.setattr(superlink, "HANDSHAKE_SECONDS", PATIENCE)
    make(tmp_path / "certificates", ["127.0.0.1"], ["north"])
    folder = tmp_path / "certificates" / "server"
    listening = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(
        uvicorn.Config(
            behind_the_door,
            http=superlink.BoundedProtocol,
            loop=superlink.BoundedLoop,
            lifespan="off",
            ssl_certfile=str(folder / "server.crt"),
            ssl_keyfile=str(folder / "server.key"),
        )
    )
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    yield listening.getsockname(), folder / "ca.crt"
    running.should_exit = True
    thread.join(PATIENCE)


def asked(address, authority):
    context = ssl.create_default_context(cafile=authority)
    return httpx.post(f"https://{address[0]}:{address[1]}/x", timeout=PATIENCE, verify=context).text


def test_no_more_than_so_many_connections_wait_for_their_handshake(secure_server):
    address, authority = secure_server
    silent = [socket.create_connection(address) for _ in range(20)]
    with socket.create_connection(address) as one_more:
        assert is_closed(one_more), "the limit holds before the handshake, too"
    elsewhere = socket.create_connection(address, source_address=("127.0.0.2", 0))
    elsewhere.settimeout(0.2)
    with pytest.raises(TimeoutError):  # another address has room of its own
        elsewhere.recv(1)
    elsewhere.close()
    for connection in silent:
        connection.close()
    patience = time.monotonic() + PATIENCE
    while True:  # the server has to notice first that they are gone
        with contextlib.suppress(httpx.TransportError):
            assert asked(address, authority) == "inside"
            break
        assert time.monotonic() < patience


def test_a_handshake_that_never_ends_is_cut_off(secure_server, monkeypatch):
    address, authority = secure_server
    monkeypatch.setattr(superlink, "HANDSHAKE_SECONDS", 0.3)
    with socket.create_connection(address) as silent:
        assert is_closed(silent)
    monkeypatch.setattr(superlink, "HANDSHAKE_SECONDS", PATIENCE)
    assert asked(address, authority) == "inside"


def test_asyncio_still_accepts_connections_where_the_limit_is_put():
    """A newer Python may move things; then the limit must be looked at again."""
    accept = asyncio.selector_events.BaseSelectorEventLoop._accept_connection2
    assert list(inspect.signature(accept).parameters)[1:6] == [
        "protocol_factory",
        "conn",
        "extra",
        "sslcontext",
        "server",
    ]


@pytest.mark.parametrize(
    ("connections", "address", "full"),
    [
        ({"10.0.0.9": 127}, "10.0.0.9", False),
        ({"10.0.0.9": 128}, "10.0.0.9", True),
        ({f"10.0.0.{i}": 128 for i in range(4)}, "10.0.0.9", True),
        ({f"10.0.0.{i}": 128 for i in range(4)}, "127.0.0.1", False),
        ({"127.0.0.1": 512}, "127.0.0.1", True),
    ],
)
def test_room_for_one_more_connection(connections, address, full):
    assert superlink.is_full(Counter(connections), address) == full


# --- TLS ---


def test_older_versions_of_tls_are_refused(tmp_path, monkeypatch):
    make(tmp_path / "certificates", ["localhost"], ["north"])
    folder, served = tmp_path / "certificates" / "server", []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server: served.append(server.config.ssl))
    superlink.serve_within_limits(
        behind_the_door, ssl_certfile=str(folder / "server.crt"), ssl_keyfile=str(folder / "server.key")
    )

    def version(newest):
        client_side = ssl.create_default_context(cafile=folder / "ca.crt")
        client_side.maximum_version = newest
        pipes = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_side.wrap_bio(*pipes, server_hostname="localhost")
        server = served[0].wrap_bio(*reversed(pipes), server_side=True)
        for side in (client, server) * 4:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        return client.version()

    assert version(ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    with pytest.raises(ssl.SSLError, match=r"(?i)version|protocol"):
        version(ssl.TLSVersion.TLSv1_2)
