"""A client's figures and those of the federation, worked out by hand for critics whose values are known."""

import dataclasses
import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_judge import constant

from fova.algorithms.base import ActorCritic
from fova.algorithms.base import replace as changed
from fova.data.normalise import Normaliser
from fova.data.transitions import Episode, from_episodes
from fova.errors import FovaError
from fova.evaluation.judging import client
from fova.evaluation.judging.client import Evidence, Fit, Scale, figures, policy_actions, rows_to_fit, told
from fova.evaluation.judging.intervals import NORMAL_QUANTILE, of_values
from fova.evaluation.judging.judge import JudgeSettings, Promise, federation_figures, judge, scale_of
from fova.evaluation.judging.verdict import Figures
from fova.federation.privacy import Privacy
from fova.networks import make_actor
from fova.policy import from_actor
from fova.spaces import Discrete, Space

HALF = 0.5  # the discount


class Linear(eqx.Module):
    """Two critics that say s + 2 a - 0.5 and s + 2 a + 0.5; with a discount of 1/2, Q is twice as much."""

    offsets: jax.Array

    def __call__(self, states, actions):
        assert states.shape == actions.shape == (client.CHUNK, 1)  # one compilation for data of any size
        return states[:, 0] + 2 * actions[:, 0] + self.offsets[:, None]


def fit_of(policy, **scale):
    critics = Linear(jnp.array([-0.5, 0.5]))
    return Fit(policy, critics, Scale(Normaliser.identity(1), HALF, **scale))


def episode(states, actions, rewards, terminated):
    columns = (np.asarray(values, np.float32) for values in (states, actions, rewards))
    states, actions, rewards = columns
    return Episode(states[:, None], actions[:, None], rewards, terminated)


@pytest.fixture
def judged():
    """An episode that ended after two steps, and one that was cut off after one."""
    return from_episodes([episode([1, 2, 3], [0.5, 0], [1, 2], True), episode([4, 5], [-0.5], [4], False)])


# The policy takes 0.5. Its Q is 2 (s + 1): 4 and 10 in the first states, less or more by 1 for the two critics.
VALUES = np.array([[3.0, 9.0], [5.0, 11.0]])
# The data earned 1 + 0.5 * 2, and 4 + 0.5 * 3.5: rewards of 7/3 in the mean, one end in three rows.
EARNED = np.array([2.0, 5.75])


def test_a_clients_figures_by_hand(judged):
    found = figures(fit_of(constant(0.5)), Evidence.of(judged, None))
    assert (found.episodes, found.rows) == (2, 3)
    assert found.data_value == pytest.approx(3.875)
    assert found.data_return == pytest.approx(3.5)
    assert found.value == pytest.approx(7.0, abs=1e-5)
    assert found.difference == pytest.approx(3.125, abs=1e-5)
    assert found.episode_error == pytest.approx(3.0, abs=1e-5)  # of 4 and 10
    assert found.fit_error == pytest.approx(np.sqrt(2), abs=1e-5)  # of 6 and 8
    assert found.difference_error == pytest.approx(1.125, abs=1e-5)  # of 2 and 4.25
    # Bellman errors: 1 + 6 / 2 - 4 = 0, then 2 - 4 = -2 at the end; 4 + 12 / 2 - 6 = 4 before the cut
    assert found.bellman_error == pytest.approx(0.5 * np.sqrt((0 + 4 + 16) / 3), abs=1e-5)
    assert found.bias == pytest.approx((0 - 0.5 * 2 + 4) / 2, abs=1e-5)
    value, difference = of_values(VALUES, 1.5), of_values(VALUES - EARNED, 1.5)
    assert (found.low, found.high) == pytest.approx((value.low, value.high), abs=1e-4)
    assert (found.difference_low, found.difference_high) == pytest.approx(
        (difference.low, difference.high), abs=1e-4
    )
    assert found.effective_episodes is None  # continuous actions have no ratios
    assert found.importance_sampling is None


def test_bellman_errors_come_from_the_other_episodes_where_there_are_some(judged):
    other = from_episodes([episode([0, 1], [0.5], [-3], True)])  # -3 - 2 (0 + 1) = -5
    found = figures(fit_of(constant(0.5)), Evidence.of(other, judged))
    assert found.bias == pytest.approx(-5.0, abs=1e-5)
    assert found.bellman_error == pytest.approx(2.5, abs=1e-5)
    wide = of_values(VALUES, 5.0)  # its size counts, not its sign
    assert (found.low, found.high) == pytest.approx((wide.low, wide.high), abs=1e-4)


def test_the_scale_returns_to_the_units_of_the_log():
    fit = fit_of(constant(0.5), unit=10.0, level=3.0)
    # (2 + 2 * 0.25 -+ 0.5 + 3) * 10 / 0.5
    np.testing.assert_allclose(fit.values(np.array([[2.0]]), np.array([[0.25]])), [[100.0], [120.0]])
    assert fit.discount == HALF


def test_observations_are_normalised_before_critics_see_them():
    scale = Scale(Normaliser(np.array([1.0], np.float32), np.array([2.0], np.float32)), HALF)
    fit = Fit(constant(0.5), Linear(jnp.zeros(1)), scale)
    np.testing.assert_allclose(fit.policy_values(np.array([[5.0]])), [[6.0]], rtol=1e-5)  # 2 ((5 - 1) / 2 + 1)


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 9])
def test_chunks_change_nothing(rows, monkeypatch):
    monkeypatch.setattr(client, "CHUNK", 4)
    states = np.arange(float(rows))[:, None]
    values = fit_of(constant(0.5)).values(states, np.zeros((rows, 1)))
    np.testing.assert_allclose(values, 2 * (states.T + np.array([[-0.5], [0.5]])))


@pytest.mark.parametrize(("most", "rows"), [(1, 2), (2, 2), (3, 3), (5, 3), (6, 6), (99, 6)])
def test_the_first_whole_episodes(most, rows):
    steps = [episode([0] * (n + 1), [0] * n, [n] * n, True) for n in (2, 1, 3)]
    kept = client._first_episodes(from_episodes(steps), most)
    assert kept.rewards.tolist() == [2, 2, 1, 3, 3, 3][:rows]


# --- Support ---


def test_how_much_of_the_policy_is_inside_the_other_episodes():
    def taking(action):
        return from_episodes([episode([1, 2, 3], [action, action], [0, 0], True)] * 2)

    fit = fit_of(constant(0.5))
    assert figures(fit, Evidence.of(taking(0.5), taking(0.5))).inside == 1.0
    assert figures(fit, Evidence.of(taking(-0.9), taking(-0.9))).inside == 0.0
    # without other episodes, one half of them stands for the other
    assert figures(fit, Evidence.of(taking(0.5), None)).inside == 1.0
    assert figures(fit, Evidence.of(taking(-0.9), None)).inside == 0.0
    single = from_episodes([episode([1, 2], [0.5], [0], True)])
    assert figures(fit, Evidence.of(single, None)).inside is None


# --- Discrete actions ---


def takes_one():
    """The policy that always takes action 1 of 2."""
    space = Space(1, Discrete.numbered(2))
    actor = make_actor(jax.random.key(0), space, "clipped", (4,))
    last = changed(actor.net.last, weight=jnp.zeros((4, 2)), bias=jnp.array([0.0, 9.0]))
    return from_actor(changed(actor, net=changed(actor.net, last=last)), Normaliser.identity(1), space)


def test_ratios_by_hand():
    """Action 1 was rare in the other episodes: not seen near state 0, twice among 50 neighbours of state 100."""
    usual, rare = episode([0, 0], [0], [0], True), episode([100, 100], [1], [0], True)
    other = from_episodes([usual] * 98 + [rare] * 2)
    near, far = episode([0, 1], [1], [1], False), episode([100, 50], [1], [0], False)
    another = episode([0, 1], [0], [7], False)  # the policy takes 1: this episode does not count
    found = figures(fit_of(takes_one()), Evidence.of(other, from_episodes([near, far, another])))
    # 0.02 / 51 is less than the least probability, 1 / 1000; the other is (2 + 0.02) / 51
    ratios = np.array([1000.0, 51 / 2.02, 0.0])
    weights = ratios / ratios.sum()
    assert found.effective_episodes == pytest.approx(ratios.sum() ** 2 / np.square(ratios).sum(), rel=1e-6)
    tails = 0.5 * 2 * (np.array([1.0, 50.0, 1.0]) + 2)  # gamma Q(s', 1)
    rewards = np.array([1.0, 0.0, 7.0])
    assert found.importance_sampling == pytest.approx(weights @ (rewards + tails), rel=1e-5)
    q, v = np.array([4.0, 204.0, 0.0]), np.array([4.0, 204.0, 4.0])
    robust = weights @ (rewards - q + tails) + v.mean()
    assert found.doubly_robust == pytest.approx(robust, rel=1e-5)
    assert found.importance_low <= found.importance_sampling <= found.importance_high
    assert found.doubly_robust_low <= found.doubly_robust <= found.doubly_robust_high


def test_discrete_actions_are_codes():
    assert policy_actions(takes_one(), np.zeros((3, 1), np.float32)).tolist() == [[1.0]] * 3


# --- What a fit starts from ---


def test_rows_to_fit_are_in_the_terms_of_the_critics():
    normaliser = Normaliser(np.array([1.0], np.float32), np.array([2.0], np.float32))
    scale = Scale(normaliser, HALF, unit=2.0, level=0.5)
    rows = rows_to_fit(constant(0.5), scale, from_episodes([episode([1, 3, 7], [0.25, 0], [3, 3], True)]))
    np.testing.assert_allclose(rows.next_observations[:, 0], [1.0, 3.0])
    np.testing.assert_allclose(rows.rewards, [1.0, 0.5])  # 3 / 2 - 0.5, at the end 0.5 less
    np.testing.assert_allclose(rows.actions[:, 0], [0.25, 0.0])


def test_the_scale_from_what_clients_tell():
    def paying(reward):
        return told(from_episodes([episode([0, 0, 0], [0, 0], [reward, reward], False)]))

    scale = scale_of(constant(0.5), {name: paying(r) for name, r in {"a": 1, "b": 3, "c": 8}.items()}, HALF)
    assert scale.level * scale.unit == pytest.approx(3.0)  # the median of what a step is worth
    assert (scale.lowest, scale.highest) == (1.0, 8.0)
    assert scale.discount == HALF
    assert paying(1).observations is None  # the policy's own normaliser serves


def test_a_scale_without_limits_has_none():
    scale = Scale(Normaliser.identity(1), HALF)
    assert (scale.unit, scale.level, scale.lowest, scale.highest) == (1.0, 0.0, -1e30, 1e30)


# --- The federation ---


def reported(**changes):
    plain = Figures(
        episodes=1, rows=10, data_value=1.0, data_return=2.0, value=2.0, low=0.0, high=0.0, difference=1.0,
        difference_low=0.0, difference_high=0.0, bellman_error=1.0, bias=0.4, episode_error=0.4, fit_error=0.1,
        difference_error=0.8, inside=0.5, effective_episodes=3.0,
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


OTHER = {
    "episodes": 3, "rows": 30, "data_value": 5.0, "data_return": 6.0, "value": 6.0, "difference": 5.0,
    "bellman_error": 3.0, "bias": -0.8, "episode_error": 0.8, "fit_error": 0.3, "difference_error": 0.4,
    "inside": 0.9, "effective_episodes": 4.0,
}  # fmt: skip


def test_the_federations_figures_by_hand():
    found = federation_figures([reported(), reported(**OTHER)])
    assert (found.episodes, found.rows) == (4, 40)
    assert (found.data_value, found.data_return) == pytest.approx((4.0, 5.0))  # shares 1/4 and 3/4
    assert (found.value, found.difference) == pytest.approx((5.0, 4.0))
    assert found.bellman_error == pytest.approx(np.sqrt((10 * 1 + 30 * 9) / 40))
    assert found.bias == pytest.approx(0.1 - 0.6)
    assert found.episode_error == pytest.approx(np.hypot(0.1, 0.6))
    assert found.difference_error == pytest.approx(np.hypot(0.2, 0.3))
    assert found.fit_error == pytest.approx(0.25)
    assert found.inside == pytest.approx(0.8)
    assert found.effective_episodes == 7.0
    # opposite errors do not cancel: the allowance is 0.1 + 0.6
    reach = NORMAL_QUANTILE * np.hypot(np.hypot(0.1, 0.6), 0.25) + 0.7
    assert (found.low, found.high) == pytest.approx((5.0 - reach, 5.0 + reach))
    reach = NORMAL_QUANTILE * np.hypot(np.hypot(0.2, 0.3), 0.25) + 0.7
    assert (found.difference_low, found.difference_high) == pytest.approx((4.0 - reach, 4.0 + reach))


def test_what_a_client_does_not_know_is_left_out_or_unknown():
    found = federation_figures([reported(inside=None, effective_episodes=None), reported(**OTHER)])
    assert found.inside == 0.9
    assert found.effective_episodes is None
    assert federation_figures([reported(inside=None)]).inside is None


# --- Settings ---


def test_the_default_settings():
    assert JudgeSettings() == JudgeSettings(
        rounds=60, steps=100, critics=4, hidden=(64, 64), batch_size=128, critic_lr=1e-3, huber=1.0, seed=0,
        aggregation="algorithm",
    )  # fmt: skip


def test_the_default_discount_is_that_of_training():
    assert inspect.signature(judge).parameters["discount"].default == ActorCritic.discount == 0.99


def test_the_fit_takes_its_settings():
    settings = JudgeSettings(steps=7, critics=3, hidden=(5,), batch_size=9, critic_lr=0.1, huber=2.0, seed=8)
    scale = Scale(Normaliser.identity(1), HALF, unit=2.0, level=0.5, lowest=-4.0, highest=8.0)
    fqe = settings.algorithm(scale)
    assert (fqe.discount, fqe.lowest, fqe.highest) == (HALF, -2.5, 3.5)
    assert (fqe.batch_size, fqe.critic_lr, fqe.hidden, fqe.critics, fqe.huber) == (9, 0.1, (5,), 3, 2.0)
    rounds = settings.round_settings()
    assert (rounds.local_steps, rounds.seed, rounds.privacy) == (21, 8, None)  # 7 steps of each of 3 critics


def test_a_robust_run_is_judged_robustly_unless_another_way_is_chosen():
    assert JudgeSettings().combining_like("krum").aggregation == "krum"
    assert JudgeSettings().combining_like("size").aggregation == "algorithm"
    assert JudgeSettings(aggregation="median").combining_like("krum").aggregation == "median"


def test_under_privacy_every_client_counts_the_same():
    private = Promise(2.0, Privacy("server", clip=1.0, noise=1.0, delta=1e-5, clients=3))
    assert private.settings(JudgeSettings()).aggregation == "uniform"
    assert private.settings(JudgeSettings(aggregation="uniform")).aggregation == "uniform"
    with pytest.raises(FovaError, match="aggregation is size, but only the plain mean keeps the promise"):
        private.settings(JudgeSettings(aggregation="size"))
    assert Promise(2.0).settings(JudgeSettings(aggregation="size")).aggregation == "size"
    scale = private.scale(constant(0.5), HALF)
    assert (scale.unit, scale.level, scale.discount) == (2.0, 0.0, HALF)
