"""One run in a process of its own, as the runner or a task on a cluster starts it.

The process has one thread, so that as many runs as there are cores share the machine, and a run that crashes takes
no other with it. Its events arrive in a queue.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from fova.machine.claims import Claim
from fova.machine.rounding import same_rounding
from fova.progress import Event, Failed, Finished, from_json

LOGS = "logs"  # folder of the processes' standard error, in the directory of the runs
CLAIMS = "claims"  # folder of the claims there
TAKEN_OVER = 75  # exit code of a process whose claim has another holder

Events = queue.Queue[tuple[str, Event | None]]  # by run; None when its process has ended


def one_thread() -> dict[str, str]:
    """The environment of a process that uses one thread and rounds as on any other processor."""
    return {
        **os.environ,
        **same_rounding(),
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip(),
        "NPROC": "1",  # the size of XLA's pool of threads
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


class TrainingProcess:
    """A process that trains one run, for which this process holds the claim. Its end arrives as None."""

    def __init__(self, name: str, configuration: str, directory: Path, claim: Claim, events: Events) -> None:
        """`configuration` is the run's configuration as TOML."""
        self._claim, self._path = claim, directory / name
        self.log = directory / LOGS / f"{name}.log"
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fova.experiments.worker", str(self._path), str(claim.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                env=one_thread(),
                start_new_session=True,  # Ctrl-C reaches the runner alone, which passes it on once
            )
        self._hand_over(configuration)
        self.last: Finished | Failed = Finished()  # the last event about the end of the run
        threading.Thread(target=self._listen, args=(name, self.process.stdout, events), daemon=True).start()

    def _hand_over(self, configuration: str) -> None:
        """The first line that the process reads. Its standard input stays open for as long as we live."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already; its code says why
            self.process.stdin.write(json.dumps(configuration) + "\n")
            self.process.stdin.flush()

    @staticmethod
    def _listen(name: str, lines: IO[str], events: Events) -> None:
        try:
            for line in lines:
                with suppress(ValueError):  # libraries may write to standard output, too
                    events.put((name, from_json(json.loads(line))))
        finally:
            events.put((name, None))

    def ended(self) -> Finished | Failed | None:
        """How the run ended, when the process has. None if another machine has taken the run over."""
        code = self.process.wait()
        if code == TAKEN_OVER:
            self._claim.release()
            return None
        if code == 0:
            self.log.unlink(missing_ok=True)
            self._claim.remove()
            return self.last
        self._claim.release()
        return Failed(self._reason())

    def kill(self) -> None:
        """End the process at once; the run goes on from its last checkpoint."""
        self.process.kill()
        self.process.wait()
        self._claim.release()

    def _reason(self) -> str:
        """Why the run failed: the process's message, or the last line of its log."""
        if isinstance(self.last, Failed):
            return self.last.text
        lines = self.log.read_text(errors="replace").strip().splitlines()
        ended = f"ended with code {self.process.returncode}"
        return f"{lines[-1] if lines else ended} (more in {self.log})"
