"""What a user writes about clients, before any data is made or read."""

import pytest

from fova.errors import FovaError
from fova.federation.client_specs import (
    ClientSpec,
    complete,
    insist_on_sources,
    is_file,
    located,
    parts_of,
    sources_of,
)
from fova.tasks import registry
from tiny import make_transitions, save_npz


def names(*given):
    return [
        spec.name
        for spec in complete([spec if isinstance(spec, ClientSpec) else ClientSpec(spec) for spec in given])
    ]


def test_clients_are_numbered_by_source():
    assert names("expert", "random", "expert") == ["expert-1", "random-1", "expert-2"]
    assert names("2-expert-1-random", "expert") == ["expert-1", "expert-2", "random-1", "expert-3"]


def test_a_file_with_a_number_keeps_its_name_if_nobody_else_has_it():
    assert names("ward-3.npz", "ward.npz") == ["ward-3", "ward-1"]
    assert names("ward-1.npz", "ward.npz") == ["ward-1-1", "ward-1"]


def test_two_clients_of_one_name_are_refused():
    with pytest.raises(FovaError, match="Two clients are called 'east'"):
        names(ClientSpec("a.npz", name="east"), ClientSpec("b.npz", name="east"))


def test_one_word_for_several_clients_has_no_name_of_one():
    with pytest.raises(FovaError, match="stands for several clients"):
        names(ClientSpec("2-expert", name="east"))


def test_a_mixture_is_parted_to_the_row():
    parts = parts_of(ClientSpec("expert:75+random:25", 401, 40, "mixed"))
    assert [(part.data, part.size, part.offset, part.name) for part in parts] == [
        ("expert", 301, 30, "mixed"),
        ("random", 100, 10, "mixed"),
    ]


def test_sources_are_named_once():
    assert sources_of([ClientSpec("expert:50+random:50"), ClientSpec("2-expert")]) == ["expert", "random"]


def test_a_missing_file_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_npz(tmp_path / "ward.npz", make_transitions(0))
    insist_on_sources(["ward.npz", "hopper/expert-v0"], None)  # the second is a Minari dataset's id
    with pytest.raises(FovaError, match=r"There is no file or folder 'wrd\.npz'"):
        insist_on_sources(["ward.npz", "wrd.npz"], None)


def test_a_quality_needs_a_task_that_has_it():
    insist_on_sources(["expert"], registry.get("maze2d-umaze"))
    with pytest.raises(FovaError, match="without --task there is nothing to make data from"):
        insist_on_sources(["expert"], None)
    with pytest.raises(FovaError, match="Did you mean 'expert'"):
        insist_on_sources(["expret"], registry.get("maze2d-umaze"))


def test_what_has_a_suffix_or_a_folder_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "expert").mkdir()
    assert [is_file(name) for name in ("a.npz", "wards/a", "expert", "random")] == [True, True, True, False]


def test_the_rows_of_a_mixture_are_rounded_once():
    assert [part.size for part in parts_of(ClientSpec("expert:30+random:70", 50))] == [15, 35]
    assert [part.size for part in parts_of(ClientSpec("expert:34+random:33+good:33", 10))] == [3, 4, 3]


def test_a_mixture_has_5000_rows_unless_told_otherwise():
    parts = parts_of(ClientSpec("expert:50+random:50"))
    assert [(part.size, part.offset) for part in parts] == [(2500, None)] * 2


def test_a_file_that_two_clients_hold_is_numbered():
    assert names("ward-3.npz", "ward-3.npz") == ["ward-3-1", "ward-3-2"]


def test_names_that_are_refused():
    assert ClientSpec("a.npz", name="x" * 300).name == "x" * 300
    for name, words in (
        ("server", "'server'"),
        ("x" * 301, "at most 300"),
        (" ", "empty name"),
        ("a\x07", "control"),
    ):
        with pytest.raises(FovaError, match=words):
            ClientSpec("a.npz", name=name)
    with pytest.raises(FovaError, match="data is an empty name"):
        ClientSpec("")


def test_a_path_is_relative_to_its_folder_and_a_quality_is_not_a_path(tmp_path):
    (tmp_path / "expert").mkdir()
    inside = tmp_path.resolve()
    assert located("ward.npz", tmp_path) == str(inside / "ward.npz"), "a file that is not there yet"
    assert located("wards/ward", tmp_path) == str(inside / "wards" / "ward")
    assert located("expert", tmp_path) == str(inside / "expert"), "a folder of this name exists"
    assert located("random", tmp_path) == "random"
    assert located("hopper/expert-v0", tmp_path) == "hopper/expert-v0", "the id of a Minari dataset"
    (tmp_path / "hopper").mkdir()
    (tmp_path / "hopper" / "expert-v0").touch()
    assert located("hopper/expert-v0", tmp_path) == str(inside / "hopper" / "expert-v0")
