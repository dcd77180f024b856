import subprocess
import sys

import pytest

from fova.errors import FovaError
from fova.machine import cluster
from fova.machine.cluster import Ended
from in_threads import in_threads


def test_everybody_hears_what_everybody_says():
    said = in_threads(3, lambda each: each.gather("greeting", f"hello from {each.index}".encode()))
    assert said == [[b"hello from 0", b"hello from 1", b"hello from 2"]] * 3


def test_a_process_that_fails_ends_the_others_with_its_words():
    def work(each):
        if each.index == 1:
            return each.end("ward-7.npz has no column reward")
        with pytest.raises(Ended, match=r"ward-7.npz has no column reward"):
            each.gather("round")
        return None

    assert in_threads(3, work) == [None, True, None]


def test_of_several_that_fail_the_first_one_says_it():
    assert in_threads(3, lambda each: each.end("the same") if each.index else each.end("")) == [True, False, False]


def test_processes_at_different_points_are_refused():
    def work(each):
        with pytest.raises(FovaError, match="Start all of them with the same command"):
            each.gather("round" if each.index else "save")

    in_threads(2, work)


def test_the_number_of_processes_is_one_unless_announced():
    assert cluster.processes() == 1
    try:
        cluster.announce(4)
        assert cluster.processes() == 4
    finally:
        cluster.announce(1)


# --- Last words ---

NOISE = """\
E1118 04:12:33.700758   12113 coordination_service_agent.cc:289] Polled an error from coordination service.
F1118 04:12:33.700793   12113 client.h:80] Terminating process because the JAX distributed service detected errors.
*** Check failure stack trace: ***
    @     0x7f4412440634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
"""


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\0words Go on.\vThus.\nhello\n", "hello\nGo on.\nThus.\n"),
        ("\0words Go on.\n" + NOISE, "Go on.\n"),
        ("\0words Go on.\nhello\n\0farewell\n", "hello\n"),
        ("\0words Go on.\n" + NOISE + "error: lost\nGo on.\n\0farewell\n", "error: lost\nGo on.\n"),
        ("\0words Go on.\n" + NOISE + "\0farewell\n", NOISE),
    ],
    ids=["killed", "aborted", "ended in order", "ended with an error", "a warning alone"],
)
def test_the_helper_has_the_last_word(written, shown):
    helper = [sys.executable, "-m", "fova.machine.last_words"]
    answer = subprocess.run(helper, input=written, stderr=subprocess.PIPE, text=True, check=True)
    assert answer.stderr == shown
