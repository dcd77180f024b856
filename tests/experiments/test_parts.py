import pytest

from fova.commands.grid import GridOptions
from fova.errors import FovaError
from fova.experiments.parts import Part, Shard
from fova.experiments.specifications import Case, Entry, Scale, line_of

RUN = {"rounds": 2, "local_steps": 2}
SCALE = Scale("tiny", 2, RUN, most_cases=1)
EASY, HARD = (Case(label, "maze2d-umaze", ("expert",), 200) for label in ("easy", "hard + far"))
SPECIAL = Case("special", "maze2d-umaze", ("expert",), 200, variants=(line_of("fedora"),))
ENTRY = Entry("grid", "Grid", (EASY, HARD, SPECIAL), (line_of("fed-bc"), line_of("fova")), {"tiny": SCALE})


def names(**part):
    return [run.name for run in ENTRY.runs(SCALE, Part(**part))]


def test_parts_of_a_grid():
    assert names() == [f"easy-{variant}-seed-{seed}" for seed in (0, 1) for variant in ("fed-bc", "fova")]
    # a case that the scale leaves out, a seed that it does not have
    assert names(cases=("hard + far",), variants=("fova",), seeds=(1, 7)) == [
        "hard-far-fova-seed-1",
        "hard-far-fova-seed-7",
    ]
    assert names(cases=("special", "easy"), variants=("fedora",), seeds=(0,)) == ["special-fedora-seed-0"]


def test_misspelt_parts():
    with pytest.raises(FovaError, match=r"no case of grid called 'hard'. Did you mean 'hard \+ far'"):
        names(cases=("hard",))
    with pytest.raises(FovaError, match=r"no variant of grid called 'fedra'. Did you mean 'fedora'"):
        names(variants=("fedra",))
    with pytest.raises(FovaError, match="None of the chosen cases of grid has a chosen variant"):
        names(cases=("easy",), variants=("fedora",))
    with pytest.raises(FovaError, match="seeds has -1"):
        Part(seeds=(0, -1))


def test_shards_are_disjoint_complete_and_equal():
    runs = [f"{case}-{variant}-seed-{seed}" for seed in range(5) for case in "abcd" for variant in ("x", "y", "z")]
    shares = [Shard(number, 4).of(runs) for number in (1, 2, 3, 4)]
    assert sorted(run for share in shares for run in share) == sorted(runs)
    assert [len(share) for share in shares] == [15, 15, 15, 15]
    assert shares[0] == [run for run in runs if run in shares[0]], "in their order"
    # every share has runs of every variant, though the number of variants divides the number of runs
    assert all({run.split("-")[1] for run in share} == {"x", "y", "z"} for share in shares)


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2", ""])
def test_shards_that_do_not_exist(text):
    with pytest.raises(FovaError, match="must be i/n with i from 1 to n"):
        Shard.parse(text)


def slurm(task, count, first, last):
    values = {"ID": task, "COUNT": count, "MIN": first, "MAX": last}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in values.items()}


def test_the_share_of_a_task_in_a_job_array(monkeypatch):
    assert Shard.parse("2/8") == Shard(2, 8)
    assert Shard.of_slurm({}) is None
    found = [Shard.of_slurm(slurm(*task)) for task in ((0, 10, 0, 9), (10, 10, 1, 10), (6, 3, 2, 10), (5, 1, 5, 5))]
    assert [(shard.number, shard.count) for shard in found] == [(1, 10), (10, 10), (2, 3), (1, 1)]
    assert found[0].words() == "share 1 of 10 of Slurm's job array"
    assert Shard.of_slurm(slurm(3, 3, 1, 7)) is None, "--array=1,3,7 has gaps"
    for name, value in slurm(3, 4, 0, 3).items():
        monkeypatch.setenv(name, value)
    assert GridOptions().execution().shard.number == 4
    assert GridOptions(shard="1/2").execution().shard == Shard(1, 2)


def test_options_that_contradict_each_other():
    with pytest.raises(FovaError, match="Add: --on ray"):
        GridOptions(address="head:6379").execution()
    with pytest.raises(FovaError, match="--jobs is for this machine"):
        GridOptions(on="ray", jobs=2).execution()
