"""Which results stand for planned runs; the data is made, nothing is trained."""

from dataclasses import replace

import pytest

from fova.experiments.keeping import keep
from fova.experiments.results import Results, about, in_json
from fova.experiments.specifications import Case, Entry, Scale, Variant, line_of
from fova.run.simulated import describe
from fova.run.training import trained_on
from made_results import made_results, made_run

SCALE = Scale("tiny", 1, {"rounds": 4, "local_steps": 2}, {"hidden": (8,), "batch_size": 8, "actor_lr": 1 / 3})
CASE = Case("maze", "maze2d-umaze", ("expert", "random"), 200)
ENTRY = Entry("made-up", "Made up", (CASE,), (line_of("fed-bc"),), {"tiny": SCALE})
(PLANNED,) = ENTRY.runs(SCALE)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A result of the planned run, read from a file."""
    clients = {name: describe(data) for name, data in trained_on(PLANNED.config).whole_clients().items()}
    run = replace(made_run("maze", "fed-bc", 0, 50.0), **about(PLANNED) | {"paper": ["old", "labels"]})
    path = tmp_path_factory.mktemp("earlier") / "results.json"
    made_results([replace(run, clients=clients)]).save(path)
    return Results.load(path).runs[0]


def test_a_result_of_the_same_settings_and_data_is_kept(earlier):
    kept = keep([earlier, earlier], [PLANNED])
    assert kept.refused == {}
    assert [run.final for run in kept.runs] == [earlier.final]
    assert kept.runs[0].paper is None, "labels are those of the plan"


def test_labels_may_change(earlier):
    """A variant or a preset that has another name now: the same settings are the same run."""
    other = replace(earlier, name="former", variant="former", preset="former", settings={"hidden": [8]})
    assert keep([other], [PLANNED]) == keep([earlier], [PLANNED])
    foreign = replace(other, configuration="0" * 32)
    assert keep([foreign], [PLANNED]) == ([], {})
    assert keep([replace(other, algorithm="fova")], [PLANNED]) == ([], {})


def test_a_run_that_is_planned_twice_keeps_the_result_of_its_own_name(earlier):
    twin = PLANNED._replace(name="twin", variant="twin")
    for planned in ([PLANNED, twin], [twin, PLANNED]):
        assert [run.name for run in keep([earlier], planned).runs] == [PLANNED.name]


def test_a_result_without_a_digest_of_its_settings_is_not_kept(earlier):
    kept = keep([replace(earlier, configuration=None)], [PLANNED])
    assert kept.runs == []
    assert "no digest of its settings" in kept.refused[PLANNED.name]


@pytest.mark.parametrize("later", [{"settings": {"shared_std": True}}, {"run": {"sampling": "returns"}}])
def test_a_setting_that_came_later_leaves_older_results_valid(earlier, later):
    # The digest of this run before either setting existed; with the setting on, it is another run.
    assert earlier.configuration == "b3d45337e5701ed27e2bf6e2d941d512"
    (other,) = replace(ENTRY, variants=(Variant("fed-bc", "fed-bc", **later),)).runs(SCALE)
    assert keep([earlier], [other._replace(name=PLANNED.name)]).runs == []


def changed(change, **scale):
    (other,) = replace(ENTRY, **change).runs(replace(SCALE, **scale))
    return other._replace(name=PLANNED.name)


@pytest.mark.parametrize(
    ("planned", "reason"),
    [
        (changed({}, run={"rounds": 5, "local_steps": 2}), 'run was {"rounds": 4}, now {"rounds": 5}'),
        (changed({}, settings={**SCALE.settings, "hidden": (16,)}), 'settings was {"hidden": [8]}, now'),
        (changed({"variants": (Variant("fed-bc", "fova"),)}), 'algorithm was "fed-bc", now "fova"'),
        (changed({"run": {"participation": 0.5}}), "run was {}, now"),
    ],
)
def test_other_settings_are_refused(earlier, planned, reason):
    kept = keep([earlier], [planned])
    assert kept.runs == []
    assert kept.refused[PLANNED.name].startswith(reason)


def test_a_preset_whose_values_changed_is_refused(earlier):
    kept = keep([replace(earlier, configuration="0" * 32)], [PLANNED])
    assert "have changed" in kept.refused[PLANNED.name]


def test_other_data_is_refused(earlier):
    def with_clients(clients):
        return keep([replace(earlier, clients=clients)], [PLANNED]).refused[PLANNED.name]

    first, second = earlier.clients
    other = earlier.clients | {second: earlier.clients[second] | {"digest": "f" * 64}}
    assert with_clients(other) == f"client {second} held other data"
    assert with_clients({"north": earlier.clients[first]}).startswith("the clients were north, now they are")
    without = {name: {"rows": 200} for name in earlier.clients}
    assert with_clients(without) == "the file has no digest of its data"


def test_values_compare_as_they_read_from_a_file():
    assert in_json({"hidden": (8,), "lr": 1 / 3}) == {"hidden": [8], "lr": 0.333333}
