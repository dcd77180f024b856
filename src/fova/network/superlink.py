"""Flower's SuperLink with restricted access: other machines can reach only the interface for clients.

A SuperLink serves all its interfaces on one port. The control interface can start runs, and a run is code. The
runtime interface is for processes of this machine. Therefore both accept requests only from this machine and from
the addresses in FOVA_CONTROL_HOSTS. Run as `python -m fova.network.superlink`, with the arguments of
`flower-superlink`.
"""

import ipaddress
import os
from typing import Any

from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

FOR_CLIENTS = "/v1/fleet/"
CONTROL_HOSTS = "FOVA_CONTROL_HOSTS"  # addresses, separated by spaces


class ControlFence:
    """ASGI middleware that lets other machines use only the interface for clients."""

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
    start_parent_process_monitor(os.getppid())  # without `fova server`, a SuperLink would keep the port in use
    flower_superlink()


if __name__ == "__main__":
    main()
