from fova import algorithms
from fova.reports.palette import ALGORITHMS, DATA, NAMES, styles


def test_every_algorithm_has_a_look_of_its_own():
    assert set(ALGORITHMS) == set(algorithms.by_name())
    assert len(set(ALGORITHMS.values())) == len(ALGORITHMS)
    colours = {colour for colour, _ in ALGORITHMS.values()}
    assert len(colours) == len(ALGORITHMS)
    assert colours <= set(NAMES)
    assert DATA not in colours  # the level of the data is drawn among the algorithms


def test_an_algorithm_looks_the_same_in_every_chart():
    alone = dict(zip(["fova", "fedora"], styles(["fova", "fedora"])))
    among = dict(zip(["fed-bc", "fedora", "fova"], styles(["fed-bc", "fedora", "fova"])))
    assert alone["fova"] == among["fova"] == ALGORITHMS["fova"]
    assert alone["fedora"] == among["fedora"]


def test_lines_of_one_algorithm_beside_others_share_its_colour():
    first, second, other = styles(["fova", "fova", "fedora"])
    assert first[0] == second[0] == "blue"
    assert first[1] != second[1]
    assert other == ALGORITHMS["fedora"]


def test_the_lines_of_a_sweep_and_of_own_algorithms_can_be_told_apart():
    assert len(set(styles(["fova"] * 12))) == 12
    mine, fova = styles(["mine", "fova"])
    assert fova == ALGORITHMS["fova"]
    assert mine[0] != "blue"
    assert styles([]) == []
