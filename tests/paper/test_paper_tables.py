import pytest

from fova.paper.tables import paper_figures, table, tables
from made_results import made_results, made_run


def cells(sheet):
    return {row[0]: dict(zip(sheet.columns[1:], row[1:])) for row in sheet.rows}


def test_the_papers_figures_are_all_there():
    figures = paper_figures()
    assert len(figures["compare"]) == 22
    assert all(len(row) == 5 for row in figures["compare"].values())
    assert figures["compare"]["hopper expert"]["fova"] == [3095.18, 277.05]
    assert figures["continual"]["hopper"]["vanilla"] == {"per": 1411.74, "bwt": 134.76}
    assert figures["cost"]["fedora"] == {"memory_mb": 484, "seconds_per_epoch": 14.52}


def compared(**finals):
    """Runs of the row `hopper expert`, where the paper has fova 3095 > drpo 2142 > fedora 1219."""
    return made_results(
        [
            made_run("hopper expert", variant, seed, value, paper=["hopper expert", column], task="hopper")
            for variant, (column, values) in finals.items()
            for seed, value in enumerate(values)
        ],
        name="compare",
    )


def test_our_figure_with_interval_beside_the_papers_and_the_order():
    results = compared(
        fova=("fova", (300, 305, 310, 315, 320)), drpo=("drpo", (100,) * 5), fedora=("fedora", (200, 201, 202))
    )
    row = cells(table(results, "main"))["hopper expert"]
    # Student: 310 +- 2.776 * 7.906 / sqrt(5)
    assert row["fova"] == "310.0 [300.2, 319.8] / 3,095"
    assert row["drpo"] == "100.0 [100.0, 100.0] / 2,142"
    assert row["fedora"].startswith("201.0 (200.0, 201.0, 202.0) / ")
    assert row["the data"] == "100.0"
    # fova over both as in the paper, but drpo below fedora
    assert row["order as the paper's (all)"] == "2 of 3 pairs, same winner"
    assert "scale tiny" in table(results, "main").caption
    assert table(results, "main").bold == {(0, 1)}


def test_two_lines_for_one_column_of_the_paper_are_judged_one_by_one():
    results = compared(ours=("fova", (300,)), printed=("fova", (50,)), drpo=("drpo", (100,)))
    row = cells(table(results, "main"))["hopper expert"]
    assert row["order as the paper's (ours)"] == "1 of 1 pairs, same winner"
    assert row["order as the paper's (printed)"] == "0 of 1 pairs, another winner"
    assert row["drpo"] == "100.0 (one run) / 2,142"


def test_the_summary_aggregates_scores_and_says_who_is_better():
    runs = [
        made_run(case, variant, seed, 1.0, score=base + seed)
        for case, lift in (("a", 0.0), ("b", 50.0))
        for variant, base in (("x", 10.0 + lift), ("y", 12.5 + lift))
        for seed in range(3)
    ]
    made = tables(made_results(runs))
    row = cells(made["summary"])
    # x: 10 11 12 60 61 62, one cut from each end: (11 + 12 + 60 + 61) / 4
    assert row["x"]["IQM"].startswith("36.0 [")
    assert row["y"]["IQM"].startswith("38.5 [")
    # y = 12.5, 13.5, 14.5 is above all of x = 10, 11, 12
    assert row["x"]["probability that y is better"] == "1.00 [1.00, 1.00]"
    assert row["y"]["probability that y is better"] == "–"
    assert cells(made["main"])["a"]["x"].startswith("11.0 (")  # scores, not returns


def test_a_variant_that_was_not_run_everywhere_has_no_aggregate():
    runs = [made_run(case, "x", 0, 1.0, score=1.0) for case in "ab"] + [made_run("a", "y", 0, 1.0, score=2.0)]
    made = tables(made_results(runs))
    assert list(cells(made["summary"])) == ["x"]
    assert cells(made["main"])["b"]["y"] == "–"


def test_groups_of_cases_are_summed_up_by_themselves():
    differ, inside = "hopper expert + random", "hopper medium-replay"  # one case of each group of `vote`
    figures = {  # rival above fova in half of the pairs of the first case, below it in the second
        (differ, "fova"): (90.0, 91.0),
        (differ, "without the vote"): (90.5, 90.5),
        (inside, "fova"): (50.0, 60.0),
        (inside, "without the vote"): (10.0, 20.0),
    }
    runs = [
        made_run(case, variant, seed, 1.0, score=score)
        for (case, variant), scores in figures.items()
        for seed, score in enumerate(scores)
    ]
    row = cells(table(made_results(runs, name="vote"), "groups"))
    assert row["fova"]["clients differ: mean"].startswith("90.5 [")
    assert row["fova"]["clients differ: fova is better"] == "–"
    assert row["without the vote"]["clients differ: fova is better"].startswith("0.50 [")
    assert row["without the vote"]["no client is good: mean"].startswith("15.0 [")
    assert row["without the vote"]["no client is good: fova is better"] == "1.00 [1.00, 1.00]"
    assert "groups" not in tables(made_results(runs, name="an evening of my own"))


def test_server_and_every_client():
    clients = {"expert-1": 30.0, "expert-2": 50.0, "random-1": 4.0}
    runs = [made_run("a", "x", seed, 34.0, clients=clients) for seed in range(2)]
    ahead = cells(table(made_results(runs, measured="server minus mean client"), "main"))["x"]
    assert ahead["server − mean client"] == "6.0 (6.0, 6.0)"
    assert ahead["evaluations with the server ahead"] == "1.0 (1.0, 1.0)"
    each = cells(table(made_results(runs, measured="every client"), "main"))["x"]
    assert each["expert clients"] == "40.0 (40.0, 40.0)"
    assert each["worst"] == "4.0 (4.0, 4.0)"


def test_cases_with_unequal_numbers_of_seeds_have_no_summary():
    runs = [made_run("a", "x", seed, 34.0, score=50.0) for seed in range(2)]
    found = tables(made_results([*runs, made_run("b", "x", 0, 1.0, score=2.0)]))
    assert list(found) == ["main", "clients"]
    assert "(one run)" in cells(found["main"])["b"]["x"]


def test_per_and_bwt_come_from_the_performance_on_every_stage():
    stages = [[10.0, 3.0, 2.0], [50.0, 40.0, 7.0], [6.0, 50.0, 1.0]]
    run = made_run("hopper", "vote", 0, 20.0, stages=stages, paper=["hopper", "vote"])
    sheet = table(made_results([run], name="continual", measured="PER and BWT"), "main")
    row = cells(sheet)["hopper, vote"]
    assert row["PER"] == "19.0 (one run) / 1,550"  # (6 + 50 + 1) / 3
    assert row["BWT"] == "3.0 (one run) / 251.1"  # ((6 - 10) + (50 - 40)) / 2
    assert "at most 200 steps from states of that data" in sheet.caption
    assert "train them again" not in sheet.caption


@pytest.mark.parametrize("stages", [[], [[10.0, 3.0]]], ids=["older", "begun before there were such episodes"])
def test_runs_that_were_not_played_from_every_stage_have_neither_per_nor_bwt(stages):
    run = made_run("hopper", "vote", 0, 20.0, stages=stages, paper=["hopper", "vote"])
    sheet = table(made_results([run], name="continual", measured="PER and BWT"), "main")
    row = cells(sheet)["hopper, vote"]
    assert (row["PER"], row["BWT"]) == ("– / 1,550", "– / 251.1")
    assert "–: the runs have no such episodes; train them again." in sheet.caption


def test_the_order_of_per_bwt_and_cost_is_compared_too():
    figures = paper_figures()
    runs = [
        made_run("hopper", v, 0, 1.0, stages=[[first, 0.0], [last, last]], paper=["hopper", v])
        for v, first, last in (("vote", 10.0, 30.0), ("vanilla", 40.0, 20.0))
    ]
    ours = cells(table(made_results(runs, name="continual", measured="PER and BWT"), "main"))
    paper = figures["continual"]["hopper"]
    assert paper["vote"]["per"] > paper["vanilla"]["per"]
    assert ours["hopper: order as the paper's"]["PER"] == "1 of 1 pairs, same winner"  # ours: 30 against 20
    assert paper["vote"]["bwt"] > paper["vanilla"]["bwt"]
    assert ours["hopper: order as the paper's"]["BWT"] == "1 of 1 pairs, same winner"  # 20 against -20
    runs = [
        made_run("pen", v, 0, 1.0, peak_memory_mb=memory, seconds_median_round=seconds, paper=["pen", v])
        for v, memory, seconds in (("fedora", 100.0, 0.1), ("drpo", 900.0, 0.4))
    ]
    ours = cells(table(made_results(runs, name="cost", measured="memory and time"), "main"))["order as the paper's"]
    fedora, drpo = figures["cost"]["fedora"], figures["cost"]["drpo"]
    assert fedora["memory_mb"] < drpo["memory_mb"]
    assert ours["peak memory, MB"] == "1 of 1 pairs, same winner"
    assert fedora["seconds_per_epoch"] > drpo["seconds_per_epoch"]
    assert ours["s per 1,000 local steps"] == "0 of 1 pairs, another winner"


def test_cost_and_distance():
    runs = [
        made_run(
            "pen", "fedora", s, 1.0, seconds_median_round=0.4 + s / 10, paper=["pen", "fedora"], distances=there
        )
        for s, there in enumerate(({"5": {"expert-1": 0.9}, "10": {"expert-1": 0.25}},) * 2)
    ]
    cost = cells(table(made_results(runs, name="cost", measured="memory and time"), "main"))["fedora"]
    assert cost["peak memory, MB"] == "500.0 (500.0, 500.0) / 484.0"
    assert cost["s per 1,000 local steps"] == "4.50 (4.00, 5.00) / 14.52"
    assert cost["MB each way, client and round"] == "2.00"
    runs = [made_run("a", "x", 0, 1.0, clients={"expert-1": 1.0}, distances=run.distances) for run in runs[:1]]
    far = cells(table(made_results(runs, measured="distance to the global policy"), "main"))["x"]
    assert far["expert-1"] == "0.250 (one run)"
