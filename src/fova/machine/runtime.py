"""How JAX is set up for fova, in one place: call `prepare` before the first computation. Also: memory."""

import os
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path


def cache_directory() -> Path:
    """Where compiled programs and made data are kept: $FOVA_CACHE, or fova in the user's cache folder."""
    if "FOVA_CACHE" in os.environ:
        return Path(os.environ["FOVA_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fova"


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
    """The most memory this process has held so far, Python and JAX included, in MB (10^6 bytes)."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux: getrusage would also count what the parent held when it started this process
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return int(found.group(1)) * 1024 / 1e6
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held / 1e6 if sys.platform == "darwin" else held * 1024 / 1e6
