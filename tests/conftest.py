"""All tests share one compilation cache, so that each little program is compiled once per machine."""

import gc
import os
import signal
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fova.commands import main as cli
from fova.machine import runtime
from fova.machine.rounding import same_rounding

os.environ.update(same_rounding())  # as in the commands, before NumPy is imported
os.environ["NPROC"] = "2"  # two devices, whatever the machine: clients are dealt out among them
# Little programs are run a few times each: most of the time would go into making them quick. XLA ends at a flag
# that it does not know, and releases after 0.10 may not have the second one.
QUICK_TO_COMPILE = ["--xla_backend_optimization_level=0"]
if [int(part) for part in version("jaxlib").split(".")[:2]] <= [0, 10]:
    QUICK_TO_COMPILE.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *QUICK_TO_COMPILE]).strip()
runtime.prepare()
# No test may depend on how busy the machine is, or on chance. `make test-all` looks for new examples.
ANY_MACHINE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same examples", derandomize=True, **ANY_MACHINE)
settings.register_profile("new examples", **ANY_MACHINE)
settings.load_profile("same examples")
# Where tests are started in the background, Ctrl-C comes ignored; the tests of Ctrl-C press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

MOST_MAPS = 25_000  # Linux allows a process 65,530 memory maps, and XLA crashes beyond


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs():
    """Forget compiled programs after a file of tests, once they hold many memory maps."""
    yield
    import jax

    maps = Path("/proc/self/maps")
    if maps.is_file() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def fova_command(monkeypatch, tmp_path, capsys):
    """Run a command in an empty folder; gives its exit code, what it printed and what went to errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["fova", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def pytest_terminal_summary(terminalreporter):
    """Say in one visible line what was not checked for want of a browser, and the remedy."""
    reports = terminalreporter.stats.get("skipped", [])
    unseen = [report for report in reports if "in_browser" in report.nodeid]
    if unseen:
        terminalreporter.write_line(
            f"{len(unseen)} browser tests did NOT run. `bash .ci/run` installs what they need: Chromium, axe-core "
            "(by hand: apt-get install chromium, npm install axe-core, FOVA_AXE=PATH/axe.min.js make test)",
            red=True,
            bold=True,
        )
