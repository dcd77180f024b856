"""How JAX is set up for fova, in one place: call `prepare` before the first computation. Also: memory."""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path


def cache_directory() -> Path:
    """Where compiled programs and made data are kept: $FOVA_CACHE, $XDG_CACHE_HOME/fova or the system's place."""
    if os.environ.get("FOVA_CACHE"):
        return Path(os.environ["FOVA_CACHE"])
    if os.environ.get("XDG_CACHE_HOME"):  # also on systems that do not know it
        return Path(os.environ["XDG_CACHE_HOME"]) / "fova"
    return user_cache_path("fova", appauthor=False)


def processors() -> int:
    """How many processors this process may keep busy: $NPROC, which XLA obeys too, or those it is bound to."""
    if os.environ.get("NPROC", "").isdecimal():
        return max(1, int(os.environ["NPROC"]))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare() -> None:
    """A device per processor, among which clients are dealt out, and a cache of compiled programs."""
    import jax

    with suppress(RuntimeError):  # where JAX has computed something already, it keeps the devices that it has
        jax.config.update("jax_num_cpu_devices", processors())
    jax.config.update("jax_compilation_cache_dir", str(cache_directory() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def peak_memory_mb() -> float:
    """The most memory this process has held so far, Python and JAX included, in MB (10^6 bytes).

    0 on Windows, which does not say.
    """
    status = Path("/proc/self/status")
    if status.exists():  # Linux: getrusage would also count what the parent held when it started this process
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return int(found.group(1)) * 1024 / 1e6
    if sys.platform == "win32":
        return 0.0
    import resource

    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held / 1e6 if sys.platform == "darwin" else held * 1024 / 1e6
