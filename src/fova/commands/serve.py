"""`fova serve`: a policy behind a small HTTP service."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fova.commands.flags import parse
from fova.commands.terminal import Terminal
from fova.settings import CONNECTIONS, PORTS, SECONDS, Within

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ServeOptions:
    """Answer HTTP requests with the actions of a policy, until Ctrl-C.

    POST /act takes {"observation": [...]} or {"observations": [[...], ...]}. GET /schema describes both, and
    GET /health says whether the service is up. There is no encryption and no authentication.
    """

    run: Path
    """The run's directory, for instance runs/wards, or a policy's .safetensors file."""
    host: str = "127.0.0.1"
    """Address to listen on. The default can be reached from this machine only."""
    port: Annotated[int, PORTS] = 8000
    """Port to listen on; 0 chooses a free one."""
    warn_beyond: Annotated[float, Within(0)] = 5.0
    """Warn about a number that is further than this many standard deviations from the mean of the training data; 0
    never warns."""
    max_bytes: Annotated[int, Within(1)] = 1_000_000
    """Largest body of a request."""
    max_seconds: Annotated[float, SECONDS] = 10.0
    """Longest time that a client may take to send a request."""
    max_connections: Annotated[int, CONNECTIONS] = 64
    """Largest number of connections at once; further ones are told to try again later."""


def command(arguments: list[str]) -> None:
    options = parse(ServeOptions, "fova serve", arguments, positional=True)
    # Many small products at once: one thread for each request is quicker than all threads for each product.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from fova.deploy.service import Limits, serve

    terminal = Terminal()

    def started(address: str) -> None:
        terminal.write_line(f"serving {options.run} on {address} (Ctrl-C stops)")
        if options.host not in LOOPBACK:
            terminal.write_line(
                "note: anyone who can reach this address can ask for actions, and nothing is encrypted. Put a "
                "proxy with TLS and authentication in front of it."
            )
        terminal.write_line(f"try     curl {address}/schema")

    limits = Limits(options.max_bytes, options.max_seconds, connections=options.max_connections)
    serve(options.run, options.host, options.port, options.warn_beyond, limits, started)
    terminal.write_line("stopped")
