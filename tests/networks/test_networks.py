import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from fova.networks import (
    LOG_STD_RANGE,
    MLP,
    Categorical,
    Clipped,
    DiscreteTwinCritic,
    GaussianActor,
    GaussianForm,
    LayerNorm,
    Linear,
    Point,
    Squashed,
    TwinCritic,
    distance,
    make_actor,
    make_critic,
    normalised,
    pick,
    polyak,
    taken,
)
from fova.spaces import Discrete, Space

SPACE = Space.unit(3, 2)


def column(*values):
    return jnp.array(values)[:, None]


# --- Distributions ---


def test_squashed_density_agrees_with_scipy_by_change_of_variables():
    mean, log_std, action = 0.3, -0.5, np.array([-0.9, 0.0, 0.7])
    ours = Squashed(jnp.full((3, 1), mean), jnp.full((3, 1), log_std)).log_prob(jnp.array(action)[:, None])
    theirs = stats.norm(mean, np.exp(log_std)).logpdf(np.arctanh(action)) - np.log(1 - action**2)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_an_offset_in_the_squashed_density_by_hand():
    # at a = 0: log N(0) - log(1 + 0.5); at the bound arctanh is taken 1e-6 inside, and 1 - a^2 is 0
    ours = Squashed(column(0.0, 0.0), column(0.0, 0.0), slope_offset=0.5).log_prob(column(0.0, 1.0))
    bound = np.arctanh(np.float64(np.float32(1 - 1e-6)))
    expected = [stats.norm.logpdf(0) - np.log(1.5), stats.norm.logpdf(bound) - np.log(0.5)]
    np.testing.assert_allclose(ours, expected, rtol=1e-4)
    sampled, density = Squashed(column(0.3), column(-0.5), slope_offset=0.5).sample_with_log_prob(jax.random.key(0))
    exact = stats.norm(0.3, np.exp(-0.5)).logpdf(np.arctanh(sampled[0, 0]))
    np.testing.assert_allclose(density[0], exact - np.log(1.5 - sampled[0, 0] ** 2), rtol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_the_form_of_a_density_is_a_constant_of_compiled_programs(offset):
    policy = Squashed(column(0.3), column(-0.5), slope_offset=offset, saturation=0.01)
    compiled = jax.jit(lambda policy: policy.log_prob(column(0.999)))(policy)
    np.testing.assert_allclose(compiled, policy.log_prob(column(0.999)), rtol=1e-5)
    assert len(jax.tree.leaves(policy)) == 2


def test_how_near_to_the_bounds_a_squashed_density_is_taken():
    mean, log_std = column(0.0), column(0.0)
    for saturation in (1e-6, 1e-7):
        u = np.arctanh(np.float64(np.float32(1 - saturation)))
        expected = stats.norm.logpdf(u) - np.log(1 - np.tanh(u) ** 2)
        ours = Squashed(mean, log_std, saturation=saturation).log_prob(column(1.0))
        np.testing.assert_allclose(ours, expected, rtol=1e-4)


def test_a_trained_log_std_by_hand():
    form = GaussianForm(log_std_range=(-20.0, 2.0), trained_log_std=True)
    actor = make_actor(jax.random.key(0), SPACE, "squashed", (4,), form=form)
    np.testing.assert_array_equal(actor.log_std, [1.0, -1.0])
    output = jnp.array([[0.5, 0.5, 0.3, -30.0]])  # the means, then what gives the log-stds
    moved = eqx.tree_at(lambda it: it.log_std, actor, jnp.array([2.0, -1.0]))
    np.testing.assert_allclose(moved.distribution(output).log_std, [[2 * 0.3 - 1, -20.0]], rtol=1e-6)

    def log_std(scalars):
        return eqx.tree_at(lambda it: it.log_std, actor, scalars).distribution(output).log_std[0, 0]

    np.testing.assert_allclose(jax.grad(log_std)(jnp.array([2.0, -1.0])), [0.3, 1.0], rtol=1e-6)


def test_a_shared_std_by_hand():
    actor = make_actor(jax.random.key(0), SPACE, "clipped", (4,), form=GaussianForm(shared_std=True))
    np.testing.assert_array_equal(actor.log_std, [0.0, 0.0])
    actor = eqx.tree_at(lambda it: it.log_std, actor, jnp.array([-1.0, -9.0]))
    policy = actor.distribution(jnp.array([[0.5, -0.2], [0.0, 3.0]]))  # two states: the outputs are the means
    np.testing.assert_allclose(policy.mean, np.tanh([[0.5, -0.2], [0.0, 3.0]]), rtol=1e-6)
    np.testing.assert_array_equal(policy.log_std, [[-1.0, -5.0], [-1.0, -5.0]])  # -5 is the least

    def log_prob(log_std):
        moved = eqx.tree_at(lambda it: it.log_std, actor, log_std)
        return moved.distribution(jnp.array([[0.0, 0.0]])).log_prob(jnp.array([[0.5, 0.0]]))[0]

    # d/d log_std of log N(x; 0, std) = (x / std)^2 - 1, with std = e^-1 and x = 0.5, and std = 1 and x = 0
    gradient = jax.grad(log_prob)(jnp.array([-1.0, 0.0]))
    np.testing.assert_allclose(gradient, [0.25 * np.exp(2.0) - 1.0, -1.0], rtol=1e-5)


def test_clipped_density_is_the_gaussians_own():
    ours = Clipped(column(0.2, 0.2), column(-1.0, -1.0)).log_prob(column(0.5, 1.0))
    np.testing.assert_allclose(ours, stats.norm(0.2, np.exp(-1.0)).logpdf([0.5, 1.0]), rtol=1e-5)


@pytest.mark.parametrize("kind", [Squashed, Clipped])
@pytest.mark.parametrize("bound", [-1.0, 1.0])
def test_likelihood_and_its_gradient_are_finite_at_the_bounds(kind, bound):
    def likelihood(mean, log_std):
        return kind(mean, log_std).log_prob(jnp.full((1, 1), bound)).sum()

    value, gradients = jax.value_and_grad(likelihood, argnums=(0, 1))(jnp.zeros((1, 1)), jnp.full((1, 1), -5.0))
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() for g in gradients)


def test_a_saturated_action_swamps_the_squashed_likelihood_but_not_the_clipped():
    saturated, moderate = column(0.9999999), column(0.5)
    spread = jnp.full((1, 1), -1.0)
    squashed, clipped = Squashed(column(0.5), spread), Clipped(column(0.5), spread)
    assert float(squashed.log_prob(moderate)[0] - squashed.log_prob(saturated)[0]) > 100
    assert float(clipped.log_prob(moderate)[0] - clipped.log_prob(saturated)[0]) < 1


@pytest.mark.parametrize(("kind", "squash"), [(Squashed, np.tanh), (Clipped, lambda u: np.clip(u, -1.0, 1.0))])
def test_a_sample_is_the_mean_plus_the_noise_times_the_standard_deviation(kind, squash):
    key, log_std = jax.random.key(3), np.log([0.1, 0.5])
    noise = np.asarray(jax.random.normal(key, (4, 2)))
    sample = kind(jnp.full((4, 2), 0.2), jnp.tile(jnp.asarray(log_std), (4, 1))).sample(key)
    np.testing.assert_allclose(sample, squash(0.2 + noise * [0.1, 0.5]), rtol=1e-5)


@pytest.mark.parametrize("kind", [Squashed, Clipped])
def test_samples_stay_in_bounds_and_carry_their_own_density(kind):
    distribution = kind(jnp.zeros((500, 2)), jnp.full((500, 2), 0.5))
    action, log_prob = distribution.sample_with_log_prob(jax.random.key(0))
    assert float(jnp.abs(action).max()) <= 1.0
    inside = np.asarray(jnp.abs(action).max(axis=1) < 0.999)
    np.testing.assert_allclose(log_prob[inside], distribution.log_prob(action)[inside], rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(action, distribution.sample(jax.random.key(0)))


# --- Total variation ---


def test_distance_of_a_policy_to_itself_is_zero():
    policy = Clipped(jnp.zeros((50, 2)), jnp.zeros((50, 2)))
    assert float(distance(policy, policy)) == 0.0


@pytest.mark.parametrize("kind", [Squashed, Clipped])
@pytest.mark.parametrize("shift", [0.1, 0.5, 2.0])
def test_distance_estimates_the_total_variation_of_gaussians(kind, shift):
    rows, std = 20_000, 0.7
    log_std = jnp.full((rows, 1), jnp.log(std))
    estimate = distance(kind(jnp.zeros((rows, 1)), log_std), kind(jnp.full((rows, 1), shift), log_std))
    exact = 2 * ndtr(shift / (2 * std)) - 1
    assert float(estimate) == pytest.approx(exact, abs=0.01)


def test_distance_stays_in_range_for_policies_worlds_apart():
    near, far = (
        Clipped(jnp.zeros((5, 3)), jnp.full((5, 3), -5.0)),
        Clipped(jnp.ones((5, 3)), jnp.full((5, 3), -5.0)),
    )
    assert float(distance(near, far)) == pytest.approx(1.0)


def test_distance_of_deterministic_actions_is_half_the_mean_difference():
    assert float(distance(Point(column(-1.0, 0.0)), Point(column(1.0, 0.5)))) == pytest.approx(0.5 * (2 + 0.5) / 2)


# --- Networks ---


def test_layer_norm_by_hand():
    ours = LayerNorm(4)(jnp.array([[1.0, 2.0, 3.0, 6.0]]))
    # mean 3, variance (4 + 1 + 0 + 9) / 4 = 3.5
    np.testing.assert_allclose(ours, (np.array([[1, 2, 3, 6]]) - 3) / np.sqrt(3.5 + 1e-5), rtol=1e-5)


def test_layer_norm_of_nearly_equal_numbers_by_hand():
    """Variance 1e-6, to which 1e-5 is added."""
    np.testing.assert_allclose(
        LayerNorm(2)(jnp.array([[-1e-3, 1e-3]])), [[-1e-3 / 1.1e-5**0.5, 1e-3 / 1.1e-5**0.5]], rtol=1e-4
    )


def test_initialisations():
    orthogonal = Linear(jax.random.key(0), 6, 4, "orthogonal", gain=2.0)
    np.testing.assert_allclose(orthogonal.weight.T @ orthogonal.weight, 4.0 * np.eye(4), atol=1e-5)
    assert not orthogonal.bias.any()
    fan_in = Linear(jax.random.key(0), 25, 400, "fan_in", gain=1.0)
    assert 0.19 < float(jnp.abs(fan_in.weight).max()) <= 0.2
    assert 0.19 < float(jnp.abs(fan_in.bias).max()) <= 0.2
    with pytest.raises(ValueError, match="initialisation"):
        Linear(jax.random.key(0), 2, 2, "zeros", gain=1.0)


@pytest.mark.parametrize("kind", ["clipped", "squashed", "deterministic"])
def test_actors_give_bounded_actions_of_the_right_shape(kind):
    actor = make_actor(jax.random.key(0), SPACE, kind, (8, 8))
    action = actor(jnp.ones((5, 3)) * 1e3).mode()
    assert action.shape == (5, 2)
    assert float(jnp.abs(action).max()) <= 1.0


def test_the_range_of_a_log_std_by_hand():
    actor = make_actor(jax.random.key(0), SPACE, "squashed", (4,))
    policy = actor.distribution(jnp.array([[0.5, -0.5, 9.0, -9.0], [0.5, -0.5, 1.9, -4.9]]))
    np.testing.assert_allclose(policy.log_std, [[2.0, -5.0], [1.9, -4.9]], rtol=1e-6)
    np.testing.assert_allclose(policy.mode(), np.tanh([[0.5, -0.5]] * 2), rtol=1e-6)


def test_first_weights_and_layer_norm_unless_told_otherwise():
    """Orthogonal weights: gain sqrt(2) before a ReLU, 1 in the last layer of a critic, 0.01 in an actor's."""
    actor, critic = (
        make_actor(jax.random.key(0), SPACE, "squashed", (8, 8)),
        make_critic(jax.random.key(0), SPACE, (8, 8)),
    )
    assert not actor.net.norms
    assert not MLP(jax.random.key(0), 3, (8,), 2).norms
    assert len(critic.net.norms) == 2
    np.testing.assert_allclose(actor.net.layers[1].weight.T @ actor.net.layers[1].weight, 2 * np.eye(8), atol=1e-5)
    np.testing.assert_allclose(actor.net.last.weight.T @ actor.net.last.weight, 1e-4 * np.eye(4), atol=1e-8)
    np.testing.assert_allclose(np.square(critic.net.last.weight).sum(axis=(1, 2)), [1.0, 1.0], rtol=1e-5)
    assert {leaf.shape[-1] for leaf in (actor.net.last.weight, actor.net.last.bias)} == {4}
    weights = [layer.weight for layer in actor.net.layers[1:]] + [critic.net.layers[1].weight[0]]
    assert not np.allclose(*weights)


def shaken(tree, seed=7):
    """The tree with noise on every number, so that no two layers or norms are alike."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    return structure.unflatten([leaf + 0.5 * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys)])


@pytest.mark.parametrize("layer_norm", [False, True])
def test_critics_agree_with_numpy(layer_norm):
    critic = shaken(TwinCritic(jax.random.key(0), SPACE, (6, 5, 4), layer_norm))
    states, actions = (np.asarray(jax.random.normal(jax.random.key(i), (5, n))) for i, n in enumerate((3, 2)))
    expected = []
    for i in range(2):
        net, x = (
            jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i], np.float64), critic.net),
            np.hstack([states, actions]),
        )
        for n, layer in enumerate(net.layers):
            x = x @ layer.weight + layer.bias
            if layer_norm:
                unit = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
                x = unit * net.norms[n].scale + net.norms[n].shift
            x = np.maximum(x, 0.0)
        expected.append((x @ net.last.weight + net.last.bias)[:, 0])
    for found in (
        critic(states, actions),
        critic.of_many(states, actions[None])[:, 0],
        critic.paired(states, np.stack([actions, actions])),
        np.stack([critic.first(states, actions), expected[1]]),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_each_critic_scores_actions_of_its_own():
    critic = TwinCritic(jax.random.key(0), SPACE, (8, 8))
    states = jax.random.normal(jax.random.key(2), (5, 3))
    actions = jax.random.normal(jax.random.key(1), (2, 4, 5, 2))
    found = critic.paired(states, actions)
    assert found.shape == (2, 4, 5)
    for i in range(2):
        np.testing.assert_allclose(found[i], critic(states, actions[i])[i], rtol=1e-5, atol=1e-6)


def test_log_std_is_held_in_its_range():
    actor = make_actor(jax.random.key(0), SPACE, "clipped", (8,))
    assert isinstance(actor, GaussianActor)
    wild = jax.tree.map(lambda leaf: leaf * 1e4, actor)
    log_std = wild(jnp.ones((4, 3))).log_std
    assert float(log_std.min()) >= LOG_STD_RANGE[0]
    assert float(log_std.max()) <= LOG_STD_RANGE[1]


def test_twin_critics_score_a_stack_as_they_score_each():
    critic = TwinCritic(jax.random.key(0), SPACE, (8, 8))
    states, actions = jnp.ones((5, 3)), jax.random.normal(jax.random.key(1), (4, 5, 2))
    stacked = critic(states, actions)
    assert stacked.shape == (2, 4, 5)
    for candidate in range(4):
        np.testing.assert_allclose(stacked[:, candidate], critic(states, actions[candidate]), rtol=1e-5, atol=1e-6)
    assert float(jnp.abs(stacked[0] - stacked[1]).max()) > 1e-3, "the twins must differ"


ROW_MEANS = 4  # matrix products in two LayerNorms: with a column of equal numbers


def same_values_and_gradients(fresh, reused, *arguments):
    """Checks both, and returns the number of matrix products in each forward pass."""
    expected, found = (jax.value_and_grad(f, range(len(arguments)))(*arguments) for f in (fresh, reused))
    jax.tree.map(lambda e, f: np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-6), expected, found)
    return [str(jax.make_jaxpr(f)(*arguments)).count("dot_general") for f in (fresh, reused)]


def test_scored_candidates_give_the_critics_gradients_without_a_product():
    critic = TwinCritic(jax.random.key(0), SPACE, (8, 8))
    states, actions = jnp.ones((5, 3)), jax.random.normal(jax.random.key(1), (4, 5, 2))
    scored = critic.score(states, actions)
    np.testing.assert_array_equal(scored.q, critic(states, actions))
    # The first critic's winners differ from state to state, the second's winner is the first candidate.
    winner = jnp.array([[2, 1, 3, 0, 2], [0, 0, 0, 0, 0]])

    def objective(q_data, q_won, q_last):
        return jnp.sum(jnp.sin(q_data)) + jnp.sum(jnp.cos(q_won)) + jnp.sum(jnp.sinh(q_last))

    def fresh(critic):
        q = critic(states, actions)
        won = jnp.stack([member[w, jnp.arange(5)] for member, w in zip(q, winner)])
        return objective(q[:, 1], won, q[:, 3])

    def reused(critic):
        return objective(*scored.for_critic(critic, [1, winner, 3]))

    assert same_values_and_gradients(fresh, reused, critic) == [ROW_MEANS + 3, ROW_MEANS]


def test_many_actions_of_a_state_are_scored_as_each_is():
    critic = TwinCritic(jax.random.key(0), SPACE, (8, 8))
    states = jax.random.normal(jax.random.key(2), (5, 3))
    actions = jax.random.normal(jax.random.key(1), (4, 5, 2))

    def plain(critic):
        return jnp.sum(jnp.sin(critic(states, actions)))

    def shared(critic):
        return jnp.sum(jnp.sin(critic.of_many(states, actions)))

    np.testing.assert_allclose(critic.of_many(states, actions), critic(states, actions), rtol=1e-5, atol=1e-6)
    # one product more, because the first layer's is parted, but the states' part has one row for each state
    assert same_values_and_gradients(plain, shared, critic) == [ROW_MEANS + 3, ROW_MEANS + 4]


def test_the_first_critic_alone_multiplies_half_as_much():
    critic = TwinCritic(jax.random.key(0), SPACE, (8, 8), layer_norm=False)
    states, actions = jnp.ones((5, 3)), jax.random.normal(jax.random.key(1), (5, 2))

    def both(critic, action):
        return jnp.sum(jnp.sin(critic(states, action)[0]))

    def alone(critic, action):
        return jnp.sum(jnp.sin(critic.first(states, action)))

    def rows(function):
        equations = jax.make_jaxpr(function)(critic, actions).eqns
        return [eqn.outvars[0].aval.size // 8 for eqn in equations if eqn.primitive.name == "dot_general"][:2]

    assert same_values_and_gradients(both, alone, critic, actions) == [3, 3]
    assert (rows(both), rows(alone)) == ([10, 10], [5, 5])


def test_the_first_critic_of_discrete_actions_alone():
    critic = DiscreteTwinCritic(jax.random.key(0), Space(3, Discrete(("a", "b", "c", "d"))), (8, 8))
    states = jax.random.normal(jax.random.key(1), (5, 3))
    np.testing.assert_allclose(critic.first_of_every(states), critic.every(states)[0], rtol=1e-5)
    products = [line for line in str(jax.make_jaxpr(critic.first_of_every)(states)).splitlines() if "dot" in line]
    assert products
    assert not any("2,5" in line for line in products)


def test_a_scored_candidate_gives_the_actions_gradient_without_a_product():
    critic = TwinCritic(jax.random.key(0), SPACE, (8, 8))
    states, actions = jnp.ones((5, 3)), jax.random.normal(jax.random.key(1), (4, 5, 2))
    scored = critic.score(states, actions)

    def fresh(action):
        return jnp.sum(jnp.sin(critic(states, action)))

    def reused(action):
        return jnp.sum(jnp.sin(scored.for_action(2, action)))

    assert same_values_and_gradients(fresh, reused, actions[2]) == [ROW_MEANS + 3, ROW_MEANS]


@pytest.mark.parametrize("kind", ["clipped", "squashed"])
def test_a_finished_forward_pass_gives_the_actors_gradients_without_a_product(kind):
    actor = make_actor(jax.random.key(0), SPACE, kind, (8, 8), layer_norm=True)
    states, action = jax.random.normal(jax.random.key(1), (5, 3)), jnp.full((5, 2), 0.4)
    forward = actor.forward(states)
    np.testing.assert_array_equal(forward.policy.mode(), actor(states).mode())

    def fresh(actor):
        return jnp.sum(actor(states).log_prob(action))

    def reused(actor):
        return jnp.sum(forward.for_actor(actor).log_prob(action))

    assert same_values_and_gradients(fresh, reused, actor) == [ROW_MEANS + 3, ROW_MEANS]


def test_pick_takes_each_critics_winner():
    q = jnp.array([[[1.0], [4.0], [3.0]], [[5.0], [2.0], [3.0]]])
    assert pick(q, jnp.array([[1], [0]])).tolist() == [[4.0], [5.0]]
    actions = jnp.arange(12.0).reshape(2, 3, 1, 2)
    assert pick(actions, jnp.array([[0], [2]])).tolist() == [[[0.0, 1.0]], [[10.0, 11.0]]]


def test_layer_norm_and_its_gradient_agree_with_what_autodiff_makes_of_the_definition():
    keys = jax.random.split(jax.random.key(0), 4)
    x, slope = (3.0 + jax.random.normal(key, (5, 8)) for key in keys[:2])
    scale, shift = (jax.random.normal(key, (8,)) for key in keys[2:])

    def plain(x, scale, shift):
        centred = x - x.mean(axis=1, keepdims=True)
        return centred / jnp.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * scale + shift

    for expected, found in zip(
        *(jax.tree.leaves((f(x, scale, shift), jax.vjp(f, x, scale, shift)[1](slope))) for f in (plain, normalised))
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_polyak_by_hand():
    assert polyak({"a": jnp.array(1.0)}, {"a": jnp.array(3.0)}, 0.25)["a"] == 1.5


# --- Discrete actions ---

DOSES = Space(3, Discrete(("none", "low", "high")))


def test_a_categorical_distribution_by_hand():
    policy = Categorical(jnp.log(jnp.array([[1.0, 2.0, 5.0], [4.0, 2.0, 2.0]])))
    np.testing.assert_allclose(policy.probabilities(), [[0.125, 0.25, 0.625], [0.5, 0.25, 0.25]], rtol=1e-6)
    np.testing.assert_allclose(policy.log_prob(jnp.array([[1.0], [0.0]])), np.log([0.25, 0.5]), rtol=1e-6)
    np.testing.assert_array_equal(policy.mode(), [[2.0], [0.0]])
    np.testing.assert_allclose(policy.entropy()[1], 0.5 * np.log(2) + 0.5 * np.log(4), rtol=1e-6)


def test_samples_of_a_categorical_distribution_are_codes_with_its_probabilities():
    policy = Categorical(jnp.broadcast_to(jnp.log(jnp.array([1.0, 2.0, 5.0])), (8000, 3)))
    drawn = np.asarray(policy.sample(jax.random.key(0)))
    assert drawn.shape == (8000, 1)
    np.testing.assert_allclose(np.bincount(drawn[:, 0].astype(int)) / 8000, [0.125, 0.25, 0.625], atol=0.02)


def test_the_distance_of_two_categorical_policies_is_their_total_variation():
    one = Categorical(jnp.log(jnp.array([[1.0, 2.0, 5.0], [4.0, 2.0, 2.0]])))
    other = Categorical(jnp.log(jnp.array([[5.0, 2.0, 1.0], [4.0, 2.0, 2.0]])))
    assert distance(one, other) == pytest.approx(0.25)  # 1/2 (4/8 + 0 + 4/8) at the first state, 0 at the second
    assert distance(one, one) == pytest.approx(0.0)


def test_the_value_of_the_action_taken():
    values = jnp.arange(12.0).reshape(2, 2, 3)
    np.testing.assert_array_equal(taken(values, jnp.array([[2.0], [0.0]])), [[2.0, 3.0], [8.0, 9.0]])


def test_an_actor_of_discrete_actions_has_a_logit_for_each():
    """Whatever kind is asked for. Its logits are the network's output, x W + b after a ReLU."""
    actor = make_actor(jax.random.key(0), DOSES, "squashed", (4,))
    states = np.float32([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]])
    (first,), last = actor.net.layers, actor.net.last
    hidden = np.maximum(states @ np.asarray(first.weight) + np.asarray(first.bias), 0.0)
    policy = actor(jnp.asarray(states))
    assert isinstance(policy, Categorical)
    assert policy.logits.shape == (2, 3)
    np.testing.assert_allclose(policy.logits, hidden @ np.asarray(last.weight) + np.asarray(last.bias), atol=1e-6)
    assert np.abs(policy.logits).max() > 1e-3


def test_a_discrete_critic_gives_the_q_of_every_action():
    critic = make_critic(jax.random.key(0), DOSES, (8, 8))
    assert isinstance(critic, DiscreteTwinCritic)
    q = critic.every(jnp.ones((2, 3)))
    assert q.shape == (2, 2, 3)
    assert not np.allclose(q[0], q[1])
    codes = jnp.array([[2.0], [0.0]])
    np.testing.assert_array_equal(critic(jnp.ones((2, 3)), codes), [[one[0, 2], one[1, 0]] for one in q])
    assert isinstance(make_critic(jax.random.key(0), SPACE, (8,)), TwinCritic)
