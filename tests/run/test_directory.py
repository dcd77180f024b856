"""The files of a run: what is taken, what is complete, and what a run that continues finds and keeps."""

import json
import runpy
import sys

import pytest

from fova.errors import FovaError
from fova.run import directory
from fova.run.directory import STOPPED_EARLY, RunDirectory, free_name, named


class Settings:
    """In place of a configuration."""

    def to_toml(self, path):
        return f"# of {path.name}\n"


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "wards")
    run.create(Settings())
    return run


# --- Names ---


def test_a_run_is_kept_under_runs():
    assert str(named("wards")) == "runs/wards"
    assert str(named("study/wards")) == "runs/study/wards"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "--name is empty"),
        (" . ", "--name is empty"),
        ("a\nb", "without control characters"),
        ("a\udcffb", "without control characters"),
        ("/tmp/wards", "names a directory under runs/"),
        ("../wards", "names a directory under runs/"),
        ("a/../../wards", "names a directory under runs/"),
    ],
)
def test_names_that_no_run_can_have_are_refused(name, words):
    with pytest.raises(FovaError, match=words):
        named(name)


def test_the_first_free_number_is_taken(tmp_path):
    assert free_name("hopper", tmp_path) == tmp_path / "hopper-1"
    for number in (1, 2, 4):
        (tmp_path / f"hopper-{number}").mkdir()
    assert free_name("hopper", tmp_path) == tmp_path / "hopper-3"


# --- New and old runs ---


def test_a_new_run_has_its_configuration_and_is_never_overwritten(run):
    assert (run.path / "config.toml").read_text() == "# of wards\n"
    with pytest.raises(FovaError, match=r"wards already exists. Continue that run with: fova train --resume"):
        run.create(Settings())


def test_an_empty_folder_or_what_a_crash_left_is_not_taken(tmp_path):
    folder = tmp_path / "wards"
    RunDirectory(folder).insist_on_new()
    folder.mkdir()
    RunDirectory(folder).insist_on_new()
    (folder / ".config.toml.x1.part").write_text("")
    RunDirectory(folder).insist_on_new()
    (folder / "notes.txt").write_text("")
    with pytest.raises(FovaError, match="already exists"):
        RunDirectory(folder).insist_on_new()
    with pytest.raises(FovaError, match="already exists"):
        RunDirectory(folder / "notes.txt").insist_on_new()


def test_only_a_folder_with_a_configuration_is_a_run(run, tmp_path):
    assert RunDirectory.open(run.path).path == run.path
    with pytest.raises(FovaError, match=r"is not a run directory: it has no config\.toml"):
        RunDirectory.open(tmp_path)


def test_the_parts_of_a_run_have_their_places(run):
    parts = (run.checkpoints, run.policy, run.client_policies)
    assert [part.relative_to(run.path).as_posix() for part in parts] == [
        "checkpoints",
        "policy.safetensors",
        "clients",
    ]


def test_one_process_trains_a_run_at_a_time(run):
    with run.lock(), pytest.raises(FovaError, match="Another process is training"), run.lock():
        pass
    with run.lock():
        pass
    run.break_lock()
    assert not (run.path / ".lock").exists()
    run.break_lock()


# --- Complete or not ---


def test_a_run_is_complete_with_its_result_and_can_go_on_if_it_stopped_early(run):
    assert (run.is_complete(), run.stopped_early()) == (False, False)
    run.write_json(STOPPED_EARLY, {"round": 3})
    assert (run.is_complete(), run.stopped_early()) == (False, False)
    run.write_json("result.json", {"score": 1.5})
    assert (run.is_complete(), run.stopped_early()) == (True, True)
    run.go_on()
    assert (run.is_complete(), run.stopped_early()) == (False, False)
    assert not (run.path / STOPPED_EARLY).exists()


def test_a_run_that_took_all_of_its_rounds_keeps_its_result(run):
    run.write_json("result.json", {"score": 1.5})
    run.go_on()
    assert run.is_complete()
    assert run.read_json("result.json") == {"score": 1.5}


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000])
def test_json_that_cannot_be_read_is_named(run, content):
    (run.path / "result.json").write_bytes(content)
    with pytest.raises(FovaError, match=r"result\.json cannot be read"):
        run.read_json("result.json")
    with pytest.raises(FovaError, match=r"nothing\.json cannot be read"):
        run.read_json("nothing.json")


# --- Logs ---


def log(run, *rounds, name="metrics.jsonl"):
    for number in rounds:
        run.append(name, {"round": number, "loss": number / 2})


def test_rounds_are_appended_and_read_in_order(run):
    assert run.metrics() == run.timing() == []
    log(run, 1, 2)
    log(run, 1, name="timing.jsonl")
    assert run.metrics() == [{"round": 1, "loss": 0.5}, {"round": 2, "loss": 1.0}]
    assert run.timing() == [{"round": 1, "loss": 0.5}]


def test_what_was_logged_is_put_on_the_disk(run, monkeypatch):
    flushed = []
    monkeypatch.setattr(directory.os, "fsync", lambda number: flushed.append(directory.os.fstat(number).st_ino))
    run.flush()
    assert flushed == []
    log(run, 1)
    run.flush()
    assert flushed == [(run.path / "metrics.jsonl").stat().st_ino]


def test_a_last_line_that_was_cut_short_is_ignored_and_another_is_not(run):
    log(run, 1, 2)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "lo')
    assert [line["round"] for line in run.metrics()] == [1, 2]
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write("\n")
    log(run, 4)
    with pytest.raises(FovaError, match=r"Line 3 of .*metrics\.jsonl is damaged"):
        run.metrics()


def test_what_was_logged_after_the_checkpoint_is_removed(run):
    log(run, 1, 2, 3, 4)
    log(run, 1, 3, 4, name="timing.jsonl")  # a lost line of timing is no harm
    run.rewind(3)
    assert [line["round"] for line in run.metrics()] == [1, 2, 3]
    assert [line["round"] for line in run.timing()] == [1, 3]
    assert (run.path / "metrics.jsonl").read_text().endswith('{"round": 3, "loss": 1.5}\n')
    run.rewind(0)
    assert run.metrics() == []


@pytest.mark.parametrize(("rounds", "lacks"), [([1, 3], 2), ([2, 3], 1), ([1, 2], 3), ([], 1)])
def test_a_log_that_lacks_a_finished_round_is_refused(run, rounds, lacks):
    log(run, *rounds)
    with pytest.raises(FovaError, match=rf"lacks round {lacks}, though the run has finished 3\."):
        run.rewind(3)


@pytest.mark.parametrize("rounds", [[1, 3, 2], [1, 2, 2, 3]])
def test_a_log_out_of_order_is_refused(run, rounds):
    log(run, *rounds)
    with pytest.raises(FovaError, match="has rounds out of order"):
        run.rewind(3)


@pytest.mark.parametrize("line", [{"loss": 1.0}, {"round": "1"}, {"round": True}, {"round": 1.0}, [1], 1])
def test_a_line_without_the_number_of_a_round_is_refused(run, line):
    (run.path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(FovaError, match="has a line without the number of a round"):
        run.rewind(1)


def test_a_log_that_is_no_text_is_refused(run):
    (run.path / "metrics.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(FovaError, match=r"metrics\.jsonl cannot be read"):
        run.metrics()


def test_the_module_needs_no_configuration_to_be_imported(monkeypatch):
    """A configuration imports algorithms and JAX. A command that only lists runs must not wait for them."""
    monkeypatch.setitem(sys.modules, "fova.run.config", None)
    runpy.run_path(directory.__file__)
