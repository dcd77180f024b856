"""The HTTP service, and clients that mean it no good. Nobody gets a traceback, and the service goes on."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from deploy.made_policies import make_policy, observations
from fova.deploy.answers import Answers
from fova.deploy.service import Limits, Service, serve
from fova.errors import FovaError
from fova.machine import listener
from patience import PATIENCE

ROW = observations(1)[0].tolist()
ACT = json.dumps({"observation": ROW}).encode()


@contextlib.contextmanager
def running(answers=None, **limits):
    service = Service(answers or Answers(make_policy()), "127.0.0.1", 0, Limits(**{"seconds": PATIENCE} | limits))
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        service.shutdown()
        thread.join()
        service.stop()


@pytest.fixture(scope="module")
def service():
    with running() as service:
        yield service


@pytest.fixture
def ask(service):
    connection = http.client.HTTPConnection(*service.server_address, timeout=PATIENCE)
    yield lambda *request, **options: answer(connection, *request, **options)
    connection.close()


def answer(connection, method, path, body=None, headers=None):
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    content = response.read()
    assert response.headers["Content-Type"] == "application/json"
    assert b"Traceback" not in content
    return response.status, json.loads(content) if content else None, response.headers


def raw(service, sent, finish=False):
    """What the service answers to bytes that need not be HTTP; everything until it closes the connection.

    It may answer and close before it has read everything, and on a busy machine before everything is sent.
    """
    answered = b""
    with socket.create_connection(service.server_address, timeout=PATIENCE) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(sent)
            if finish:
                connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while received := connection.recv(65536):
                answered += received
    return answered


def status_of(answered):
    return int(answered.split()[1])


def post(body, *headers):
    lines = ["POST /act HTTP/1.1", "Host: here", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


# --- What it does ---


def test_one_and_many_observations_on_one_connection(ask):
    rows = observations(3)
    expected = make_policy()(rows)
    for _ in range(2):
        status, content, _ = ask("POST", "/act", json.dumps({"observation": rows[0].tolist()}))
        assert status == 200
        np.testing.assert_allclose(content["action"], expected[0], rtol=1e-5)
        status, content, _ = ask("POST", "/act", json.dumps({"observations": rows.tolist()}))
        np.testing.assert_allclose([each["action"] for each in content["answers"]], expected, rtol=1e-5)


def test_health_and_schema(ask):
    status, content, _ = ask("GET", "/health")
    assert (status, content["status"], content["policy"]) == (200, "ok", {"task": "somewhere", "rounds": 4})
    status, content, _ = ask("GET", "/schema?pretty=1")
    assert (status, content) == (200, Answers(make_policy()).schema())
    assert ask("HEAD", "/health")[:2] == (200, None)


def test_requests_at_the_same_time_have_their_own_answers(service):
    rows = observations(40)
    expected = make_policy()(rows)

    def action(row):
        connection = http.client.HTTPConnection(*service.server_address, timeout=PATIENCE)
        with contextlib.closing(connection):
            return answer(connection, "POST", "/act", json.dumps({"observation": row.tolist()}))[1]["action"]

    with ThreadPoolExecutor(8) as pool:
        np.testing.assert_allclose(list(pool.map(action, rows)), expected, rtol=1e-5)


# --- What it refuses ---


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/act", b"", 400, "not JSON"),
        ("POST", "/act", b'{"observation": [1, NaN, 3]}', 400, "holds NaN"),
        ("POST", "/act", b"[" * 100_000, 400, "nested too deep"),
        ("POST", "/act", b'{"observation": [1, 2]}', 422, "a list of 3 numbers"),
        ("POST", "/act", b'{"observation": [1, null, 3]}', 422, "is missing"),
        ("POST", "/act", b'{"observation": [1, 1e999, 3]}', 422, "finite numbers"),
        ("GET", "/act", None, 405, "/act takes POST only"),
        ("DELETE", "/act", None, 405, "/act takes POST only"),
        ("POST", "/health", ACT, 405, "/health takes GET, HEAD only"),
        ("GET", "/", None, 404, "Known: /act, /health, /schema"),
        ("POST", "/../../etc/passwd", ACT, 404, "no such path"),
        ("BREW", "/act", None, 501, "Unsupported method"),
    ],
)
def test_wrong_requests_have_a_clear_error(service, ask, method, path, body, status, words):
    given, content, headers = ask(method, path, body)
    assert (given, list(content)) == (status, ["error"])
    assert words in content["error"]
    assert ("Allow" in headers) == (status == 405)
    assert ask("POST", "/act", ACT)[0] == 200  # on the same connection, or on a new one where it was closed


LENGTH = f"Content-Length: {len(ACT)}"


@pytest.mark.parametrize(
    "headers",
    [
        (f"Content-Length : {len(ACT)}",),
        (f"Content-Length\t: {len(ACT)}",),
        (LENGTH, "Transfer-Encoding : chunked"),
        (LENGTH, "no colon"),
        (LENGTH, "no colon", "Transfer-Encoding: chunked"),
        ("Content-Length:", f" {len(ACT)}"),
        (LENGTH, "Folded: a", " b"),
        (LENGTH, ": no name"),
        (LENGTH, "X(): a"),
        (LENGTH, "X: a\0b"),
        (LENGTH, "Host: another"),
        (LENGTH, LENGTH),
        (LENGTH, "Content-Length: 3"),
    ],
)
def test_headers_that_a_proxy_may_read_otherwise_are_refused(service, headers):
    """RFC 9112 wants status 400 for these. Otherwise a request could hide inside another."""
    answered = raw(service, post(ACT, *headers), finish=True)
    assert status_of(answered) == 400
    assert answered.count(b"HTTP/1.1 ") == 1
    assert status_of(raw(service, post(ACT, LENGTH, "Connection: close"))) == 200


@pytest.mark.parametrize(
    "line",
    [
        "POST\t/act\tHTTP/1.1",
        "POST  /act HTTP/1.1",
        " POST /act HTTP/1.1",
        "POST /act HTTP/01.1",
        "POST /act http/1.1",
        "POST /act HTTP/1.1x",
        "POST /act HTTP/2.0",
        "POST /act",
        "GET /health",
        "\x16\x03\x01",
        "POST /\xff HTTP/1.1",
    ],
)
def test_a_malformed_request_line_is_refused_with_a_status(service, line):
    sent = post(ACT, LENGTH).replace(b"POST /act HTTP/1.1", line.encode("latin-1"))
    assert status_of(raw(service, sent, finish=True)) in (400, 505)


def test_a_request_without_a_host_is_refused(service):
    sent = post(ACT, LENGTH, "Connection: close").replace(b"Host: here\r\n", b"")
    assert status_of(raw(service, sent)) == 400
    assert status_of(raw(service, sent.replace(b"HTTP/1.1", b"HTTP/1.0"))) == 200  # it had none yet


def test_all_headers_together_have_a_limit(service):
    """Each line is within the standard library's limit, and so is their number."""
    headers = [f"X-{number}: {'a' * 2000}" for number in range(90)]
    assert status_of(raw(service, post(ACT, LENGTH, *headers), finish=True)) == 431
    assert status_of(raw(service, post(ACT, LENGTH, *headers[:20], "Connection: close"))) == 200


def test_a_body_that_is_too_large_is_refused_before_it_is_read():
    with running(bytes=100) as service:
        connection = http.client.HTTPConnection(*service.server_address, timeout=PATIENCE)
        status, content, _ = answer(connection, "POST", "/act", b" " * 50_000)
        assert (status, "100 bytes at most" in content["error"]) == (413, True)
        assert answer(connection, "POST", "/act", ACT)[0] == 200
        assert answer(connection, "POST", "/act", ACT.ljust(100))[0] == 200
        assert answer(connection, "POST", "/act", ACT.ljust(101))[0] == 413
        connection.close()
        # A client that asks first, as curl does with large bodies, sends nothing.
        asked = raw(service, post(b"", "Content-Length: 101", "Expect: 100-continue"), finish=True)
        assert status_of(asked) == 413
        announced = raw(service, post(b"", "Content-Length: 99999999999999999999999"), finish=True)
        assert status_of(announced) == 413


def test_a_client_that_asks_first_is_invited(service):
    length = f"Content-Length: {len(ACT)}"
    answered = raw(service, post(ACT, length, "Expect: 100-continue", "Connection: close"))
    assert answered.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (post(ACT), 411),
        (post(b"0\r\n\r\n", "Transfer-Encoding: chunked"), 411),
        (post(ACT, f"Content-Length: {len(ACT)}", "Transfer-Encoding: chunked"), 411),
        (post(ACT, "Content-Length: many"), 400),
        (post(ACT, "Content-Length: -5"), 400),
        (post(ACT, "Content-Length: 5", f"Content-Length: {len(ACT)}"), 400),
        (post(ACT[:10], f"Content-Length: {len(ACT)}"), 400),
        (post(ACT, *(f"X-{i}: 1" for i in range(200))), 431),
        (post(ACT, f"X: {'a' * 70_000}"), 431),
        (b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /health HTTP/9.9\r\n\r\n", 505),
    ],
)
def test_malformed_http_is_refused_and_the_connection_closed(service, ask, sent, status):
    answered = raw(service, sent, finish=True)
    # A request line that is not HTTP/1 has an answer without a status line.
    head, _, body = answered.rpartition(b"\r\n\r\n")
    assert list(json.loads(body)) == ["error"]
    assert not head or status_of(head) == status
    assert ask("POST", "/act", ACT)[0] == 200


def test_a_body_where_none_belongs_is_not_taken_for_a_request(service):
    smuggled = b"GET /schema HTTP/1.1\r\n\r\n"
    sent = f"GET /health HTTP/1.1\r\nContent-Length: {len(smuggled)}\r\n\r\n".encode() + smuggled
    assert raw(service, sent).count(b"HTTP/1.1 ") == 1


def test_connections_that_are_dropped_leave_no_trace(service, ask, capfd):
    for sent in (b"", b"POST /act HTT", post(ACT[:5], "Content-Length: 100")):
        with socket.create_connection(service.server_address) as connection:
            connection.sendall(sent)
            # Closing with unsent data pending resets the connection.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    assert ask("POST", "/act", ACT)[0] == 200
    assert capfd.readouterr().err == ""


def test_slow_clients_are_cut_off():
    with running(seconds=0.2, idle_seconds=PATIENCE) as service:
        body = post(ACT[:10], f"Content-Length: {len(ACT)}")
        answered = raw(service, body)
        assert status_of(answered) == 408
        assert b"did not arrive in time" in answered
        assert raw(service, b"POST /act HTTP/1.1\r\nHost: he") == b""  # the head is not complete
    with running(idle_seconds=0.2) as service:
        assert raw(service, b"") == b""  # not even a request


def test_bytes_that_drip_do_not_extend_the_time(monkeypatch):
    """Each byte comes well within the limit; all of them do not."""
    monkeypatch.setattr(listener, "DRAIN_SECONDS", PATIENCE)  # the answer is there until it is read
    with running(seconds=0.5) as service, socket.create_connection(service.server_address) as connection:
        connection.sendall(post(b"", "Content-Length: 100000"))
        connection.settimeout(0.05)
        dripped, answered = 0, b""
        while not answered and dripped < 100_000:
            connection.sendall(b" ")
            dripped += 1
            with contextlib.suppress(TimeoutError):
                answered = connection.recv(65536)
        assert status_of(answered) == 408


def test_connections_beyond_the_limit_are_told_to_come_back():
    with running(connections=1) as service:
        first = http.client.HTTPConnection(*service.server_address, timeout=PATIENCE)
        assert answer(first, "POST", "/act", ACT)[0] == 200
        refused = raw(service, b"")
        assert (status_of(refused), b"Too many connections" in refused) == (503, True)
        assert answer(first, "POST", "/act", ACT)[0] == 200
        first.close()
        while status_of(raw(service, post(ACT, f"Content-Length: {len(ACT)}", "Connection: close"))) == 503:
            pass  # until the thread of the first connection has ended


class Broken(Answers):
    def act(self, body):
        raise ZeroDivisionError("secret of the house")


def test_a_mistake_of_ours_is_logged_here_and_not_told_there(capfd):
    with running(Broken(make_policy())) as service:
        connection = http.client.HTTPConnection(*service.server_address, timeout=PATIENCE)
        status, content, _ = answer(connection, "POST", "/act", ACT)
        assert (status, content) == (500, {"error": "The service failed. Its log says why."})
        assert answer(connection, "GET", "/health")[0] == 200
        connection.close()
    assert "secret of the house" in capfd.readouterr().err


# --- Starting and stopping ---


class Waiting(Answers):
    """Answers once `go` is set."""

    def __init__(self, policy):
        super().__init__(policy)
        object.__setattr__(self, "asked", threading.Event())
        object.__setattr__(self, "go", threading.Event())

    def act(self, body):
        self.asked.set()
        assert self.go.wait(PATIENCE)
        return super().act(body)


def test_a_request_that_is_being_answered_is_finished_when_the_service_stops():
    answers = Waiting(make_policy())
    with running(answers, stop_seconds=PATIENCE) as service, ThreadPoolExecutor(2) as pool:
        sent = post(ACT, f"Content-Length: {len(ACT)}", "Connection: close")
        answered = pool.submit(raw, service, sent)
        assert answers.asked.wait(PATIENCE)
        service.shutdown()
        stopped = pool.submit(service.stop)
        assert not stopped.done()
        answers.go.set()
        stopped.result()
        assert status_of(answered.result()) == 200


def test_a_port_that_is_taken_is_an_error_for_the_user(service):
    with pytest.raises(FovaError, match=f"cannot listen on 127.0.0.1 port {service.server_port}"):
        serve(make_policy(), port=service.server_port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_it_is_told_to_stop(tmp_path, number):
    make_policy().save(tmp_path / "policy.safetensors")
    program = [sys.executable, "-m", "fova", "serve", str(tmp_path), "--port", "0"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    ) as served:
        line = served.stdout.readline()
        address = line.split("http://")[1].split()[0]
        connection = http.client.HTTPConnection(address, timeout=PATIENCE)
        assert answer(connection, "POST", "/act", ACT)[0] == 200
        served.send_signal(number)  # the connection is still open
        out, err = served.communicate(timeout=PATIENCE)
        connection.close()
    assert (served.returncode, err) == (0, "")
    assert out.endswith("stopped\n")


def test_options_that_make_no_sense_are_refused(tmp_path, fova_command):
    make_policy().save(tmp_path / "policy.safetensors")
    for option, words in (
        (("--port", "99999"), "port is 99999, but must be at least 0 and at most 65,535"),
        (("--max-bytes", "0"), "max_bytes is 0, but must be at least 1"),
        (("--warn-beyond", "nan"), "warn_beyond is nan"),
        (("--host", "no.such.host.invalid"), "cannot listen on no.such.host.invalid"),
    ):
        code, _, err = fova_command("serve", str(tmp_path), *option)
        assert (code, words in err) == (2, True), err
