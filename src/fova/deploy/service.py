"""A policy behind HTTP, with the standard library only: POST /act, GET /health, GET /schema.

Clients may be hostile. A request is bounded in bytes and in time, connections are bounded in number, errors are
short JSON, and no request ends the service. There is no encryption and no authentication: the service listens on
this machine unless it is told otherwise, and a proxy in front of it provides both.
"""

import json
import traceback
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from fova.deploy.answers import WARN_BEYOND, Answers, NotJSON
from fova.errors import FovaError
from fova.machine.listener import Connection, Limits, Listener
from fova.policy import Policy, load_policy
from fova.settings import Within, argument

METHODS = {"/act": ("POST",), "/health": ("GET", "HEAD"), "/schema": ("GET", "HEAD")}
JSON = "application/json"


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
    warn_beyond = argument("warn_beyond", warn_beyond, Annotated[float, Within(0)])
    limits = argument("limits", limits, Limits | None) or Limits()
    started = argument("started", started, Callable)
    Service(Answers(loaded, warn_beyond), host, port, limits).run(started)


class Service(Listener):
    """The listener that answers with a policy's actions."""

    busy = (JSON, json.dumps({"error": "Too many connections. Try again later."}).encode())

    def __init__(self, answers: Answers, host: str, port: int, limits: Limits) -> None:
        self.answers = answers
        super().__init__(host, port, limits, Handler, "Choose others with --host and --port.")


class _Refused(Exception):
    """A request that is refused before its body is read to the end."""

    def __init__(self, status: HTTPStatus, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class Handler(Connection):
    """One connection: reads one request at a time and answers it with JSON."""

    server: Service

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
                self.drain()
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
                self.write(HTTPStatus.OK, JSON, body)

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

    def _error(self, status: HTTPStatus, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        self.write(status, JSON, _json({"error": message}), headers)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses: malformed request lines and headers, unknown methods."""
        status = HTTPStatus(code)
        self.close_connection = True
        self._error(status, f"{status.phrase}: {explain or message or status.description}")


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False).encode()
