"""A real browser for tests: headless Chromium, spoken to over a pair of pipes in its DevTools protocol.

No driver and no further package is needed. A machine without Chromium skips what asks for it.
"""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patience import PATIENCE

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
# Checks accessibility. `.ci/run` puts it into a cache folder; FOVA_AXE says where, if not there.
AXE = Path(os.environ.get("FOVA_AXE", "~/.cache/fova/axe-core/node_modules/axe-core/axe.min.js")).expanduser()


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Tab:
    """One page of the browser. What it complains about and what it asks the network for is kept."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._buffer, self._number = read, write, b"", 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._loaded = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, page: Path) -> None:
        """Load a file and wait until it is there."""
        self.visit(page.resolve().as_uri())

    def visit(self, address: str) -> None:
        """Load a page and wait until it is there."""
        loaded = self._loaded
        self.call("Page.navigate", url=address)
        while self._loaded == loaded:
            self._take(self._next_message())

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key and let it go."""
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol and its answer; events that come in between are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next_message()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._take(answer)

    def _take(self, event: dict[str, Any]) -> None:
        method, values = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded += 1
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(values["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning"):
            self.errors.append(str(values["args"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.errors.append(values["entry"]["text"])

    def _next_message(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._read, 1 << 20) if ready else b""
            if not piece:
                raise RuntimeError("the browser went away or did not answer")
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)


def violations(tab: Tab, rules: str = "{}") -> list[str]:
    """What axe finds on the page; that it checked the contrast is certain."""
    tab.evaluate(AXE.read_text() + ";0")
    found, passes = tab.evaluate(
        f"axe.run({rules}).then(found => [found.violations.map(v => v.id + ': ' + v.nodes[0].html.slice(0, 200)),"
        "  found.passes.map(v => v.id)])"
    )
    assert "color-contrast" in passes
    return list(found)


@contextmanager
def browser(chromium: str, profile: Path) -> Iterator[Tab]:
    """Start the browser with an empty profile, and end it afterwards."""
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()
    os.set_inheritable(to_browser, True)
    os.set_inheritable(to_us, True)
    # The protocol is spoken on descriptors 3 and 4.
    redirect = f'exec "$@" 3<&{to_browser} 4>&{to_us}'
    process = subprocess.Popen(
        ["bash", "-c", redirect, "bash", chromium, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(to_browser, to_us),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(to_us)
    try:
        yield Tab(from_browser, from_us)
    finally:
        os.close(from_us)  # the browser ends when nobody speaks to it any more
        os.close(from_browser)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
