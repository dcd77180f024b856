"""What holds, on random MDPs; what does not, on its smallest counter-example with the margin worked out by hand."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fova.paper.theory import conservatism, convergence, heterogeneity, improvement, projection, returns, safety
from fova.paper.theory.case import Case, random_case
from fova.paper.theory.statement import Sides, Statement, Verdict, judge, worst
from fova.paper.theory.table import TOPICS

ALL = [statement for group in TOPICS.values() for statement in group]
QUICK_TOPICS = [topic for topic in TOPICS if topic != "Convergence"]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any small federation; shrinks towards two states, two actions and one client."""
    return random_case(
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        states=draw(st.integers(2, 5)),
        actions=draw(st.integers(2, 3)),
        clients=draw(st.integers(1, 3)),
        discount=draw(st.floats(0.05, 0.95)),
    )


def _claimed_to_hold(statement: Statement) -> bool:
    return statement.about == "every world" and (statement.kind == "instead" or statement.counter_example is None)


@pytest.mark.parametrize("topic", QUICK_TOPICS)
@settings(max_examples=12, deadline=None)
@given(case=cases())
def test_what_the_table_calls_true_holds(topic: str, case: Case) -> None:
    for statement in filter(_claimed_to_hold, TOPICS[topic]):
        sides = statement.check(case)
        assert sides.holds, f"{statement.label}: {statement.claim}: {sides}"


@settings(max_examples=12, deadline=None)
@given(case=cases())
def test_continuity_and_the_policy_set(case: Case) -> None:
    for statement in filter(_claimed_to_hold, convergence.STATEMENTS):
        if statement.every == 1:
            assert statement.check(case).holds, statement.claim


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(case=cases())
def test_the_loop_of_one_client_rests_within_lambda_of_the_best(case: Case) -> None:
    assert convergence.rest_is_near_optimal(case).holds


@pytest.mark.parametrize("statement", [s for s in ALL if s.counter_example], ids=lambda s: s.check.__name__)
def test_every_counter_example_breaks_its_statement(statement: Statement) -> None:
    assert statement.counter_example is not None
    assert not statement.check(statement.counter_example()).holds


TARGET = math.e / (1 + math.e)
KL_OF_THE_STEP = 0.5 * TARGET * math.log(TARGET) + (1 - TARGET) * math.log(1 + math.sqrt(TARGET))

# Margins worked out by hand; the worlds are described where they are built.
BY_HAND: list[tuple[Callable[[Case], Sides], Callable[[], Case], float]] = [
    # The penalty swings between +1 and -1.
    (conservatism.moving_vote_settles, conservatism.flip_flop, -2.0),
    # The voted value is alpha/(1 - gamma) = 2 where the truth is 0.
    (conservatism.moving_vote_underestimates, conservatism.flip_flop, -2.0),
    # (1 + alpha)/(1 - gamma) = 4 against r_max/(1 - gamma) = 2.
    (conservatism.q_is_bounded_by_the_largest_return, conservatism.flip_flop_of_the_largest_reward, -2.0),
    # alpha - gamma alpha D/(1 - gamma) with D = 1.
    (conservatism.q_underestimates_everywhere, conservatism.raised_runner_up, -(0.25 - 0.25 * 0.25 / 0.75)),
    # Q_hat of the bad action is gamma V^behaviour = 0.5 * 1.98; always taking it is worth 0.
    (conservatism.every_candidate_is_underestimated, conservatism.vote_for_behaviour, -0.99),
    # W = (20, 4), so the gap is gamma/2 * 16 = 4; the bound is 2 gamma * 2 * 1 = 2.
    (conservatism.bellman_gap_of_the_moving_vote, conservatism.flip_flop_beside_a_rest, -2.0),
    # V_0 = 18/13 in the estimate; gap 0.5 * (V_0 + 6)/8, bound 2 * 0.5 * 2 / 8.
    (conservatism.bellman_gap_entrywise, conservatism.spread_error, 0.25 - 0.5 * (18 / 13 + 6) / 8),
    # Both sides lose the same to alpha; what is left is C/sqrt(100)/(1 - gamma) against 1/(1 - gamma).
    (conservatism.underestimates_with_sampling_error, conservatism.lucky_rare_action, 0.2 - 2.0),
    # alpha = (1/10)/99 takes away 0.1 of the lucky 1.
    (conservatism.printed_alpha_limit_suffices, conservatism.lucky_rare_action, -1.8),
    # |2/3 - 2| = 4/3 against gamma/(1 - gamma) d_0 |shift| = 2/3 * 4/3.
    (returns.simulation_lemma_as_quoted, returns.imagined_exit, 8 / 9 - 4 / 3),
    # 2 - 2/3 against 2 gamma/(1 - gamma)^2 / 100.
    (returns.return_with_whole_dataset, returns.hidden_exit, 0.04 - 4 / 3),
    (returns.return_for_every_mdp, returns.known_world, -4.0),
    (returns.return_with_estimated_start, returns.unlucky_start, -2.0),
    # A gain of 1 less two penalties of 0.08, where the truth is a loss of 1/3.
    (returns.transfer_as_printed, returns.hidden_exit_against_staying, -1 / 3 - 0.84),
    # Two states, weights (1, 1/e) and (1, 1): the likeliest share against the mean of the two targets.
    (
        projection.projection_of_a_shared_policy,
        projection.two_kinds_of_state,
        -(0.5 / (1 + math.exp(-1)) + 0.25 - 0.5 / (0.75 + 0.25 * math.exp(-1))),
    ),
    # nu = 0.1 * 1 + 0.9 * 20 against nu = 1; the bound is 4 * 23 * 2/23.
    (improvement.nu_between_policies, improvement.rare_crossroads, 8.0 - 17.1),
    # Half of what the good client earns alone (3/2) and of what the poor one does: large beta keeps both habits.
    (improvement.mean_target_improves, lambda: replace(heterogeneity.different_habits(), beta=1e7), 1.0 - 1.5),
    # Q = (2, 1): t = e/(1 + e) is the target's first entry and sqrt(t) that of pi_k.
    (improvement.step_from_target_by_action, improvement.data_of_elsewhere, -0.998 * KL_OF_THE_STEP),
    # A_1 = (3/4, -1/4), A_2 = (1/4, -3/4): the formula gives 1/4, the norm is sqrt(1/8).
    (heterogeneity.level_as_in_the_continuity_proof, heterogeneity.different_habits, -(math.sqrt(1 / 8) - 0.25)),
    # The good client loses 1/2 by the poor one's habit; averaged 1/4.
    (heterogeneity.advantage_bound_with_own_behaviours, heterogeneity.different_habits, -0.25),
    # State 1 a third of the time, won by one client and lost by the other.
    (heterogeneity.advantage_bound_as_printed, heterogeneity.swapped_paths, -1 / 3),
    # Half way H = -A_1/2 with ||A_1|| = 1; all the way H = 0.
    (heterogeneity.level_grows, heterogeneity.mirror_worlds, -0.5),
    # Gain -0.5/0.9; bound 0.49/0.9 - 2 * 0.1 * 0.99/0.81 * 0.5.
    (
        heterogeneity.aggregate_with_behaviour_base,
        heterogeneity.better_server,
        -0.5 / 0.9 - 0.49 / 0.9 + 0.099 / 0.81,
    ),
    (safety.large_parameters_are_safe, safety.good_server_poor_data, -0.99 / 0.9),
    # l = 3, h = 8 sqrt(1/8), sigma = 16.
    (
        safety.only_beta_damps_mismatch,
        heterogeneity.different_habits,
        -((35 + 8 * math.sqrt(1 / 8)) ** 2 - 35**2) / 8,
    ),
    # The same with the second term's single sigma, and l TV(behaviour, pibar) = 3/4 that nothing damps.
    (
        safety.only_lambda_damps_closeness,
        heterogeneity.different_habits,
        -((19 + 8 * math.sqrt(1 / 8)) ** 2 - (16 + 8 * math.sqrt(1 / 8)) ** 2) / 8 - 0.75,
    ),
    # (1, 0) clipped at 1/4 is (1, 1/4); divided by 5/4 the second entry is 1/5.
    (convergence.clipping_stays_in_the_set, convergence.sure_policy, -0.05),
    # The return swings between 0 and 1/(1 - gamma).
    (convergence.loop_comes_to_rest, convergence.endless_dispute, 1e-5 - 2.0),
]


@pytest.mark.parametrize(("check", "example", "margin"), BY_HAND, ids=lambda v: getattr(v, "__name__", ""))
def test_counter_example_by_hand(
    check: Callable[[Case], Sides], example: Callable[[], Case], margin: float
) -> None:
    assert check(example()).margin == pytest.approx(margin, abs=1e-6)


def test_no_beta_improves_on_misleading_data() -> None:
    """Each beta moves towards the action that looked better, so the best that can be done is not to move."""
    assert -1e-4 < improvement.some_beta_improves(improvement.misleading_data()).margin < 0


def test_met_limits_do_not_keep_the_server_from_falling() -> None:
    sides = safety.met_limits_improve_the_server(safety.promising_limits())
    assert sides.left > 0.1  # the lemma promises an improvement
    assert sides.right < -0.05  # the server's return falls


def test_the_limits_for_lambda_and_beta_return_the_server_to_poor_data() -> None:
    """0.01/0.9 in place of 1/0.9, and f_k is no smaller than -B: both steps of the proof break on one world."""
    case = safety.good_server_poor_data()
    step1, step2 = safety.round_gains_the_mean(case), safety.round_loses_little_in_the_mean(case)
    assert step1.right == pytest.approx(-0.99 / 0.9, abs=1e-3)
    assert step2.left == pytest.approx(0.99 / 0.9, abs=1e-3)
    closeness = 0.198 / 0.81  # nothing but l TV(behaviour, pibar) is left of f_k and of B
    assert step1.left == pytest.approx(-closeness * 0.99, abs=1e-3)
    assert step2.right == pytest.approx(closeness * 0.99, abs=1e-3)


def test_a_strong_pull_leaves_no_choice() -> None:
    """pi_k is all but pibar*_k = (p, q): p to go there, then q to do well. J = 0.9 p (2 q - 1), behaviour's too."""
    case = improvement.praised_detour()
    target = case.by_action_pair[0]
    expected = 0.9 * target[0, 0] * (2 * target[1, 0] - 1)
    assert improvement.first_client_improves_by_action(case).left == pytest.approx(
        0.9 * 0.5 * (2 * 0.01 - 1) - expected, abs=0.01
    )


def test_the_dispute_of_two_habits_lasts_however_large_lambda_is() -> None:
    last = [
        np.diff(convergence._returns_of_the_loop(replace(convergence.lasting_dispute(), lam=lam, beta=lam), 60))[
            -2:
        ]
        for lam in (1e3, 1e4)
    ]
    for swing in last:
        assert swing[0] == pytest.approx(-swing[1])
    assert abs(last[0][0]) == pytest.approx(10 * abs(last[1][0]), rel=0.01)  # smaller, but it does not end


def test_the_habit_of_even_data_stays() -> None:
    """alpha -> 0: p = (1/2)/p, so the return is sqrt(1/2)/(1 - gamma) where 2 could be had."""
    assert convergence.rest_is_optimal(convergence.habit()).margin == pytest.approx(math.sqrt(2) - 2, abs=0.01)


def test_identical_clients_have_no_heterogeneity() -> None:
    client = random_case(np.random.default_rng(0)).client
    assert heterogeneity.heterogeneity_level([client.model] * 4, [client.behaviour] * 4, 2) < 1e-12


def test_corrected_alpha_limit_is_tight_on_the_lucky_action() -> None:
    """At the limit V_hat = V exactly: 1 = alpha * 99."""
    case = conservatism.lucky_rare_action()
    assert conservatism.alpha_limit(case) == pytest.approx(1 / 99)
    assert conservatism.corrected_alpha_limit_suffices(case).margin == pytest.approx(0.0, abs=1e-12)


def test_parts_of_the_penalty_by_hand() -> None:
    """One state, gamma = 0.1: l = 2 * 0.1 * 0.99/0.81, h = 0, sigma = 2e-6/(0.01 * 0.9), no sampling error."""
    case = safety.good_server_poor_data()
    parts = safety.penalty(case, case.server, lam=2.0, beta=4.0)
    closeness, sigma = 0.198 / 0.81, 2e-6 / 0.009
    assert parts.sampling == 0.0
    assert parts.drift == pytest.approx(closeness * 0.99)
    assert parts.lam_part == pytest.approx((closeness + 2 * sigma) ** 2 / 16)
    assert parts.beta_part == pytest.approx((closeness + sigma) ** 2 / 32)
    assert parts.total == pytest.approx(parts.drift + parts.lam_part + parts.beta_part)


# --- Verdicts ---------------------------------------------------------------------------------------------


def _verdict(sides: list[Sides], **changes: object) -> Verdict:
    statement = Statement("label", "claim", check=lambda case: Sides(0.0, 1.0), **changes)  # type: ignore[arg-type]
    return judge("topic", statement, sides, {"step": True}).verdict


def test_verdicts_follow_from_the_margins() -> None:
    fine, broken, empty = Sides(0.0, 1.0), Sides(1.0, 0.0), Sides(0.0, 5.0, trivial=5.0)
    assert _verdict([fine, fine]) is Verdict.HOLDS
    assert _verdict([fine, broken]) is Verdict.FALSE
    assert _verdict([fine, broken], kind="reading") is Verdict.FAILS
    assert _verdict([empty]) is Verdict.SAYS_NOTHING
    assert _verdict([fine], rests_on=("step",)) is Verdict.PROOF_FAILS
    assert _verdict([broken, fine], about="some world") is Verdict.SHOWN
    assert _verdict([broken], about="some world") is Verdict.NOT_SHOWN


def test_worst_finds_the_smallest_margin() -> None:
    assert worst([0.0, 3.0], [1.0, 2.0]) == Sides(3.0, 2.0)
