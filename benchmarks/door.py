"""Strangers at the door of a server that trains: results/door.json, a table in docs/deploy.md.

    python benchmarks/door.py                   one real federation over loopback, about ten minutes
    python benchmarks/door.py --results FILE    the figures to another file; docs/deploy.md stays as it is

A server and two clients train over TLS. Strangers without a key connect from another address of the same machine:
1,003 connections that say nothing, 1,003 that stop in the middle of a request, bodies of 400 MB, twenty bodies at
once. Each attack lasts until two more rounds are trained. The file holds the memory of the server's processes and
what became of the strangers. All traffic stays on loopback, and every attack is bounded in number and time.
"""

import argparse
import asyncio
import json
import resource
import signal
import ssl
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from network_rounds import HERE, TINY, _Started
from step_speed import made_up

from fova.data.npz import save_npz
from fova.machine.cluster import free_port
from fova.network.certificates import make

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "deploy.md", ROOT / "results" / "door.json"
CLIENTS = ("north", "south")
CONNECTIONS, OPENINGS = 1003, 2  # strangers, and how often each comes: again after it was cut off
BODY, PIECE = 400 * 2**20, 2**16
ROUNDS_OF_AN_ATTACK, MOST_ROUNDS = 2, 100_000
PATIENCE = 1500.0  # seconds for two rounds, on a busy machine
STRANGER, MEMBER = "127.0.0.2", "127.0.0.1"  # the clients connect from the second one
# Flower reads the body of such a request before it asks who sends it.
PATH, HEADERS = "/v1/fleet/pull-messages", "Host: x\r\nContent-Type: application/protobuf\r\n"


@dataclass
class Stranger:
    """Connections without a key, and what became of them."""

    port: int
    address: str
    ends: Counter[str] = field(default_factory=Counter)
    bytes_sent: int = 0

    @cached_property
    def context(self) -> ssl.SSLContext:
        """TLS that believes every server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    async def connect(self, tls: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = self.context if tls else None
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, local_addr=(self.address, 0))

    async def until_cut_off(self, first: bytes, tls: bool) -> None:
        """Send a few bytes and wait for the end, a few times."""
        for _ in range(OPENINGS):
            writer = None
            try:
                reader, writer = await self.connect(tls)
                writer.write(first)
                await reader.read()
                self.ends["cut off"] += 1
            except (OSError, ssl.SSLError):
                self.ends["cut off"] += 1
            finally:
                if writer is not None:
                    writer.transport.abort()

    async def send_body(self, header: str, chunked: bool, size: int = BODY, hold: float = 0.0) -> None:
        """Send a large body and note how much of it was taken, and the answer."""
        reader, writer = await self.connect()
        answer = asyncio.create_task(reader.readline())
        piece = bytes(PIECE)
        try:
            writer.write(f"POST {PATH} HTTP/1.1\r\n{HEADERS}{header}\r\n\r\n".encode())
            for _ in range(size // PIECE):
                if answer.done():
                    break
                writer.write(b"%x\r\n%b\r\n" % (PIECE, piece) if chunked else piece)
                await writer.drain()
                self.bytes_sent += PIECE
            if hold and not answer.done():
                await asyncio.wait([answer], timeout=hold)
            words = (await answer).decode().split() if answer.done() else ["", "no answer"]
            self.ends[f"answered {words[1]}" if len(words) > 1 else "cut off"] += 1
        except (OSError, ssl.SSLError):
            self.ends["cut off"] += 1
        finally:
            answer.cancel()
            writer.transport.abort()


async def silent(stranger: Stranger) -> None:
    """Connections that never begin a handshake."""
    await asyncio.gather(*(stranger.until_cut_off(b"", tls=False) for _ in range(CONNECTIONS)))


async def half_sent(stranger: Stranger) -> None:
    """Connections that stop in the middle of a request."""
    first = f"POST {PATH} HTTP/1.1\r\n{HEADERS}".encode()
    await asyncio.gather(*(stranger.until_cut_off(first, tls=True) for _ in range(CONNECTIONS)))


async def declared(stranger: Stranger) -> None:
    await stranger.send_body(f"Content-Length: {BODY}", chunked=False)


async def undeclared(stranger: Stranger) -> None:
    await stranger.send_body("Transfer-Encoding: chunked", chunked=True)


async def together(stranger: Stranger) -> None:
    """Twenty bodies just below the limit of one, which never end: 600 MB of the 512 MiB for all."""
    size = 30 * 2**20
    sends = [stranger.send_body("Transfer-Encoding: chunked", True, size, hold=20.0) for _ in range(20)]
    await asyncio.gather(*sends)


Attack = Callable[[Stranger], Awaitable[None]]
ATTACKS: dict[str, tuple[Attack, str]] = {
    "1,003 connections that say nothing": (silent, STRANGER),
    "1,003 half-sent requests": (half_sent, STRANGER),
    "1,003 half-sent requests from the clients' own address": (half_sent, MEMBER),
    "a body of 400 MB, declared": (declared, STRANGER),
    "a body of 400 MB, in chunks": (undeclared, STRANGER),
    "twenty bodies of 30 MB at once, none of them ends": (together, STRANGER),
}


# --- The server's processes ---


def family(pid: int) -> dict[int, int]:
    """A process and its descendants, each with its resident bytes."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return {}
    found = {pid: resident}
    for child in children:
        found |= family(int(child))
    return found


class Memory:
    """The resident memory of a server's processes, looked at ten times a second in a thread."""

    def __init__(self, server: int) -> None:
        self.server, self.most, self._stop = server, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def now(self) -> int:
        return sum(family(self.server).values())

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self.most = max(self.most, self.now())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def megabytes(size: int) -> int:
    return round(size / 1e6)


# --- The trial ---


def rounds_of(run: Path) -> int:
    file = run / "metrics.jsonl"
    return max(file.read_text().count("\n") - 1, 0) if file.exists() else 0


def wait_for_round(started: _Started, run: Path, number: int) -> None:
    patience = time.monotonic() + PATIENCE
    while rounds_of(run) < number:
        started.insist_on_server()
        if time.monotonic() > patience:
            said = (started.home / "said").read_text()[-3000:]
            raise TimeoutError(f"round {number} was not trained within {PATIENCE:.0f} s:\n{said}")
        time.sleep(0.2)


def federation(started: _Started, home: Path) -> tuple[Path, int]:
    """The run's directory and the port of a server and its clients, which are starting."""
    make(home / "certificates", ["127.0.0.1"], CLIENTS)
    port = free_port()
    started.start(
        *("server", "--host", "127.0.0.1", "--port", port, "--name", "run", "--plain", "--deadline", 900),
        *("--rounds", MOST_ROUNDS, "--observation", 17, "--action", 6, "--min-clients", len(CLIENTS), *TINY),
    )
    for number, name in enumerate(CLIENTS):
        path = home / f"{name}.npz"
        save_npz(made_up(2000, number), path, action_low=[-1.0] * 6, action_high=[1.0] * 6)
        started.start(
            *("client", "--server", f"127.0.0.1:{port}", "--data", path),
            *("--certificates", f"certificates/{name}"),
        )
    return home / "runs" / "run", port


def attack(started: _Started, run: Path, port: int, name: str) -> dict[str, Any]:
    """One attack while two rounds are trained."""
    what, address = ATTACKS[name]
    stranger, before, began = Stranger(port, address), rounds_of(run), time.monotonic()
    memory = Memory(started.processes[0].pid)
    at_first = memory.now()
    thread = threading.Thread(target=lambda: asyncio.run(what(stranger)), daemon=True)  # type: ignore[arg-type]
    thread.start()
    wait_for_round(started, run, before + ROUNDS_OF_AN_ATTACK)
    trained = rounds_of(run) - before
    thread.join(PATIENCE)
    seconds = time.monotonic() - began
    wait_for_round(started, run, before + trained + 1)  # and one more after it
    memory.stop()
    figures = {
        "rounds_meanwhile": trained,
        "seconds": round(seconds),
        "strangers": dict(stranger.ends),
        "megabytes_sent": megabytes(stranger.bytes_sent),
        "megabytes_before": megabytes(at_first),
        "megabytes_most": megabytes(memory.most),
        "megabytes_after": megabytes(memory.now()),
    }
    print(name, figures, flush=True)
    return figures


def trial() -> dict[str, Any]:
    """All attacks on one federation."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * CONNECTIONS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * CONNECTIONS, hard), hard))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        started = _Started(home, HERE)
        try:
            run, port = federation(started, home)
            wait_for_round(started, run, 2)
            found = {name: attack(started, run, port, name) for name in ATTACKS}
            server = started.processes[0]
            server.send_signal(signal.SIGINT)  # it ends after the round that is being trained
            code = server.wait(PATIENCE)
            entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][1:]
        finally:
            started.stop()
    return {
        "clients": len(CLIENTS),
        "rounds": len(entries),
        "rounds_with_all_clients": sum(len(entry["clients"]) == len(CLIENTS) for entry in entries),
        "exit_code_after_ctrl_c": code,
        "attacks": found,
    }


def with_table(page: str, found: dict[str, Any]) -> str:
    """The page with the table between its markers."""
    lines = [
        "| strangers | what became of them | the server's processes, MB before / most / after |",
        "|---|---|---|",
    ]
    for name, figures in found["attacks"].items():
        ends = ", ".join(f"{number:,} {end}" for end, number in figures["strangers"].items())
        sent = f"; {figures['megabytes_sent']} MB were taken" if figures["megabytes_sent"] else ""
        memory = " / ".join(f"{figures[f'megabytes_{when}']:,}" for when in ("before", "most", "after"))
        lines.append(f"| {name} | {ends}{sent} | {memory} |")
    start, end = "<!-- table: door -->", "<!-- end of table: door -->"
    return f"{page.split(start)[0]}{start}\n" + "\n".join(lines) + f"\n{end}{page.split(end)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    found = trial()
    options.results.write_text(json.dumps(found, indent=2) + "\n")
    if options.results == RESULTS:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
