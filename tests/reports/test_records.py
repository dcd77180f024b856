import pytest

from fova.errors import FovaError
from fova.reports.records import comparable, read_groups
from made_runs import make_run


def test_runs_that_differ_only_in_the_seed_are_one_group(tmp_path):
    make_run(tmp_path / "b", seed=1)
    make_run(tmp_path / "a", seed=2)
    make_run(tmp_path / "c", seed=0, algorithm="fedora")
    groups = read_groups([tmp_path])
    assert [(group.label, group.seeds) for group in groups] == [("fova", [1, 2]), ("fedora", [0])]


def test_labels_say_what_sets_settings_apart(tmp_path):
    make_run(tmp_path / "a", extra="lam = 1.0\n")
    make_run(tmp_path / "b", extra="lam = 2.0\n")
    make_run(tmp_path / "c", extra="lam = 2.0\n", clients='[{ data = "expert", size = 50 }]')
    assert [group.label for group in read_groups([tmp_path])] == [
        "fova, clients expert-1 + random-1, size 100, lam 1.0",
        "fova, clients expert-1 + random-1, size 100, lam 2.0",
        "fova, clients expert-1, size 50, lam 2.0",
    ]


def test_only_settings_with_the_same_data_are_compared(tmp_path):
    medium = '[{ data = "expert", size = 100 }, { data = "medium", size = 100 }]'
    runs = [
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", algorithm="fedora"),
        make_run(tmp_path / "c", clients=medium),
        make_run(tmp_path / "d", task="maze2d-medium"),
        make_run(tmp_path / "e", task=None),
    ]
    found = {name: [group.algorithm for group in alike] for name, alike in comparable(read_groups(runs)).items()}
    assert found == {
        "maze2d-umaze, expert-1 + random-1": ["fova", "fedora"],
        "maze2d-umaze, expert-1 + medium-1": ["fova"],
        "maze2d-medium": ["fova"],
        "own data": ["fova"],
    }


def test_the_same_run_named_twice_counts_once(tmp_path):
    run = make_run(tmp_path / "a")
    assert [len(group.records) for group in read_groups([run, tmp_path])] == [1]


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(FovaError, match=r"no config\.toml"):
        read_groups([tmp_path / "nowhere"])
    with pytest.raises(FovaError, match="No run was named"):
        read_groups([])
