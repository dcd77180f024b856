"""A run in plain sentences: what was done, how it ended, and who won the vote.

It states only what the figures support: a single seed is labelled, and so is the best of many evaluations. The
functions take numbers and return sentences; they read and draw nothing.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fova.data.fields import counted
from fova.evaluation.metrics import best_of_training
from fova.evaluation.statistics import FEWEST_RUNS, how_sure, mean_over_runs
from fova.federation.client_specs import complete
from fova.reports.groups import Group
from fova.reports.losses import in_a_row, losses_in_words
from fova.reports.palette import VOTER_WORDS
from fova.reports.series import Votes, final_client_returns

# Shares nearer to one another than this are called level.
NOTICEABLE = 0.05


def number(value: float) -> str:
    """A figure as the report shows it: one decimal, a comma between thousands."""
    return f"{value:,.1f}"


def percent(share: float) -> str:
    return f"{share:.0%}"


def mean_with_interval(values: Sequence[float]) -> str:
    """The mean over seeds: with its interval in brackets, or with the single seeds where they are few."""
    return mean_over_runs(values).text(number)


# --- How it went ---


def summary(group: Group) -> list[str]:
    """One setting: what was trained, how it compares with data and clients, and how far to trust that."""
    sentences = [_what_was_done(group), *_which_rows(group), *_how_it_ended(group), *_along_the_way(group)]
    return [*sentences, *_what_it_took(group), *_what_went_wrong(group), _how_sure(group)]


def comparison(groups: Sequence[Group]) -> list[str]:
    """Several settings on the same task: which ends highest, and whether that may be luck."""
    played = sorted((group for group in groups if group.finals), key=lambda group: -float(np.mean(group.finals)))
    if len(played) < 2:
        return []
    first, second = played[:2]
    task = f" on {first.task}" if first.task else ""
    sentence = (
        f"Of {len(played)} settings{task}, {first.label} ends highest with {mean_with_interval(first.finals)}, "
        f"ahead of {second.label} with {mean_with_interval(second.finals)}."
    )
    fewest = min(len(group.finals) for group in (first, second))
    if fewest < 2:
        return [sentence, "One seed cannot tell a better setting from a luckier one: take the order as a hint."]
    what = "intervals" if fewest >= FEWEST_RUNS else "seeds"
    if mean_over_runs(first.finals).ends[0] <= mean_over_runs(second.finals).ends[1]:
        return [sentence, f"Their {what} overlap, so the order of these two may be luck."]
    if fewest < FEWEST_RUNS:
        return [sentence, f"Every seed of the first is above every seed of the second; {fewest} seeds are few."]
    return [sentence, f"Their intervals over {fewest} seeds do not overlap."]


def _what_was_done(group: Group) -> str:
    record = group.first
    facts = [*_make_up(group)]
    if record.rows:
        facts.append(f"{sum(record.rows.values()):,} logged transitions in all")
    clients = counted(len(record.clients), "client") + (f" ({'; '.join(facts)})" if facts else "")
    task = f" on {group.task}" if group.task else ""
    budget = f"{counted(record.run.rounds, 'round')} of {counted(record.run.local_steps, 'gradient step')}"
    if group.mode == "local":
        return f"Each of {clients} trained its own policy alone with {group.algorithm}{task}: {budget}."
    if group.mode == "centralised":
        return f"{group.algorithm} trained one policy{task} on the pooled data of {clients}: {budget} per client."
    return f"{group.algorithm} trained one policy{task} across {clients}: {budget} at every client."


def _which_rows(group: Group) -> list[str]:
    """A sentence if rows did not come all alike."""
    weighted = group.first.sampling == "returns"
    return ["Policies learned more often from rows of episodes that earned more."] if weighted else []


def _make_up(group: Group) -> list[str]:
    """`2 × expert, 2 × random` where that says more than the clients' names."""
    if group.first.run.data_sequence:
        return [f"all with {', then '.join(map(_base_name, group.first.run.data_sequence))} data"]
    kinds = Counter(_base_name(client.data) for client in complete(group.first.config.clients))
    if not kinds or len(kinds) == len(group.client_names) > 4:
        return []
    return [", ".join(f"{count} × {kind}" for kind, count in kinds.items())]


def _how_it_ended(group: Group) -> list[str]:
    if not group.finals:
        return [_without_a_game(group)]
    server = float(np.mean(group.finals))
    whose = "The clients' policies earn" if group.mode == "local" else "At the end the server's policy earns"
    earned = f"{whose} {mean_with_interval(group.finals)}{_score(group)}, {_episodes(group)}."
    return [
        f"{earned} {_against_data(group, server)}".strip(),
        *_against_clients(group, server),
    ]


def _without_a_game(group: Group) -> str:
    """What is known where no policy was played to the end."""
    if group.task is not None:
        return "What the policy earns is not known: no run is finished yet."
    if group.verdict is not None:
        return f"There is no task to play the policy in. The judge estimates: {group.verdict.sentence()}"
    where = group.first.directory
    return f"What the policy earns is not known: there is no task to play it in. To estimate it: fova judge {where}"


def _score(group: Group) -> str:
    scores = [record.final.server.score for record in group.records if record.final is not None]
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return ""
    return f" (normalised score {mean_with_interval(known)}; 0 is a random policy, 100 the reference expert)"


def _episodes(group: Group) -> str:
    episodes = group.first.run.final_episodes
    return f"the mean return of {counted(episodes, 'episode')}" + (" a seed" if len(group.records) > 1 else "")


def _against_data(group: Group, server: float) -> str:
    behaviour = group.client_means(lambda record: record.behaviour_returns)
    if not behaviour:
        return "The clients did not report the return in their data."
    average = float(np.mean(list(behaviour.values())))
    best = max(behaviour, key=lambda name: behaviour[name])
    if len(behaviour) == 1:
        return f"The behaviour in the data earned {number(average)}: the result is {_place(server, average)} that."
    return (
        f"The behaviour in the clients' data earned {number(average)} on average and {number(behaviour[best])} at "
        f"best ({best}): the result is {_place(server, average)} the average and {_place(server, behaviour[best])} "
        "the best."
    )


def _against_clients(group: Group, server: float) -> list[str]:
    returns = group.client_means(final_client_returns)
    if group.mode != "federated" or len(returns) < 2:
        return []
    average, best = float(np.mean(list(returns.values()))), max(returns, key=lambda name: returns[name])
    apart = number(abs(server - average))
    place = f"{apart} {'better' if server >= average else 'worse'}" if apart != number(0.0) else "level with them"
    return [
        f"The clients' own policies earn {number(average)} on average: the server's policy is {place}. The best of "
        f"them, {best}, earns {number(returns[best])}."
    ]


def _along_the_way(group: Group) -> list[str]:
    if len(group.records) > 1 or len(group.first.evaluations) < 3:
        return []
    best = best_of_training(group.first.evaluations)
    return [
        f"The highest evaluation during training was {number(best.server.mean_return)}, after round {best.round}. "
        f"It is picked with hindsight from {len(group.first.evaluations)} evaluations, so it flatters the policy."
    ]


def _what_it_took(group: Group) -> list[str]:
    """What left a client: the bytes of a round, and the privacy spent."""
    last = group.first.last_round
    sentences = []
    if last and last.traffic:
        sentences.append(
            f"In every round each client sent {last.traffic.up:,} bytes and received {last.traffic.down:,}. No "
            "client sent a row of its data."
        )
    if last and last.privacy:
        sentences.append(
            f"Differential privacy protects every client as a whole, with epsilon {last.privacy.epsilon:.2f} at "
            f"delta {last.privacy.delta:g}. Metrics of single clients are therefore not recorded."
        )
    return sentences


def _what_went_wrong(group: Group) -> list[str]:
    sentences = []
    for record in group.records:
        if not record.complete:
            sentences.append(
                f"The run {record.directory.name} is not finished: {record.rounds_done} of {record.run.rounds} "
                "rounds are done."
            )
        elif record.rounds_done < record.run.rounds:
            sentences.append(
                f"The run {record.directory.name} was stopped early, after {record.rounds_done} of "
                f"{record.run.rounds} rounds."
            )
    rejected = sum((record.times("rejected") for record in group.records), Counter[str]())
    missing = sum((record.times("missing") for record in group.records), Counter[str]())
    for times, words in ((rejected, "Submissions were rejected"), (missing, "No answer came in time")):
        if times:
            listed = ", ".join(f"{name} ({counted(rounds, 'round')})" for name, rounds in times.items())
            sentences.append(f"{words}: {listed}.")
    return [*sentences, *losses_in_words(group)]


def _how_sure(group: Group) -> str:
    if len(group.records) == 1:
        return f"This is one seed ({group.seeds[0]}). It cannot show how much of the result is luck."
    listed = f"{len(group.seeds)} seeds ({', '.join(map(str, group.seeds))})"
    return f"Figures are means over {listed}; {how_sure([len(group.records)])}."


# --- Who won the vote ---


def vote_summary(group: Group, votes: Sequence[Votes]) -> list[str]:
    """Who won the vote where, which clients were imitated, which were led, and who counted at the server."""
    winners = {client_votes.client: winner(client_votes) for client_votes in votes}
    sentences = [
        text.format(clients=in_a_row([client for client, won in winners.items() if won == voter]))
        for voter, text in _OUTCOMES.items()
        if voter in winners.values()
    ]
    return [*_at_the_server(group), *sentences, *_extremes(votes), *_imitation(group, votes)]


_OUTCOMES = {
    "behaviour": (
        "Trusting their data: at {clients} the logged action won most often. The client's critics value it above "
        "the actions of both policies."
    ),
    "global": (
        "Led: at {clients} the global policy's action won most often. The client's critics value what the others "
        "learned above the client's own data and its own policy."
    ),
    "local": (
        "On their own: at {clients} the client's own policy won most often, ahead of its data and of the global "
        "policy. This is the opinion of its own critics and does not say how well it plays."
    ),
    None: "Undecided: at {clients} no candidate was clearly ahead.",
}


def winner(votes: Votes) -> str | None:
    """The candidate with most votes over the last fifth of the run; None if it is not clearly ahead."""
    (best, most), (_, second) = sorted(
        ((voter, votes.late(voter)) for voter in votes.shares), key=lambda pair: -pair[1]
    )[:2]
    return best if most - second >= NOTICEABLE else None


def vote_in_words(votes: Votes) -> str:
    """One client's vote: the shares at the end, and what changed since the beginning."""
    order = sorted(votes.shares, key=lambda voter: -votes.late(voter))
    shares = ", ".join(f"{VOTER_WORDS[voter]} {percent(votes.late(voter))}" for voter in order)
    moved = max(order, key=lambda voter: abs(votes.late(voter) - votes.early(voter)))
    change = votes.late(moved) - votes.early(moved)
    if abs(change) < NOTICEABLE:
        return f"{shares}; about as at the start"
    direction = "up" if change > 0 else "down"
    return f"{shares}; {VOTER_WORDS[moved]} is {direction} from {percent(votes.early(moved))} at the start"


def _extremes(votes: Sequence[Votes]) -> list[str]:
    """Where the data and the global policy were trusted most and least, if clients differ."""
    sentences = []
    for voter, words in (("behaviour", "The data was trusted"), ("global", "The global policy led")):
        order = sorted(votes, key=lambda client: -client.late(voter))
        most, least = order[0], order[-1]
        if most.late(voter) - least.late(voter) >= NOTICEABLE:
            sentences.append(
                f"{words} most at {most.client} ({percent(most.late(voter))} of the votes) and least at "
                f"{least.client} ({percent(least.late(voter))})."
            )
    return sentences


def _imitation(group: Group, votes: Sequence[Votes]) -> list[str]:
    settings = group.first.config.settings
    if settings.get("imitate") == "vote":
        return [
            "Every client's policy imitates the action that wins the vote: a led client follows the global policy."
        ]
    weights = {client.client: client.late_weight for client in votes if client.late_weight is not None}
    if not weights or not settings.get("awr", True):
        return []
    listed = ", ".join(f"{client} {weight:.2f}" for client, weight in weights.items())
    return [
        "Every client's policy imitates its own data, also where the global policy wins. Such a client learns from "
        f"the others through the broadcast and its critics. Mean weight of imitation (1 is full weight): {listed}."
    ]


HARDLY = 0.5  # of an even share: a client with less hardly counts


def _at_the_server(group: Group) -> list[str]:
    shares = group.first.server_weights
    if shares is None:
        return []
    listed = ", ".join(f"{client} {percent(share)}" for client, share in shares.items())
    seed = f" (seed {group.first.seed})" if len(group.records) > 1 else ""
    sentences = [f"The server's weights in the last round{seed}: {listed}."]
    counted_in = [client for client, share in shares.items() if share >= HARDLY / len(shares)]
    left_out = [client for client in shares if client not in counted_in]
    if left_out:
        sentences.append(
            f"Imitated: nearly all of the shared policy comes from {in_a_row(counted_in)}; {in_a_row(left_out)} "
            "hardly counted."
        )
    return sentences


# --- Words ---


def _place(value: float, other: float) -> str:
    return "above" if value > other else "below" if value < other else "level with"


def _base_name(data: str) -> str:
    """A quality as it is, a file without its folders."""
    return Path(data).name
