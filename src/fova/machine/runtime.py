"""The setup of JAX (call `prepare` before the first computation), the cache directory, processors and memory."""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path


def cache_directory() -> Path:
    """The folder of compiled programs and generated data.

    It is $FOVA_CACHE, $XDG_CACHE_HOME/fova or the system's cache folder.
    """
    if os.environ.get("FOVA_CACHE"):
        return Path(os.environ["FOVA_CACHE"])
    if os.environ.get("XDG_CACHE_HOME"):  # on every system
        return Path(os.environ["XDG_CACHE_HOME"]) / "fova"
    return user_cache_path("fova", appauthor=False)


def processors() -> int:
    """Number of processors this process may use: $NPROC, which XLA obeys too, or its CPU affinity."""
    if os.environ.get("NPROC", "").isdecimal():
        return max(1, int(os.environ["NPROC"]))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare() -> None:
    """Set up JAX: one device per processor, which share the clients, and a cache of compiled programs."""
    import jax

    with suppress(RuntimeError):  # JAX keeps its devices once it has computed something
        jax.config.update("jax_num_cpu_devices", processors())
    # Asynchronous dispatch on CPUs can wait for ever for an array (jax-ml/jax issue 25861), and gains nothing here.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.config.update("jax_compilation_cache_dir", str(cache_directory() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def peak_memory_mb() -> float:
    """The peak memory of this process so far, Python and JAX included, in MB (10^6 bytes).

    0 on Windows, which does not report it.
    """
    status = Path("/proc/self/status")
    if status.exists():  # Linux: getrusage would also count the parent's memory at the start of this process
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return int(found.group(1)) * 1024 / 1e6
    if sys.platform == "win32":
        return 0.0
    import resource

    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held / 1e6 if sys.platform == "darwin" else held * 1024 / 1e6
