"""The verdict and the training diagnostics on the page of a run without a task."""

import html
import re
from dataclasses import replace

import pytest

from fova.errors import FovaError
from fova.reports.groups import read_groups
from fova.reports.page import write_report
from fova.reports.ranking import judged_settings, ranking_in_words, ranking_sentence
from fova.run.records import read_record
from made_runs import make_run, write_verdict


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", task=None)


def test_a_judged_run_answers_whether_it_would_be_better(run, tmp_path):
    before = write_report([run], tmp_path / "before.html", {}).read_text()
    assert "Would this be better" not in before
    assert f"To estimate it: fova judge {run}" in before
    assert "Server against clients" not in before
    assert "data earned" in before
    write_verdict(run)
    page = write_report([run], tmp_path / "page.html", {}).read_text()
    assert "Would this be better than what was done?" in page
    assert "Better than current practice at 2 of 2 clients." in page
    assert "7.00 (90 % interval 6.00 to 8.00)" in page
    assert "the policy: 7.00 [6.00, 8.00]" in page
    assert "in 90 % of the states" in page
    assert "The judge estimates: Better than current practice at 2 of 2 clients." in page


def test_every_return_says_which_one_it_is(tmp_path):
    run = make_run(tmp_path / "run", task=None, hold_out=0.5)
    before = write_report([run], tmp_path / "before.html", {}).read_text()
    assert (
        "One seed. Undiscounted returns, for the data those of the episodes that the clients train on.<" in before
    )
    write_verdict(run)
    page = html.unescape(write_report([run], tmp_path / "page.html", {}).read_text())
    assert "train on; the judge's figures are discounted returns of held-out episodes." in page
    assert ">undiscounted return of an episode<" in page
    assert ">discounted return from the first state<" in page
    assert (
        "the logged episodes earned 5.00. These are discounted returns from the first state of an episode "
        "(discount 0.99); the estimate is worth 0.07 a step. An episode that was cut off counts as going on: in "
        "the logged returns the mean value of the data is added for the rest of it."
    ) in page
    assert "The undiscounted return of the same logged episodes, with nothing added, is 9.00 on average." in page
    assert "; returns are undiscounted" in page


def test_runs_with_a_task_are_judged_too(tmp_path):
    run = make_run(tmp_path / "run")
    write_verdict(run)
    page = write_report([run], tmp_path / "page.html", {}).read_text()
    assert "Would this be better than what was done?" in page
    assert "How training went" not in page  # it shows returns instead


def test_a_run_without_a_task_shows_its_diagnostics(run, tmp_path):
    page = write_report([run], tmp_path / "page.html", {}).read_text()
    assert "How training went" in page
    for title in ("Loss of the critics", "Q of the logged actions", "TD error", "Distance from the global policy"):
        assert title in page


@pytest.fixture
def two(tmp_path):
    """Two runs without a task that differ in a setting."""
    return [
        make_run(tmp_path / name, task=None, reward_scale=scale) for name, scale in (("low", 0.5), ("high", 1.0))
    ]


def headings(page, caption):
    table = page[page.index(f'aria-label="{caption}') :]
    return re.findall('<th scope="col">([^<]*)</th>', table[: table.index("</thead>")])


def test_estimates_that_diverged_are_called_so(two, tmp_path):
    for run in two:
        write_verdict(run, value=float("nan"))
    page = write_report(two, tmp_path / "report.html", {}).read_text()
    assert "judge's estimate" in map(html.unescape, headings(page, "Every run"))
    assert page.count("diverged") >= len(two)
    assert "nan" not in re.findall(r"<td[^>]*>([^<]*)<", page)
    assert "+nan" not in page


def test_settings_on_own_data_are_ranked_by_the_judge(two, tmp_path):
    low, high = two
    page = write_report(two, tmp_path / "before.html", {}).read_text()
    assert f"none of 2 settings was judged. To rank them: fova judge {low} {high}</p>" in page
    assert headings(page, "Every run") == ["run", "setting", "seed", "rounds done"]
    write_verdict(low, value=5.0)
    page = write_report(two, tmp_path / "one.html", {}).read_text()
    assert "1 of 2 settings was judged" in page
    write_verdict(high, value=7.0)
    page = html.unescape(write_report(two, tmp_path / "both.html", {}).read_text())
    assert "By the judge, high has the highest estimate. It is clearly above low." in page
    columns = ["run", "setting", "seed", "judge's estimate", "policy minus data", "clients better off"]
    assert headings(page, "Every run") == [*columns, "rounds done"]
    ranking = page[page.index("The judge's estimates for all clients together") :]
    rows = [
        re.findall("<t[hd][^>]*>([^<]*)<", row) for row in re.findall("<tr><th data-value.*?</tr>", ranking)[:2]
    ]
    assert rows == [
        ["high: fova, reward_scale 1.0", "1", "7.00", "+2.00", "2 of 2", "90 %"],
        ["low: fova, reward_scale 0.5", "1", "5.00", "+0.00", "0 of 2", "90 %"],
    ]
    row = re.search('<tr><th data-value="high".*?</tr>', page[page.index('aria-label="Every run"') :]).group()
    assert '7.00<span class="detail">[6.00, 8.00]</span>' in row
    assert '+2.00<span class="detail">[+1.00, +3.00]</span>' in row


def test_verdicts_on_different_episodes_do_not_rank(two, tmp_path):
    for run, data in zip(two, (5.0, 6.0)):
        write_verdict(run, data_value=data)
    page = html.unescape(write_report(two, tmp_path / "page.html", {}).read_text())
    assert "The judge's estimates are from different episodes, so they do not rank these settings." in page


def test_settings_are_compared_seed_by_seed(tmp_path):
    runs = {(name, seed): tmp_path / f"{name}-{seed}" for name in ("low", "high") for seed in (0, 1)}
    for (name, seed), run in runs.items():
        make_run(run, seed, task=None, reward_scale=0.5 if name == "low" else 1.0)
        write_verdict(run, value=(7.0 if name == "high" else 5.0) + seed, data_value=5.0 + seed)
    low, high = judged_settings(groups := read_groups(runs.values()))[::-1]
    assert (low.setting, low.value, low.gain, low.better_off) == ("low: fova, reward_scale 0.5", 5.5, 0.5, "0 of 4")
    assert (high.value, high.gain, high.better_off) == (7.5, 2.5, "4 of 4")
    assert ranking_in_words(groups) == ["By the judge, high has the highest estimate. It is clearly above low."]
    # Seed 1 of `high` is much better, but `low` was judged for seed 0 alone, and is better there.
    (runs["low", 1] / "judge.json").unlink()
    write_verdict(runs["low", 0], value=9.0)
    write_verdict(runs["high", 1], value=20.0, data_value=6.0)
    assert judged_settings(groups := read_groups(runs.values()))[0].setting == "high: fova, reward_scale 1.0"
    assert ranking_in_words(groups) == ["By the judge, low has the highest estimate. It is clearly above high."]


def test_federated_against_local(tmp_path):
    federated = make_run(tmp_path / "federated", task=None)
    local = make_run(tmp_path / "local", task=None, mode="local")
    write_verdict(federated, value=9.0)
    write_verdict(local, value=6.0)
    page = write_report([federated, local], tmp_path / "page.html", {}).read_text()
    assert "fova: By the judge, taking part pays at 2 of 2 clients." in page
    assert "fova: does taking part pay?" in page
    # Both fits have an error of 0.1 and a bias of 0.2: 1.645 * sqrt(0.1^2 + 0.1^2) + 0.2 + 0.2 = 0.63.
    assert page.count("+3.00 ± 0.63") == 2


def test_a_damaged_verdict_is_named(run):
    (run / "judge.json").write_text("{}")
    with pytest.raises(FovaError, match=r"judge\.json"):
        read_record(run)


@pytest.mark.parametrize(
    ("value", "change", "words"),
    [
        (7.0, {}, "b has the highest estimate. It is clearly above a."),
        (5.3, {}, "b has the highest estimate. No clear difference from a."),
        (7.0, {"inside": 0.5}, "b has the highest estimate, but the policy acts outside its data in 50 % of "
         "states: not enough evidence to choose it."),
    ],
)  # fmt: skip
def test_a_ranking_in_words(run, value, change, words):
    # Both fits have an error of 0.1 and a bias of 0.2, so a difference below 1.645 * 0.1 * sqrt(2) + 0.4 = 0.63 is
    # not clear.
    write_verdict(run, 5.0)
    lower = read_record(run).verdict
    write_verdict(run, value)
    higher = read_record(run).verdict
    higher = replace(higher, federation=replace(higher.federation, **change))
    assert ranking_sentence([("b", [higher]), ("a", [lower])]) == words
