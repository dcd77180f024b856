import pytest

from fova.evaluation import metrics
from fova.evaluation.metrics import Evaluation, Played


def evaluation(number, server, **clients):
    return Evaluation(
        number, 10 * number, Played(server, 0.0, None), {n: Played(v, 0.0, None) for n, v in clients.items()}
    )


def test_the_best_of_training_is_the_highest_return_on_the_way():
    along = [evaluation(1, 3.0), evaluation(2, 8.0), evaluation(3, 5.0)]
    assert metrics.best_of_training(along).round == 2


def test_the_final_evaluation_is_the_last_of_those_during_training():
    along = [evaluation(1, 3.0, a=1.0), evaluation(2, 8.0, a=2.0)]
    assert metrics.with_final(along, evaluation(3, 5.0, a=4.0)) == [*along, evaluation(3, 5.0, a=4.0)]
    # It has more episodes than the evaluation of the same round, which it replaces.
    assert metrics.with_final(along, evaluation(2, 7.5, a=2.5)) == [along[0], evaluation(2, 7.5, a=2.5)]


def test_without_evaluations_during_training_there_is_no_curve():
    assert metrics.with_final([], evaluation(3, 5.0)) == []
    along = [evaluation(1, 3.0), evaluation(2, 8.0)]
    assert metrics.with_final(tuple(along), None) == along


def test_clients_that_were_played_at_the_end_only_are_no_curve():
    along = [evaluation(1, 3.0), evaluation(2, 8.0)]
    assert metrics.with_final(along, evaluation(3, 5.0, a=4.0)) == [*along, evaluation(3, 5.0)]
    once = [evaluation(1, 3.0), evaluation(2, 8.0, a=2.0)]
    assert metrics.with_final(once, evaluation(3, 5.0, a=4.0))[-1].clients["a"].mean_return == 4.0


def test_policies_are_compared_by_their_score_where_there_is_one():
    assert Played(250.0, 1.0, None).figure == 250.0
    assert Played(250.0, 1.0, 40.0).figure == 40.0
    assert Played(250.0, 1.0, 0.0).figure == 0.0


def test_server_and_clients():
    end = evaluation(3, 5.0, a=1.0, b=2.0, c=6.0)
    assert metrics.server_minus_mean_client(end) == pytest.approx(2.0)
    assert metrics.worst_client(end.clients) == ("a", Played(1.0, 0.0, None))


def test_per_and_bwt_by_hand():
    a = [[1.0, 0.0, 0.0], [2.0, 5.0, 0.0], [3.0, 4.0, 8.0]]
    assert metrics.average_performance(a) == pytest.approx((3 + 4 + 8) / 3)
    assert metrics.backward_transfer(a) == pytest.approx(((3 - 1) + (4 - 5)) / 2)
    assert metrics.backward_transfer([[1.0, 0.0], [4.0, 7.0]]) == 4 - 1


def test_what_clients_report_is_averaged_over_the_rounds_they_took_part_in():
    entries = [
        {"round": 0},
        {"round": 1, "clients": {"a": vote(0.2, 0.3, 0.5, 0.4)}},
        {"round": 2, "clients": {"a": vote(0.4, 0.1, 0.5, 0.2), "b": vote(1.0, 0.0, 0.0, 0.9)}},
    ]
    assert metrics.vote_shares(entries) == {
        "a": pytest.approx((0.3, 0.2, 0.5)),
        "b": pytest.approx((1.0, 0.0, 0.0)),
    }
    assert metrics.policy_distances(entries) == {"a": pytest.approx(0.3), "b": pytest.approx(0.9)}
    assert metrics.vote_shares([{"round": 1, "clients": {"a": {"critic_loss": 1.0}}}]) == {}


def vote(local, behaviour, everybody, distance):
    return {
        "vote_local": local,
        "vote_behaviour": behaviour,
        "vote_global": everybody,
        "policy_distance": distance,
    }
