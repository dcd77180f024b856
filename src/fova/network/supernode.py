"""Flower's SuperNode, restricted to fova: it refuses to run any other application.

Flower lets a server send an application, which is code, to its clients. A fova client already has its application
installed. It accepts only a bundle that names that application and holds no code. Run as
`python -m fova.network.supernode`, with the arguments of `flower-supernode`.
"""

import io
import os
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable
from logging import ERROR
from typing import Any

from flwr.cli.build import build_fab_from_files

from fova.errors import FovaError
from fova.network.pace import Pace
from fova.version import __version__

COMPONENTS = {"serverapp": "fova.network.server:app", "clientapp": "fova.network.client:app"}
SECONDS_TO_END = 5.0
# How often a SuperNode asks its server for a message, and looks for the answer of its worker.
SHORTEST_PAUSE, LONGEST_PAUSE, PAUSE_FOR_WORKER = 0.2, 3.0, 0.05
FILES = {"pyproject.toml", ".info/CONTENT"}


def app_description() -> str:
    """The pyproject.toml of fova as a Flower app. It also works with `flwr run`."""
    return f"""# fova as a Flower app. It holds no code: server and clients have fova {__version__} installed.
[project]
name = "fova-federation"
version = "{__version__}"
description = "Offline federated reinforcement learning"
dependencies = []

[tool.flwr.app]
publisher = "fova"

[tool.flwr.app.components]
serverapp = "{COMPONENTS["serverapp"]}"
clientapp = "{COMPONENTS["clientapp"]}"

[tool.flwr.app.config]
directory = "" # of the run, on the server; made by: fova server --prepare ...
"""


def bundle() -> bytes:
    """The application as a Flower bundle (FAB)."""
    content, _ = build_fab_from_files({"pyproject.toml": app_description().encode()})
    return content


def insist_on_fova(content: bytes) -> None:
    """Raise an error for a bundle that has additional files or other components than fova's."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = set(archive.namelist())
            described = tomllib.loads(archive.read("pyproject.toml").decode())
        components = described["tool"]["flwr"]["app"]["components"]
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise FovaError(f"The server sent an application that cannot be read: {error}") from error
    if files != FILES:
        strange = ", ".join(sorted(files - FILES)) or "nothing to read"
        raise FovaError(f"The server sent an application with files of its own ({strange}). It was not run.")
    if components != COMPONENTS:
        raise FovaError(f"The server wants to run {components}, which is not fova. It was not run.")


def guarded(get_fab: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `get_fab` so that it refuses other applications. The SuperNode keeps running after a refusal."""
    from flwr.supercore import log
    from flwr.supercore.run import RunNotRunningException

    def get(*arguments: Any, **options: Any) -> Any:
        fab = get_fab(*arguments, **options)
        try:
            insist_on_fova(fab.content)
        except FovaError as error:
            log(ERROR, str(error))
            raise RunNotRunningException from error
        return fab

    return get


def _end_soon() -> None:
    """End this process after a few seconds. Flower keeps it alive after the connection has ended, but `fova client`
    starts a new SuperNode only when the old one has ended."""
    timer = threading.Timer(SECONDS_TO_END, os._exit, (1,))
    timer.daemon = True
    timer.start()


class Clock:
    """Stands in for Flower's `time`, whose pauses are fixed.

    A SuperNode waits 3 s between two questions whether there is a message, and 0.5 s between two looks whether the
    answer is there. Here both are short where something is to be expected.
    """

    def __init__(self) -> None:
        self.pace = Pace(SHORTEST_PAUSE, LONGEST_PAUSE)

    def sleep(self, seconds: float) -> None:
        if seconds < LONGEST_PAUSE:  # it waits for its own worker
            self.pace.restart()
            time.sleep(PAUSE_FOR_WORKER)
        else:
            time.sleep(self.pace.next())


def main() -> None:
    from contextlib import contextmanager

    from flwr.supernode import start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    from fova.network.processes import end_with_parent

    connect = start_client_internal._init_connection

    @contextmanager
    def guarded_connection(*arguments: Any, **options: Any) -> Any:
        try:
            with connect(*arguments, **options) as (node_id, receive, send, get_run, get_fab, *rest):
                yield (node_id, receive, send, get_run, guarded(get_fab), *rest)
        finally:
            _end_soon()

    start_client_internal._init_connection = guarded_connection
    start_client_internal.time = Clock()  # type: ignore[assignment]
    end_with_parent()
    flower_supernode()


if __name__ == "__main__":
    main()
