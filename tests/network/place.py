"""A folder in which tests start `fova` commands as processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from patience import PATIENCE


class Place:
    """Starts `fova` commands in a folder, and can kill them with everything they started."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}

    def start(self, name, *arguments):
        out = (self.folder / f"{name}.out").open("ab")
        self.running[name] = subprocess.Popen(
            [sys.executable, "-m", "fova", *map(str, arguments)],
            cwd=self.folder,
            stdout=out,
            stderr=out,
        )

    def said(self, name):
        return (self.folder / f"{name}.out").read_text()

    def kill(self, name):
        process = self.running.pop(name)
        for pid in [*descendants(process.pid), process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()

    def stop(self, name):
        process = self.running.pop(name)
        process.send_signal(signal.SIGINT)
        return process.wait(PATIENCE)

    def wait(self, what, condition):
        patience = time.monotonic() + PATIENCE
        while not condition():
            server = self.running.get("server")
            if server is not None and server.poll() is not None and not condition():
                raise AssertionError(
                    f"no {what}; the server ended with {server.returncode}: {self.said('server')[-3000:]}"
                )
            if time.monotonic() > patience:
                raise AssertionError(f"no {what}; the server said: {self.said('server')[-3000:]}")
            time.sleep(1)


def descendants(pid):
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == pid:
            child = int(status.parent.name)
            found += [*descendants(child), child]
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
