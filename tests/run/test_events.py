"""TensorBoard events: a sub-run for the server, for every client and for their mean, with shared tags."""

import errno
import struct
import threading

import pytest
from tensorboardX.proto.event_pb2 import Event

from fova.run import events
from fova.run.events import EventLog


def scalars(folder):
    """What the event files of a folder hold: (tag, step) -> value. Read without TensorBoard."""
    found = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content, position = path.read_bytes(), 0
        while position < len(content):
            (length,) = struct.unpack_from("<Q", content, position)
            event = Event.FromString(content[position + 12 : position + 12 + length])
            position += 12 + length + 4
            found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    return found


def write(directory, *entries, after=0):
    with EventLog(directory, after) as log:
        for entry in entries:
            log.write(entry)


def test_clients_have_sub_runs_with_the_same_tags(tmp_path):
    write(
        tmp_path,
        {"round": 0, "server": {"return": 1.5, "score": None}},
        {
            "round": 1,
            "server": {"return": 2.5, "score": 30.0, "measures": {"time in range": 0.75}},
            "clients": {"north": {"loss": 1.0, "weight": 0.25}, "south": {"loss": 2.0}},
            "client_play": {"north": {"return": 7.0}},
        },
    )
    assert scalars(tmp_path / "server") == {
        ("evaluation/return", 0): 1.5,
        ("evaluation/return", 1): 2.5,
        ("evaluation/score", 1): 30.0,
        ("evaluation/time_in_range", 1): 0.75,
    }
    assert scalars(tmp_path / "clients/north") == {
        ("training/loss", 1): 1.0,
        ("training/weight", 1): 0.25,
        ("evaluation/return", 1): 7.0,
    }
    assert scalars(tmp_path / "clients/south") == {("training/loss", 1): 2.0}
    assert scalars(tmp_path / "mean of clients") == {
        ("training/loss", 1): 1.5,
        ("training/weight", 1): 0.25,
        ("evaluation/return", 1): 7.0,
    }


def test_names_that_are_no_folders_have_one_all_the_same(tmp_path):
    names = ["a/b", "a b", "..", "ü", "a_b"]
    write(tmp_path, {"round": 1, "clients": {name: {"loss": float(i)} for i, name in enumerate(names)}})
    folders = {path.name: scalars(path)["training/loss", 1] for path in (tmp_path / "clients").iterdir()}
    assert folders == {"a_b": 0.0, "a_b-1": 1.0, "client": 2.0, "ü": 3.0, "a_b-4": 4.0}
    assert {path.name for path in tmp_path.iterdir()} == {"clients", "mean of clients"}


def test_large_federations_have_the_mean_of_all_and_some_clients(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "MOST_CLIENTS", 2)
    write(tmp_path, {"round": 1, "clients": {name: {"loss": float(i)} for i, name in enumerate("abcd")}})
    assert {path.name for path in (tmp_path / "clients").iterdir()} == {"a", "b"}
    assert scalars(tmp_path / "mean of clients") == {("training/loss", 1): 1.5}


@pytest.mark.parametrize("after", [0, 7])
def test_a_resumed_run_replaces_what_it_repeats(tmp_path, after):
    write(tmp_path, {"round": after + 1, "server": {"return": 1.0}}, after=after)
    (path,) = (tmp_path / "server").iterdir()
    assert _restarts(path) == bool(after)


def _restarts(path):
    """Whether a file begins with the mark that makes TensorBoard drop later steps of older files."""
    content, position, marks = path.read_bytes(), 0, []
    while position < len(content):
        (length,) = struct.unpack_from("<Q", content, position)
        event = Event.FromString(content[position + 12 : position + 12 + length])
        marks.append(event.session_log.status if event.HasField("session_log") else 0)
        position += 12 + length + 4
    return 1 in marks  # START


def test_two_logs_within_a_second_keep_both_files(tmp_path):
    write(tmp_path, {"round": 1, "server": {"return": 1.0}})
    write(tmp_path, {"round": 2, "server": {"return": 2.0}}, after=1)
    assert scalars(tmp_path / "server") == {("evaluation/return", 1): 1.0, ("evaluation/return", 2): 2.0}


def test_a_full_disk_is_an_error_of_the_round_and_not_of_a_thread(tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")

    def refuse(*_):
        raise full

    before = threading.active_count()

    def two_rounds():
        with EventLog(tmp_path, 0) as log:
            log.write({"round": 1, "server": {"return": 1.0}})
            for method in ("write_event", "flush", "close"):
                monkeypatch.setattr(events.EventsWriter, method, refuse)
            log.write({"round": 2, "server": {"return": 2.0}})

    with pytest.raises(OSError, match="No space") as told:
        two_rounds()
    assert told.value is full
    assert threading.active_count() == before
