"""A live view: the pages of `fova watch`, renewed while training goes on, served to this machine only.

Nothing is written, and a page is computed only when somebody asks for it and the run has changed. A page about one
run is its report; a folder of runs has a table of them with their progress.
"""

import hashlib
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from fova.data.fields import counted
from fova.errors import FovaError
from fova.machine.listener import Connection, Limits, Listener
from fova.reports.cells import Cell, estimate_cell, filled_table, number_cell
from fova.reports.groups import read_groups, runs_below
from fova.reports.page import page
from fova.reports.rendering import Live, policy, render
from fova.reports.states import fingerprint, state
from fova.run.records import Record, read_record
from fova.version import __version__

HOST = "127.0.0.1"
SECONDS = 5  # between two questions of a page for news
LEAST_SECONDS = 2.0  # between two computations of one page
MOST_RUNS = 500  # in the table
MOST_PAGES = 20  # kept in memory
TOGETHER = "/all"
HTML, PLAIN = "text/html; charset=utf-8", "text/plain; charset=utf-8"
COLUMNS = (
    "run", "progress", "state", "return", "best during training", "judge's estimate", "algorithm", "task", "seed",
)  # fmt: skip

Write = Callable[[list[Path], str], str]  # from runs and a version to the page


def watch(path: Path, port: int, started: Callable[[str], None]) -> None:
    """Serve the live view of a run or of a folder of runs until Ctrl-C. `started` is called with the address."""
    if not path.is_dir():
        raise FovaError(f"{path} is not a folder. Name the directory of a run, or a folder of runs such as runs.")
    Watcher(Pages(path), port).run(started)


class Pages:
    """The pages by address, each computed anew when its runs have changed."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()  # one page is computed at a time
        self._pages: OrderedDict[str, tuple[float, object, str, str]] = OrderedDict()
        self._records: dict[Path, tuple[object, Record | FovaError]] = {}

    def get(self, address: str) -> tuple[str, str] | None:
        """The version of a page and the page itself; None where there is none."""
        with self._lock:
            found = self._find(address)
            return self._kept(address, *found) if found else None

    def _find(self, address: str) -> tuple[list[Path], Write] | None:
        """The runs of the page at an address, and how it is written."""
        if (self._path / "config.toml").is_file():
            return ([self._path], self._run_page) if address == "/" else None
        runs = runs_below(self._path, MOST_RUNS)
        if address == "/":
            return runs, self._table_page
        if address == TOGETHER:
            return (runs, self._together) if runs else None
        named = [run for run in runs if address == self._address(run)]
        return (named, self._run_page) if named else None

    def _kept(self, address: str, runs: list[Path], write: Write) -> tuple[str, str]:
        """The page of these runs, as it was if nothing has changed or it is very young."""
        now = self._clock()
        seen = [(run, fingerprint(run), self._words(run, now)) for run in runs]
        written, of, version, text = self._pages.get(address, (-LEAST_SECONDS, None, "", ""))
        if of != seen and now - written >= LEAST_SECONDS:
            version = hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
            text = write(runs, version)
            self._pages[address] = (now, seen, version, text)
        self._pages.move_to_end(address)
        while len(self._pages) > MOST_PAGES:
            self._pages.popitem(last=False)
        return version, text

    # --- Runs ---

    def _name(self, run: Path) -> str:
        return run.relative_to(self._path).as_posix()

    def _address(self, run: Path) -> str:
        return f"/run/{quote(self._name(run))}"

    def _record(self, run: Path) -> Record | FovaError:
        """The run's files, read again only if they have changed."""
        seen = fingerprint(run)
        if run not in self._records or self._records[run][0] != seen:
            try:
                self._records[run] = seen, read_record(run)
            except FovaError as error:
                self._records[run] = seen, error
        return self._records[run][1]

    def _words(self, run: Path, now: float) -> str:
        record = self._record(run)
        return str(record) if isinstance(record, FovaError) else state(record, now).words

    # --- Pages ---

    def _run_page(self, runs: list[Path], version: str) -> str:
        record = self._record(runs[0])
        back = "" if runs[0] == self._path else "/"
        if isinstance(record, FovaError):
            return self._listing([], str(record), Live(version, SECONDS, back=back))
        now = state(record, self._clock())
        words = f"{now.rounds_done} of {counted(now.rounds, 'round')}, {now.words}"
        return self._report(runs, Live(version, SECONDS, now.share, words, back))

    def _together(self, runs: list[Path], version: str) -> str:
        readable = [run for run in runs if isinstance(self._record(run), Record)]
        return self._report(readable, Live(version, SECONDS, back="/"))

    def _report(self, runs: list[Path], live: Live) -> str:
        try:
            return page(read_groups(runs), {}, live)
        except FovaError as error:  # a file changed between two looks
            return self._listing([], str(error), live)

    def _table_page(self, runs: list[Path], version: str) -> str:
        note = f"At most {MOST_RUNS} runs are shown." if len(runs) == MOST_RUNS else ""
        return self._listing([self._row(run) for run in runs], note, Live(version, SECONDS))

    def _listing(self, rows: list[list[Cell]], note: str, live: Live) -> str:
        table = filled_table("Every run; its name leads to its report", COLUMNS, rows)
        done = sum(row[2].text == "finished" for row in rows)
        subtitle = f"{counted(len(rows), 'run')}, {done} finished · fova {__version__}"
        return render(
            "runs.html.jinja",
            live,
            title=self._path.resolve().name,
            subtitle=subtitle,
            table=table,
            together=TOGETHER if len(rows) > 1 else "",
            note=note,
        )

    def _row(self, run: Path) -> list[Cell]:
        name, record = self._name(run), self._record(run)
        first = Cell(name, name, link=self._address(run))
        if isinstance(record, FovaError):
            words = Cell("cannot be read", "cannot be read")
            return [first, Cell("", None), words, *(Cell("", None) for _ in COLUMNS[3:])]
        now = state(record, self._clock())
        played = [each.server.mean_return for each in record.evaluations]
        return [
            first,
            Cell(f"{now.rounds_done} of {now.rounds}", now.share, share=now.share),
            Cell(now.words, now.words),
            number_cell(played[-1] if played else None),
            number_cell(max(played, default=None)),
            estimate_cell(record.verdict) if record.verdict else Cell("", None),
            Cell(record.algorithm, record.algorithm),
            Cell(record.config.task or "", record.config.task),
            Cell(str(record.seed), record.seed),
        ]


# --- HTTP ---


class Watcher(Listener):
    """The listener that serves the pages."""

    def __init__(self, pages: Pages, port: int, limits: Limits | None = None) -> None:
        self.pages = pages
        remedy = "Choose another port with --port; 0 takes any free one."
        super().__init__(HOST, port, limits or Limits(bytes=0), View, remedy)

    def names(self) -> tuple[str, ...]:
        """The hosts that a browser on this machine may ask for.

        Another name means that a foreign page led the browser here; it gets no answer.
        """
        return tuple(f"{name}:{self.server_port}" for name in (HOST, "localhost"))


class View(Connection):
    """One connection: answers GET and HEAD with a page."""

    server: Watcher

    def do_GET(self) -> None:
        with self.server.answering():
            # A body is not read here, so what follows it could not be told from a request.
            self.close_connection |= "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
            if self.headers.get("Host", "") not in self.server.names():
                self._plain(HTTPStatus.FORBIDDEN, f"Ask for {self.server.address}/ instead.")
                return
            self._answer()

    do_HEAD = do_GET

    def _answer(self) -> None:
        try:
            found = self.server.pages.get(self.path.partition("?")[0])
        except Exception:  # noqa: BLE001 (a mistake of ours must not end the connection without a word)
            traceback.print_exc()
            self._plain(HTTPStatus.INTERNAL_SERVER_ERROR, "The page failed. The terminal of fova watch says why.")
            return
        if found is None:
            self._plain(HTTPStatus.NOT_FOUND, f"There is no such page. Start at {self.server.address}/.")
            return
        version, text = found
        known = self.headers.get("If-None-Match") == f'"{version}"'
        status = HTTPStatus.NOT_MODIFIED if known else HTTPStatus.OK
        self.write(status, HTML, text.encode(), self._safety(version))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses: malformed request lines and headers, other methods."""
        self.close_connection = True
        self._plain(HTTPStatus(code), f"{HTTPStatus(code).phrase}: {explain or message or ''}")

    def _plain(self, status: HTTPStatus, words: str) -> None:
        self.write(
            status, "text/plain; charset=utf-8", f"{words}\n".encode(), {"X-Content-Type-Options": "nosniff"}
        )

    def _safety(self, version: str) -> dict[str, str]:
        return {
            "ETag": f'"{version}"',
            "Cache-Control": "no-store",
            "Content-Security-Policy": f"{policy(True)}; frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
