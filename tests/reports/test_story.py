"""Runs in words. Figures come from real runs; where a case is rare, a record is changed in Python."""

from dataclasses import replace

import numpy as np
import pytest

from fova.federation.rounds import Traffic
from fova.reports import story
from fova.reports.groups import Group, read_groups
from fova.reports.series import Votes, votes
from fova.run.records import PrivacySpent
from made_runs import described, entries, interrupt, make_run, result, start_run


@pytest.fixture
def one(tmp_path):
    return make_run(tmp_path / "one")


@pytest.fixture
def one_run(one):
    return read_groups([one])[0]


def changed(group, **fields):
    """The group with another first record."""
    return replace(group, records=(replace(group.first, **fields), *group.records[1:]))


def ending_at(group, *returns):
    """As many seeds as there are returns, each ending with one."""
    server = group.first.final.server
    finals = [replace(group.first.final, server=server._replace(mean_return=value)) for value in returns]
    return replace(group, records=tuple(replace(group.first, final=final) for final in finals))


def test_one_run_in_words(one, one_run):
    done, ended, clients, along, took, sure = story.summary(one_run)
    assert done == (
        "fova trained one policy on maze2d-umaze across 2 clients (1 × expert, 1 × random; 800 logged transitions "
        "in all): 4 rounds of 2 gradient steps at every client."
    )
    final, data = result(one), {name: facts["behaviour_return"] for name, facts in described(one).items()}
    assert ended.startswith(f"At the end the server's policy earns {final['server']:,.1f} (normalised score ")
    average = np.mean(list(data.values()))
    above = "above" if final["server"] > average else "below"
    assert max(data, key=data.get) == "expert-1"
    assert final["server"] < data["expert-1"]
    assert ended.endswith(
        f"The behaviour in the clients' data earned {average:,.1f} on average and {data['expert-1']:,.1f} at best "
        f"(expert-1): the result is {above} the average and below the best."
    )
    policies = {name: final[name] for name in data}
    mean, best = np.mean(list(policies.values())), max(policies, key=policies.get)
    assert clients.startswith(f"The clients' own policies earn {mean:,.1f} on average: the server's policy is ")
    apart = f"{abs(final['server'] - mean):,.1f}"
    place = f"{apart} {'better' if final['server'] >= mean else 'worse'}"
    assert f"is {'level with them' if apart == '0.0' else place}." in clients
    assert clients.endswith(f"The best of them, {best}, earns {policies[best]:,.1f}.")
    looks = [*(line["server"]["return"] for line in entries(one) if "server" in line), final["server"]]
    assert f"was {max(looks):,.1f}, after round " in along
    assert "It is picked with hindsight from 3 evaluations" in along
    size = entries(one)[-1]["bytes_per_client"]
    assert took.startswith(f"In every round each client sent {size['up']:,} bytes and received {size['down']:,}.")
    assert sure == "This is one seed (0). It cannot show how much of the result is luck."


@pytest.mark.parametrize(
    ("sampling", "episode_weights", "said"),
    [
        ("algorithm", "plain", False),
        ("algorithm", "returns", True),
        ("uniform", "returns", False),
        ("returns", "plain", True),
    ],
)
def test_rows_that_come_by_their_weights_are_mentioned(one_run, sampling, episode_weights, said):
    first = one_run.first
    config = replace(first.config, settings=first.config.settings | {"episode_weights": episode_weights})
    group = changed(one_run, config=config, run=replace(first.run, sampling=sampling))
    sentence = "Policies learned more often from rows of episodes that earned more."
    assert (sentence in story.summary(group)) == said


def test_several_seeds_have_an_interval_and_are_named(tmp_path):
    runs = [make_run(tmp_path / str(seed), seed) for seed in range(3)]
    (group,) = read_groups(runs)
    finals = [result(run)["server"] for run in runs]
    words = " ".join(story.summary(group))
    assert f"earns {np.mean(finals):,.1f} ({', '.join(f'{value:,.1f}' for value in finals)})" in words
    assert "3 seeds (0, 1, 2)" in words
    assert "hindsight" not in words


def test_bytes_privacy_and_clients_that_fell_out_are_told(one_run):
    *rounds, last = one_run.first.rounds
    rounds[1] = replace(rounds[1], rejected=("random-1",))
    last = replace(last, missing=("random-1",), traffic=Traffic(1000, 2000), privacy=PrivacySpent(3.456, 1e-5))
    words = story.summary(changed(one_run, rounds=(*rounds, last)))
    assert (
        "In every round each client sent 2,000 bytes and received 1,000. No client sent a row of its data." in words
    )
    assert any("epsilon 3.46 at delta 1e-05" in sentence for sentence in words)
    assert "Submissions were rejected: random-1 (1 round)." in words
    assert "No answer came in time: random-1 (1 round)." in words


def test_what_is_not_known_is_not_said(tmp_path, one):
    (group,) = read_groups([interrupt(one, after=3)])
    words = " ".join(story.summary(group))
    assert "not known: no run is finished yet" in words
    assert "The run one is not finished: 3 of 4 rounds are done." in words
    (group,) = read_groups([make_run(tmp_path / "files", task=None)])
    words = " ".join(story.summary(group))
    assert "there is no task to play it in" in words
    assert "server's policy earns" not in words
    (group,) = read_groups([start_run(tmp_path / "young")])
    assert "0 of 4 rounds are done" in " ".join(story.summary(group))


def vote(client, behaviour, shared, weight=0.5):
    """A client's vote over ten rounds; `behaviour` and `shared` are the shares at first and at the end."""
    shares = {"behaviour": np.linspace(*behaviour, 10), "global": np.linspace(*shared, 10)}
    shares = {"local": 1.0 - shares["behaviour"] - shares["global"], **shares}
    lists = {voter: values.tolist() for voter, values in shares.items()}
    return Votes(client, np.arange(1.0, 11.0).tolist(), lists, [weight] * 10)


def test_who_won_the_vote_who_was_imitated_and_who_was_led(one_run):
    found = [vote("expert-1", (0.54, 0.9), (0.05, 0.05)), vote("random-1", (0.3, 0.3), (0.24, 0.6))]
    # The last fifth is two of ten rounds: the mean of 0.86 and 0.9, and of 0.56 and 0.6.
    assert found[0].late("behaviour") == pytest.approx(0.88)
    assert found[1].late("global") == pytest.approx(0.58)
    assert [story.winner(client) for client in found] == ["behaviour", "global"]
    words = story.vote_summary(changed(one_run, rounds=()), found)
    assert words[0].startswith("Trusting their data: at expert-1 the logged action won most often.")
    assert words[1].startswith("Led: at random-1 the global policy's action won most often.")
    assert "The data was trusted most at expert-1 (88% of the votes) and least at random-1 (30%)." in words
    assert "(1 is full weight): expert-1 0.50, random-1 0.50." in words[-1]
    assert story.vote_in_words(found[1]) == (
        "the global policy 58%, its data 30%, its own policy 12%; the global policy is up from 26% at the start"
    )


def test_the_vote_of_a_real_run_is_told_for_every_client(one, one_run):
    found = votes(one_run)
    words = " ".join(story.vote_summary(one_run, found))
    late = entries(one)[-1]["clients"]  # of four rounds, the last fifth is one
    for client in found:
        assert client.client in words
        assert f"{client.client} {late[client.client]['weight']:.2f}" in words
        for voter in ("local", "behaviour", "global"):
            assert f"{late[client.client][f'vote_{voter}']:.0%}" in story.vote_in_words(client)


def test_nobody_wins_a_vote_that_is_level(one_run):
    level = Votes("c", [1.0], {"local": [0.34], "behaviour": [0.36], "global": [0.30]}, [])
    assert story.winner(level) is None
    assert "Undecided: at c" in story.vote_summary(changed(one_run, rounds=()), [level])[0]
    assert story.vote_in_words(level).endswith("about as at the start")


def weighed(group, **weights):
    """The group whose server logged these weights in the last round."""
    *rounds, last = group.first.rounds
    names = {name.replace("_", "-"): weight for name, weight in weights.items()}
    clients = {name: {**metrics, "server_weight": names[name]} for name, metrics in last.clients.items()}
    return changed(group, rounds=(*rounds, replace(last, clients=clients)))


def test_how_much_the_server_counted_each_client(one_run):
    group = weighed(one_run, expert_1=0.646, random_1=0.354)
    words = story.vote_summary(group, votes(group))
    assert words[0] == "The server's weights in the last round: expert-1 65%, random-1 35%."
    assert "hardly counted" not in " ".join(words)
    words = story.vote_summary(weighed(one_run, expert_1=0.998, random_1=0.002), votes(one_run))
    assert words[0].endswith("expert-1 100%, random-1 0%.")
    assert words[1] == "Imitated: nearly all of the shared policy comes from expert-1; random-1 hardly counted."
    several = Group("two seeds", group.records * 2)
    assert story.vote_summary(several, votes(group))[0].startswith(
        "The server's weights in the last round (seed 0): "
    )


def test_a_policy_that_imitates_the_vote_says_so(one_run):
    settings = one_run.first.config.settings | {"imitate": "vote"}
    group = changed(one_run, config=replace(one_run.first.config, settings=settings))
    assert "imitates the action that wins the vote" in story.vote_summary(group, votes(group))[-1]


def test_a_comparison_calls_luck_luck(one_run):
    other = replace(one_run, label="fedora")
    first, luck = story.comparison([ending_at(one_run, 35.0), ending_at(other, 30.0)])
    assert first == "Of 2 settings on maze2d-umaze, fova ends highest with 35.0, ahead of fedora with 30.0."
    assert "One seed cannot tell" in luck
    apart = [ending_at(other, 30.0, 30.0, 30.0), ending_at(one_run, 35.0, 36.0, 37.0)]
    assert "3 seeds are few" in story.comparison(apart)[1]
    apart = [ending_at(other, *[30.0] * 5), ending_at(one_run, 35.0, 36.0, 37.0, 35.0, 36.0)]
    assert "do not overlap" in story.comparison(apart)[1]
    near = [ending_at(other, 30.0, 30.0, 30.0), ending_at(one_run, 30.0, 31.0, 32.0)]
    assert "may be luck" in story.comparison(near)[1]
    assert story.comparison(near[:1]) == []


def with_losses(group, actor, critic):
    """The run with these losses of random-1 from its first to its last round."""
    trained = [line for line in group.first.rounds if line.clients]
    assert len(trained) == len(actor) == len(critic)
    rounds = tuple(
        replace(line, clients={"random-1": {"actor_loss": a, "critic_loss": c}})
        for line, a, c in zip(trained, actor, critic)
    )
    return " ".join(story.summary(changed(group, rounds=rounds)))


def test_a_loss_that_grows_is_named_and_explained(one_run):
    rounds = len([line for line in one_run.first.rounds if line.clients])
    growing = [10.0 ** (i + 1) for i in range(rounds)]
    harmless = with_losses(one_run, growing, [0.5] * rounds)
    assert f"random-1 (from 10 to {growing[-1]:,.0f})" in harmless
    assert "not that training diverges" in harmless
    assert "may diverge: lower the learning rates" in with_losses(one_run, growing, growing)
    assert "actor's loss" not in with_losses(one_run, [5.0] * rounds, [5.0] * rounds)
    assert "actor's loss" not in with_losses(one_run, growing[::-1], [5.0] * rounds)
    exploded = with_losses(one_run, [5.0] * rounds, growing)
    assert "exploded: it rose to more than ten times its first size at random-1 (from 10 to" in exploded
    assert "exploded" not in harmless


def test_a_loss_that_is_no_number_is_named_with_its_round(one_run):
    rounds = len([line for line in one_run.first.rounds if line.clients])
    broken = with_losses(one_run, [1.0] * rounds, [1.0, float("nan"), *[float("inf")] * (rounds - 2)])
    second = [line for line in one_run.first.rounds if line.clients][1].number
    assert f"Training diverged: from round {second} on the losses of random-1 are not finite" in broken
    assert "exploded" not in broken
