"""Tests that need a browser are skipped without one; the end of a run says so in one line with the remedy."""

from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture
def end_of_run(request):
    """The lines that our hook writes at the end of a run with these skipped tests."""
    ours = str(Path(__file__).parents[1] / "conftest.py")
    plugins = request.config.pluginmanager.get_plugins()
    (conftest,) = [plugin for plugin in plugins if getattr(plugin, "__file__", None) == ours]

    def run(*skipped):
        lines = []
        reports = [SimpleNamespace(nodeid=name) for name in skipped]
        conftest.pytest_terminal_summary(
            SimpleNamespace(stats={"skipped": reports}, write_line=lambda line, **markup: lines.append(line))
        )
        return lines

    return run


def test_skipped_browser_tests_are_told_in_one_line(end_of_run):
    (line,) = end_of_run(
        "tests/reports/test_page_in_browser.py::test_a", "tests/reports/test_live_in_browser.py::test_b"
    )
    assert line.startswith("2 browser tests did NOT run. `bash .ci/run` installs what they need")


def test_other_skipped_tests_are_not(end_of_run):
    assert end_of_run() == end_of_run("tests/run/test_tracking.py::test_c") == []
