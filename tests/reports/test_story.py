import json

import pytest

from fova.reports import story
from fova.reports.records import read_groups
from fova.reports.series import votes
from made_runs import make_run


@pytest.fixture
def one_run(tmp_path):
    return read_groups([make_run(tmp_path / "one")])[0]


def test_one_run_in_words(one_run):
    done, ended, clients, along, sure = story.summary(one_run)
    assert done == (
        "fova trained one policy on maze2d-umaze across 2 clients (1 × expert, 1 × random; 150 logged transitions "
        "in all): 10 rounds of 100 gradient steps at every client."
    )
    assert ended.startswith("At the end the server's policy earns 30.0 (normalised score 50.0;")
    assert ended.endswith(
        "The behaviour in the clients' data earned 25.0 on average and 40.0 at best (expert-1): the result is "
        "above the average and below the best."
    )
    assert clients == (
        "The clients' own policies earn 25.0 on average, so the server's is 5.0 better than its mean client; the "
        "best of them, expert-1, earns 36.0."
    )
    assert "30.0 after round 10; it is picked with hindsight from 6 looks" in along
    assert sure == "This is one seed (0): how much of it is luck, it cannot tell."


def test_several_seeds_have_an_interval_and_are_named(tmp_path):
    runs = [make_run(tmp_path / str(seed), seed, shift=3.0 * seed) for seed in range(3)]
    (group,) = read_groups(runs)
    words = " ".join(story.summary(group))
    assert (
        "earns 33.0 [30.0, 36.0]" in words
    )  # with three seeds, the interval's ends are the lowest and the highest
    assert "3 seeds (0, 1, 2)" in words
    assert "hindsight" not in words


def test_bytes_privacy_and_clients_that_fell_out_are_told(tmp_path):
    run = make_run(tmp_path / "one", rounds=2)
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    entries[1] |= {"rejected": ["random-1"]}
    entries[2] |= {
        "missing": ["random-1"], "bytes_per_client": {"up": 2000, "down": 1000}, "clients": {},
        "privacy": {"epsilon": 3.456, "delta": 1e-5},
    }  # fmt: skip
    (run / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    words = story.summary(read_groups([run])[0])
    assert "In a round, every client sent 2,000 bytes and received 1,000; never a row of its data." in words
    assert any("epsilon 3.46 at delta 1e-05" in sentence for sentence in words)
    assert "Submissions were rejected: random-1 (1 round)." in words
    assert "No answer came in time: random-1 (1 round)." in words


def test_what_is_not_known_is_not_said(tmp_path):
    (group,) = read_groups([make_run(tmp_path / "cut", finished=False)])
    words = " ".join(story.summary(group))
    assert "not known: no run is finished yet" in words
    assert "The run cut is not finished: 10 of 10 rounds are done." in words
    (group,) = read_groups([make_run(tmp_path / "wards", task=None)])
    words = " ".join(story.summary(group))
    assert "there is no task to play it in" in words
    assert "server's policy earns" not in words


def test_who_won_the_vote_who_was_imitated_and_who_was_led(one_run):
    found = votes(one_run)
    # Over the last two of ten rounds: the data's share at the expert is 0.5 + 0.4 * 0.95, the global policy's at
    # the random client 0.2 + 0.4 * 0.95.
    assert found[0].late("behaviour") == pytest.approx(0.88)
    assert found[1].late("global") == pytest.approx(0.58)
    assert [story.winner(client) for client in found] == ["behaviour", "global"]
    words = story.vote_summary(one_run, found)
    assert words[0].startswith("Trusting their data: at expert-1 the data's action won most often.")
    assert words[1].startswith("Led: at random-1 the global policy's action won most often.")
    assert "The data was trusted most at expert-1 (88% of the votes) and least at random-1 (30%)." in words
    assert "(1 is in full): expert-1 0.50, random-1 0.50." in words[-1]
    assert story.vote_in_words(found[1]) == (
        "the global policy 58%, its data 30%, its own policy 12%; the global policy is up from 26% in the beginning"
    )


def test_nobody_wins_a_vote_that_is_level(one_run):
    client = votes(one_run)[0]
    level = type(client)("c", [1.0], {"local": [0.34], "behaviour": [0.36], "global": [0.30]}, [])
    assert story.winner(level) is None
    assert "Undecided: at c" in story.vote_summary(one_run, [level])[0]
    assert story.vote_in_words(level).endswith("much as in the beginning")


def test_how_much_the_server_counted_each_client(tmp_path):
    (group,) = read_groups([make_run(tmp_path / "one", extra='value_weight = 0.1\nimitate = "vote"\n')])
    words = story.vote_summary(group, votes(group))
    # values 9 and 3 in the last round: 1 / (1 + exp(-0.6)) = 0.646
    assert (
        words[0] == "In the last round the server counted the clients' parameters with: expert-1 65%, random-1 35%."
    )
    assert "imitates the action that wins the vote" in words[-1]
    (group,) = read_groups([make_run(tmp_path / "sharper", extra="value_weight = 1.0\n")])
    words = story.vote_summary(group, votes(group))
    assert words[0].endswith("expert-1 100%, random-1 0%.")  # 1 / (1 + exp(-6))
    assert words[1] == "Imitated: the shared policy is made of what expert-1 sent; random-1 hardly counted."


def test_a_comparison_calls_luck_luck(tmp_path):
    def groups(name, seeds, lead):
        runs = [make_run(tmp_path / name / f"a{s}", s, shift=lead + s) for s in range(seeds)]
        return read_groups(
            runs + [make_run(tmp_path / name / f"b{s}", s, algorithm="fedora") for s in range(seeds)]
        )

    first, luck = story.comparison(groups("one", 1, lead=5.0))
    assert first == "Of 2 settings on maze2d-umaze, fova ends highest with 35.0, ahead of fedora with 30.0."
    assert "One seed cannot tell" in luck
    assert "do not overlap" in story.comparison(groups("apart", 3, lead=5.0))[1]
    assert "may be luck" in story.comparison(groups("near", 3, lead=0.0))[1]
    assert story.comparison(groups("alone", 1, lead=0.0)[:1]) == []
