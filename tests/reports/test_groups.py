import pytest

import hospitals
from fova.data.tables.columns import Columns
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.reports.groups import comparable, read_groups
from made_runs import CLIENTS, make_run, start_run


def test_runs_that_differ_only_in_the_seed_are_one_group(tmp_path):
    start_run(tmp_path / "b", seed=1)
    start_run(tmp_path / "a", seed=2)
    start_run(tmp_path / "c", seed=0, algorithm="fedora")
    groups = read_groups([tmp_path])
    assert [(group.label, group.seeds) for group in groups] == [("fova", [1, 2]), ("fedora", [0])]


def test_it_does_not_matter_who_asked_for_the_sampling(tmp_path):
    """Runs from before the algorithm could be asked say that rows come uniformly."""
    for seed, sampling in enumerate(("uniform", "algorithm", "returns")):
        start_run(tmp_path / sampling, seed=seed, sampling=sampling)
    assert [group.seeds for group in read_groups([tmp_path])] == [[0, 1], [2]]


def test_a_group_is_called_as_its_runs(tmp_path):
    one, *seeds = (
        start_run(tmp_path / name, seed=seed) for seed, name in enumerate(("doses", "wards-1", "wards-12"))
    )
    assert [group.name for group in (*read_groups([one]), *read_groups(seeds))] == ["doses", "wards"]
    (together,) = read_groups([one, *seeds])
    assert together.name == "fova"  # the names have nothing in common


def test_labels_say_which_settings_differ(tmp_path):
    start_run(tmp_path / "a", lam=1.0)
    start_run(tmp_path / "b", lam=2.0)
    start_run(tmp_path / "c", lam=2.0, clients=(ClientSpec("expert", 50),))
    start_run(tmp_path / "d", algorithm="fed-bc", mode="local")
    assert [group.label for group in read_groups([tmp_path])] == [
        "a: fova, clients expert-1 + random-1, size 400, lambda 1.0",
        "b: fova, clients expert-1 + random-1, size 400, lambda 2.0",
        "c: fova, clients expert-1, size 50, lambda 2.0",
        "fed-bc (local)",
    ]


def test_of_many_settings_a_label_names_the_first(tmp_path):
    many = {"alpha": 5.0, "lam": 5.0, "beta": 5.0, "vote": False}
    start_run(tmp_path / "a")
    start_run(tmp_path / "b", **many)
    first, second = (group.label for group in read_groups([tmp_path]))
    assert first == "a: fova, alpha auto, lambda auto, 2 more"
    assert second == "b: fova, alpha 5.0, lambda 5.0, 2 more"
    # Where neither the first settings nor the names of the runs tell groups apart, all settings are named.
    start_run(tmp_path / "c/b", **many | {"vote": True})
    labels = [group.label for group in read_groups([tmp_path])]
    assert labels == [first, *(f"b: fova, alpha 5.0, lambda 5.0, beta 5.0, vote {vote}" for vote in ("off", "on"))]


def test_runs_on_tables_differ_in_their_columns(tmp_path):
    files = tuple(ClientSpec(str(file)) for file in hospitals.write(tmp_path, ("north", "south")))

    def start(name, columns, missing=(), seed=0, **bounds):
        made = Columns.of([*hospitals.COLUMNS[:3], *columns, *hospitals.COLUMNS[4:]], missing)
        return start_run(tmp_path / name, "fed-bc", None, clients=files, columns=made, seed=seed, **bounds)

    bounds = {"action_low": (0.0, 0.5), "action_high": (2.0, 3.0)}
    runs = [
        start("doses", ["action=dose"]),
        start("doses-again", ["action=dose"], seed=1),
        start("both", ["action=dose,map"], ["hr=carry", "lactate=mean:1.8"], **bounds),
    ]
    assert [(group.label, group.seeds) for group in read_groups(runs)] == [
        ("doses: fed-bc, action dose", [0, 1]),
        ("both: fed-bc, action dose,map, missing hr=carry lactate=mean:1.8, 2 more", [0]),
    ]


def test_settings_are_written_as_a_person_would(tmp_path):
    mixed = (CLIENTS[0], ClientSpec("random"))
    a = start_run(tmp_path / "a", "fed-bc", None)
    b = start_run(tmp_path / "b", "fed-bc", clients=mixed)
    c = start_run(tmp_path / "c", "fed-bc", clients=mixed, action_low=(0.0, -1.0), action_high=(2.0, 2.0))
    assert [group.label for group in read_groups([a, b])] == [
        "a: fed-bc, own data, size 400",
        "b: fed-bc, maze2d-umaze, size 400,default",
    ]
    assert [group.label for group in read_groups([b, c])] == [
        "b: fed-bc",
        "c: fed-bc, action_low 0.0,-1.0, action_high 2.0,2.0",
    ]


def test_only_settings_with_the_same_data_are_compared(tmp_path):
    medium = (CLIENTS[0], ClientSpec("medium", 400))
    runs = [
        start_run(tmp_path / "a"),
        start_run(tmp_path / "b", algorithm="fedora"),
        start_run(tmp_path / "c", clients=medium),
        start_run(tmp_path / "d", task="maze2d-medium"),
        start_run(tmp_path / "e", task=None),
    ]
    found = {name: [group.algorithm for group in alike] for name, alike in comparable(read_groups(runs)).items()}
    assert found == {
        "maze2d-umaze, expert-1 + random-1": ["fova", "fedora"],
        "maze2d-umaze, expert-1 + medium-1": ["fova"],
        "maze2d-medium": ["fova"],
        "own data": ["fova"],
    }


def test_a_setting_of_an_algorithm_cannot_replace_the_data(tmp_path):
    run = start_run(tmp_path / "a")
    with (run / "config.toml").open("a") as file:
        file.write('\n[algorithm.task]\nname = "other"\n')
    assert list(comparable(read_groups([run]))) == ["maze2d-umaze"]


def test_the_same_run_named_twice_counts_once(tmp_path):
    run = start_run(tmp_path / "a")
    assert [len(group.records) for group in read_groups([run, tmp_path])] == [1]


def test_means_over_seeds_are_taken_client_by_client(tmp_path):
    (group,) = read_groups([make_run(tmp_path / str(seed), seed) for seed in range(2)])
    one, other = (record.behaviour_returns for record in group.records)
    means = group.client_means(lambda record: record.behaviour_returns)
    assert means == {name: pytest.approx((one[name] + other[name]) / 2) for name in ("expert-1", "random-1")}
    assert group.client_means(lambda record: {"a": 1.0} if record.seed else {}) == {"a": 1.0}


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(FovaError, match=r"no config\.toml"):
        read_groups([tmp_path / "nowhere"])
    with pytest.raises(FovaError, match="No run was named"):
        read_groups([])
