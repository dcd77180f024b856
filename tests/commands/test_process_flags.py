import re
import subprocess

import pytest

from fova.commands.processes import place_of, without_flags
from fova.errors import FovaError
from fova.machine.cluster import Place
from tiny import make_transitions, save_npz


def test_the_three_ways_to_name_processes():
    assert place_of("2", None) == 2
    assert place_of("auto", None) is None
    assert place_of("3/4", "node-1:5800") == Place(3, 4, "node-1:5800")


@pytest.mark.parametrize(
    ("processes", "coordinator", "words"),
    [
        ("1", None, "must be a number of processes for this machine"),
        ("many", None, "must be a number of processes for this machine"),
        ("100000", None, "'100000', but must be a number of processes for this machine (2 to 8)"),
        ("9" * 5000, None, "must be a number of processes for this machine"),
        ("-2", None, "must be a number of processes for this machine"),
        ("0/" + "9" * 5000, "node-1:5800", "--coordinator goes with --processes I/N"),
        ("0/0", "node-1:5800", "--coordinator goes with --processes I/N"),
        ("0/4", "node-1:0", "--coordinator HOST:PORT"),
        ("0/4", "node-1:99999", "--coordinator HOST:PORT"),
        ("0/4", "node-1:" + "9" * 5000, "--coordinator HOST:PORT"),
        ("4/4", "node-1:5800", "processes count from 0: the last one is 3/4"),
        ("0/4", None, "--coordinator HOST:PORT"),
        ("0/4", "node-1", "--coordinator HOST:PORT"),
        ("2", "node-1:5800", "--coordinator goes with --processes I/N"),
        ("auto", "node-1:5800", "--coordinator goes with --processes I/N"),
    ],
)
def test_what_names_no_process_is_refused(processes, coordinator, words):
    with pytest.raises(FovaError, match=re.escape(words)):
        place_of(processes, coordinator)


def test_the_other_processes_are_started_with_the_same_settings():
    given = ["--processes", "2", "--rounds", "3", "--coordinator=a:1", "--name", "x"]
    assert without_flags(given) == ["--rounds", "3", "--name", "x"]


def test_a_coordinator_without_processes_is_refused(fova_command, tmp_path):
    save_npz(tmp_path / "ward.npz", make_transitions(0))
    code, _, errors = fova_command("train", "--clients", "ward.npz", "--coordinator", "node-1:5800")
    assert code == 2
    assert "--coordinator goes with --processes I/N" in errors


def test_more_processes_than_clients_are_refused_before_any_is_started(fova_command, tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    save_npz(tmp_path / "ward.npz", make_transitions(0))
    code, _, errors = fova_command("train", "--clients", "ward.npz", "--processes", "2")
    assert code == 2
    assert "There are 2 processes for 1 client. Start at most 1." in errors
    assert not (tmp_path / "runs").exists()
