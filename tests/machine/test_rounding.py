import platform
import sys

import pytest

from fova.machine import rounding
from fova.machine.rounding import same_rounding


def test_matrix_products_use_the_code_that_every_x86_processor_with_avx2_has(monkeypatch):
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    monkeypatch.setattr(rounding, "_processor_flags", lambda: {"sse2", "avx2", "fma", "avx512f"})
    assert same_rounding() == {"OPENBLAS_CORETYPE": "Haswell"}
    monkeypatch.setattr(rounding, "_processor_flags", lambda: {"sse2", "avx2"})
    assert same_rounding() == {}


def test_the_choice_of_a_user_stays(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "SkylakeX")
    assert same_rounding() == {}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the instruction sets")
def test_the_instruction_sets_of_the_processor_are_read():
    assert rounding._processor_flags() or platform.machine() not in ("x86_64", "AMD64")
