"""Flower's SuperLink with a fence: other machines reach the interface for clients and nothing else.

A SuperLink serves everything on one port. Whoever reaches its control interface can start runs, and a run is code;
the runtime interface is for processes of this machine. So both answer only to this machine, or to the addresses in
FOVA_CONTROL_HOSTS. Run as `python -m fova.network.superlink`, with the arguments of `flower-superlink`.
"""

import ipaddress
import os
from typing import Any

from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

FOR_CLIENTS = "/v1/fleet/"
CONTROL_HOSTS = "FOVA_CONTROL_HOSTS"  # addresses, separated by spaces


class ControlFence:
    """ASGI middleware: refuses everything but the clients' interface to callers from elsewhere."""

    def __init__(self, app: Any, trusted: frozenset[str] = frozenset()) -> None:
        self.app, self.trusted = app, trusted

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket") and not self._may(scope):
            refusal = PlainTextResponse("Only the machine that runs the server may use this.\n", status_code=403)
            await refusal(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _may(self, scope: dict[str, Any]) -> bool:
        if scope["type"] == "http" and scope["path"].startswith(FOR_CLIENTS):
            return True
        host = scope["client"][0] if scope.get("client") else ""
        return host in self.trusted or is_loopback(host)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def main() -> None:
    from flwr.supercore.app_utils import start_parent_process_monitor
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink

    trusted = frozenset(os.environ.get(CONTROL_HOSTS, "").split())
    extensions.get_middleware = lambda: (Middleware(ControlFence, trusted=trusted),)
    start_parent_process_monitor(os.getppid())  # a SuperLink without its `fova server` would keep the port
    flower_superlink()


if __name__ == "__main__":
    main()
