"""How NumPy rounds. Nothing is imported beyond the standard library, because it counts before NumPy is imported."""

import os
import re
from pathlib import Path


def same_rounding() -> dict[str, str]:
    """Environment variables with which NumPy's matrix products round alike on all x86 processors.

    They count if they are set before NumPy is imported. OpenBLAS picks its code for the processor, and each code
    rounds differently. Simulated episodes amplify the last digit, so that the same seed would make other data on
    another kind of processor. The code for Haswell runs on every processor with AVX2 and FMA. The choice of a user
    who has set OPENBLAS_CORETYPE stays.
    """
    if "OPENBLAS_CORETYPE" in os.environ or not {"avx2", "fma"} <= _processor_flags():
        return {}
    return {"OPENBLAS_CORETYPE": "Haswell"}


def _processor_flags() -> set[str]:
    """The instruction sets of the processor, where Linux lists them for x86; else none."""
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return set()
    found = re.search(r"^flags\s*:(.*)$", information.read_text(), re.MULTILINE)
    return set(found.group(1).split()) if found else set()
