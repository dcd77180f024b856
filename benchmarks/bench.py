"""Every speed figure in one command: `make bench`. Writes results/bench.json and what is made from it.

That is the tables of two pages, and the speeds and times with which `fova paper` and `--dry-run` estimate.

    python benchmarks/bench.py [--torch PYTHON] [--turns N] [--only SECTION ...]

`--torch` names an interpreter that has PyTorch, which is compared with and otherwise not needed; without it the
section `rivals` keeps its figures. `torch.compile` needs a C++ compiler. Close other programs: everything is
measured in turns, so ratios survive a busy machine, but seconds do not.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deployed
import growth
import large_rounds
import network_rounds
import performance_page
import playing_and_loading
import processes
import server_work
import startup
import step_speed
from turns import machine

from fova.machine import runtime
from fova.paper import cost

RESULTS = Path(__file__).parent.parent / "results" / "bench.json"
TASKS = ("halfcheetah", "maze2d-umaze")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--turns", type=int, default=5, help="how often each thing is timed")
    parser.add_argument("--only", nargs="+", metavar="SECTION", help="some sections; the others keep their figures")
    options = parser.parse_args()
    runtime.prepare()
    turns = options.turns
    paper, small = step_speed.PAPER, step_speed.SMALL
    # The most important ones come first: a run that is stopped keeps what it has measured.
    sections: dict[str, Callable[[], Any]] = {
        "start_up": startup.start_up,
        "network_rounds": network_rounds.network_rounds,
        "shares": lambda: {s.name: step_speed.shares_of_rate(s, turns) for s in (small, paper)},
        "algorithms": lambda: {s.name: step_speed.each_algorithm(s, turns) for s in (small, paper)},
        "step": lambda: {s.name: step_speed.fova_against_the_machine(s, turns) for s in (paper, small)},
        "rivals": lambda: {s.name: step_speed.against_pytorch(s, turns, options.torch) for s in (paper, small)},
        "processes": processes.in_processes,
        "growth": growth.growth,
        "large_rounds": large_rounds.large_rounds,
        "server_work": lambda: server_work.server_work(turns),
        "playing": lambda: {task: playing_and_loading.playing(task, turns) for task in TASKS},
        "loading": lambda: playing_and_loading.loading(turns),
        "deployed": lambda: deployed.deployed(turns),
    }
    if options.torch is None:
        del sections["rivals"]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed = [name for name in options.only or sections if not _measure(name, sections[name], results)]
    print(f"Figures: {RESULTS}\nPages: {', '.join(performance_page.PAGES)}\nEstimates: {cost.SPEEDS.parent}")
    if failed:
        sys.exit(f"Not measured: {', '.join(failed)}. The reasons are above; these sections keep their figures.")


def _measure(name: str, section: Callable[[], Any], results: dict[str, Any]) -> bool:
    """Measure one section and renew what is made from the figures. A section that fails costs no other one."""
    print(f"{name} ...", flush=True)
    began = time.perf_counter()
    measured_on = machine()  # before the section: its load is not ours
    try:
        figures = section()
    except (Exception, SystemExit):  # noqa: BLE001  the others go on; at the end its name is in the message
        traceback.print_exc()
        return False
    seconds = round(time.perf_counter() - began)
    results[name] = {"machine": measured_on, "seconds": seconds, "figures": figures}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    performance_page.fill_all(results)  # at once: whoever stops here has pages that agree with the figures
    print(f"{name}: {seconds} s", flush=True)
    return True


if __name__ == "__main__":
    main()
