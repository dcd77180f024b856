"""Timing things against one another: in turns, several times, with the spread. And what machine it was.

With FOVA_BENCH_CLOCK=processor the processor's time is counted instead of the wall's: what is left on a machine
that is busy with other things. It is fair only where everything runs on one core (taskset -c 0).
"""

import os
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

CLOCK = os.environ.get("FOVA_BENCH_CLOCK", "wall")
now = time.process_time if CLOCK == "processor" else time.perf_counter
Timer = Callable[[], float]  # does its work once and gives back the seconds that counted


def seconds_of(work: Callable[[], object]) -> Timer:
    """A timer of a whole call."""

    def timer() -> float:
        began = now()
        work()
        return now() - began

    return timer


def take_turns(timers: Mapping[str, Timer], turns: int) -> dict[str, list[float]]:
    """Seconds of every turn, by name. One turn of each before the first that counts: caches are warm then.

    Whatever else the machine does in the meantime meets all of them alike, so their ratios say more than any
    of their seconds.
    """
    for timer in timers.values():
        timer()
    seconds: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(turns):
        for name, timer in timers.items():
            seconds[name].append(timer())
    return seconds


def spread(values: list[float], digits: int = 4) -> dict[str, float]:
    """Median, smallest and largest, to some significant digits."""
    ordered = {"median": median(values), "least": min(values), "most": max(values)}
    return {name: float(f"{value:.{digits}g}") for name, value in ordered.items()}


def ratios(above: list[float], below: list[float]) -> dict[str, float]:
    """The spread of the turn-by-turn ratio."""
    return spread([a / b for a, b in zip(above, below)])


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    cpuinfo, meminfo = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    model = platform.processor()
    if cpuinfo.exists():
        model = next(
            (line.split(":")[1].strip() for line in cpuinfo.open() if line.startswith("model name")), model
        )
    memory = int(meminfo.read_text().split()[1]) // 1024 if meminfo.exists() else None
    return {
        "processor": model,
        "clock": CLOCK,
        "cores": len(os.sched_getaffinity(0)),
        "memory_megabytes": memory,
        "load_before": [round(value, 2) for value in os.getloadavg()],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in ("fova", "jax", "jaxlib", "numpy", "gymnasium", "mujoco")},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
