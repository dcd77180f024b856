"""FOVA on discrete actions: by hand, against NumPy loops written from the specification, and on a tiny task."""

from dataclasses import replace as with_fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from algorithms.discrete.corridor import EVERY_PLACE, trained, walks
from algorithms.numpy_fova import as_numpy, held_vote, imitation_weights, mlp
from fova.algorithms import configure, for_space
from fova.algorithms.base import Batch, Broadcast, replace
from fova.algorithms.discrete.fova import DiscreteFova, candidates, expected_q
from fova.networks import Categorical
from fova.spaces import Discrete, Space
from tiny import batch_of, make_transitions

SPACE = Space(3, Discrete(("none", "low", "high")))
VARIANTS = {
    "recommended": {},
    "equations": {"preset": "equations"},
    "released": {"preset": "released"},
    "vote off": {"vote": False},
    "plain cloning": {"awr": False},
    "global weights": {"weigh": "global", "advantage_from": "target"},
    "imitate the vote": {"imitate": "vote"},
    "one vote per critic": {"vote_order": "max_then_min", "imitate": "vote"},
    "continual": {"continual": 2.0},
    "returns of the data": {"data_returns": True},
    "returns of the data and relative weights": {"data_returns": True, "weigh": "data", "relative_weights": True},
    "a sharper soft maximum": {"conservative": "logsumexp", "soft_temperature": 0.5},
}


# --- By hand ---


def test_candidates_are_distributions_over_the_actions():
    local = Categorical(jnp.log(jnp.array([[1.0, 2.0, 5.0]])))
    global_policy = Categorical(jnp.log(jnp.array([[2.0, 1.0, 1.0]])))
    expected = [[[0.125, 0.25, 0.625]], [[0.0, 1.0, 0.0]], [[0.5, 0.25, 0.25]]]
    np.testing.assert_allclose(candidates(local, jnp.array([[1.0]]), global_policy), expected, rtol=1e-6)


def test_expected_q_takes_the_smaller_twin_action_by_action():
    q = jnp.array([[[4.0, 0.0]], [[0.0, 8.0]]])  # two critics, one state, two actions
    mu = jnp.array([[[0.5, 0.5]], [[1.0, 0.0]]])
    np.testing.assert_allclose(expected_q(q, mu, "max_then_min")[:, :, 0], [[2.0, 4.0], [4.0, 0.0]])
    np.testing.assert_allclose(expected_q(q, mu, "min_then_max")[:, :, 0], [[0.0, 0.0], [0.0, 0.0]])


# --- A whole step against loops over rows, critics and actions ---


def softmax(logits):
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()


def soft_maximum(q, temperature):
    return temperature * np.log(np.exp(q / temperature).sum())


def numpy_losses(config, nets, batch):
    """Critic and actor objective of one client on one batch, and what is logged besides."""

    def at(critics, s):
        return np.array([mlp(critic, s) for critic in critics])  # [2, actions]

    def values(q, mus):
        """q[critic][candidate]"""
        if config.vote_order == "min_then_max":
            q = np.array([np.minimum(q[0], q[1])] * 2)
        return [[sum(mu[a] * q[i][a] for a in range(len(mu))) for mu in mus] for i in range(2)]

    rows, count = len(batch["rewards"]), SPACE.action.count
    critic_total, actor_total, imitations = 0.0, 0.0, []
    seen = {"weight": [], "q_data": [], "td_error": [], "conservative_gap": [], "entropy": []}
    shares = np.zeros(3)
    for n in range(rows):
        s, next_s, a = batch["observations"][n], batch["next_observations"][n], int(batch["actions"][n, 0])

        def mus(actor, state, code):
            return [softmax(mlp(nets[actor], state)), np.eye(count)[code], softmax(mlp(nets["global"], state))]

        here, there = mus("critics' actor", s, a), mus("critics' actor", next_s, int(batch["next_actions"][n, 0]))
        entrants = [0, 1, 2] if config.vote else [0]
        next_entrants = [c for c in entrants if c != 1 or batch["has_next_action"][n]]
        next_winner, next_value = held_vote(
            values(at(nets["target"], next_s), there), next_entrants, config.vote_order
        )
        shown, going_on = batch["next_returns"][n], config.discount * (1 - batch["terminals"][n])
        y = batch["rewards"][n] + going_on * (max(next_value, shown) if config.data_returns else next_value)
        q = at(nets["critics"], s)
        winner, _ = held_vote(values(q, here), entrants, config.vote_order)
        for i in range(2):
            shares[next_winner[i]] += 0.5 / rows
            pushed = (
                soft_maximum(q[i], config.soft_temperature)
                if config.conservative == "logsumexp"
                else here[winner[i]] @ q[i]
            )
            gap = pushed - q[i][a]
            critic_total += config.td_scale * (q[i][a] - y) ** 2 + config.alpha * gap
            if nets["previous"]:
                critic_total += config.continual * (q[i][a] - nets["rescale"] * mlp(nets["previous"][i], s)[a]) ** 2
            seen["q_data"].append(q[i][a])
            seen["td_error"].append(abs(q[i][a] - y))
            seen["conservative_gap"].append(gap)

        here = mus("actor", s, a)
        judged = values(q if config.advantage_from == "current" else at(nets["target"], s), here)
        if config.data_returns:
            for candidates_of in judged:
                candidates_of[1] = max(candidates_of[1], batch["rewards"][n] + going_on * shown)
        judged_winner, v = held_vote(judged, entrants, config.vote_order)
        weighed = 2 if config.weigh == "global" else 1
        log_pi = np.log(here[0])
        imitated = here[1] if config.imitate == "data" else here[judged_winner[0]]
        entropy = -here[0] @ log_pi
        imitations.append((min(judged[0][weighed], judged[1][weighed]) - v, imitated @ log_pi))
        actor_total -= here[0] @ np.minimum(q[0], q[1])
        if nets["log_temperature"] is not None:
            actor_total -= np.exp(nets["log_temperature"]) * entropy
        seen["entropy"].append(entropy)
    advantages, log_likelihoods = np.transpose(imitations)
    seen["weight"] = imitation_weights(config, advantages)
    actor_total -= config.lam * np.sum(seen["weight"] * log_likelihoods)
    means = {name: np.mean(numbers) for name, numbers in seen.items()}
    votes = {f"vote_{who}": shares[i] for i, who in enumerate(("local", "behaviour", "global"))}
    return means | votes | {"critic_loss": critic_total / rows, "actor_loss": actor_total / rows}


def coded_batch(seed: int) -> Batch:
    """Random rows in which some have no next action and some are terminal."""
    data, rng = make_transitions(seed, episodes=8, steps=1), np.random.default_rng(seed)
    batch = jax.tree.map(jnp.asarray, batch_of(data))
    codes = [jnp.asarray(rng.integers(0, 3, (len(data), 1)), jnp.float32) for _ in range(2)]
    assert 0 < batch.has_next_action.sum() < len(batch.rewards)
    return batch._replace(actions=codes[0], next_actions=codes[1])


def loud(network, factor=4.0):
    """The network with larger outputs, so that its distributions and values differ clearly from state to state."""
    last = network.net.last
    last = replace(last, weight=factor * last.weight, bias=factor * last.bias)
    return replace(network, net=replace(network.net, last=last))


def mid_training(algorithm):
    first, second, third = (algorithm.init(key, SPACE) for key in jax.random.split(jax.random.key(3), 3))
    # Adam's first step has the size of the learning rate, whatever the gradient; so the optimiser takes one before.
    warm = replace(first.actor, network=loud(first.actor.network)).descend(
        lambda actor: jnp.square(actor(jnp.eye(3)).logits).mean()
    )
    learner = replace(
        first,
        actor=warm[0],
        critic=replace(first.critic, network=loud(first.critic.network)),
        target_critic=loud(second.critic.network),
    )
    if first.extra.temperature is not None:
        warm = replace(first.extra.temperature, log=jnp.array(-0.4))
        learner = replace(learner, extra=replace(learner.extra, temperature=warm))
    if first.extra.memory is not None:
        changed = algorithm.data_changed(replace(learner, critic=third.critic), jnp.array(0.5))
        learner = replace(learner, extra=changed.extra)
    return learner, Broadcast(loud(third.actor.network), third.critic.network)


@pytest.mark.parametrize("variant", VARIANTS)
def test_step_agrees_with_the_numpy_implementation(variant):
    algorithm = for_space(configure("fova", **{"hidden": (6, 5), **VARIANTS[variant]}), SPACE)
    assert type(algorithm) is DiscreteFova
    learner, broadcast = mid_training(algorithm)
    batch, memory, temperature = coded_batch(4), learner.extra.memory, learner.extra.temperature
    new, metrics = jax.jit(algorithm.step)(learner, broadcast, batch, jax.random.key(0))
    nets = {
        "actor": as_numpy(learner.actor.network.net),
        "critics' actor": as_numpy((new if algorithm.update_order == "actor_first" else learner).actor.network.net),
        "global": as_numpy(broadcast.actor.net),
        "critics": [as_numpy(learner.critic.network.net, i) for i in range(2)],
        "target": [as_numpy(learner.target_critic.net, i) for i in range(2)],
        "previous": None if memory is None else [as_numpy(memory.critic.net, i) for i in range(2)],
        "rescale": None if memory is None else float(memory.rescale),
        "log_temperature": None if temperature is None else float(temperature.log),
    }
    printed = with_fields(algorithm, **dict(zip(("alpha", "lam", "beta"), algorithm.strengths)))
    rows = {name: np.asarray(values, np.float64) for name, values in batch._asdict().items()}
    expected = numpy_losses(printed, nets, rows)
    assert {name: float(value) for name, value in metrics.items()} == pytest.approx(expected, rel=2e-4, abs=1e-5)
    if variant != "vote off":
        assert min(metrics[f"vote_{who}"] for who in ("local", "behaviour", "global")) > 0
    if temperature is not None:  # the entropy is below 0.98 log 3, so the temperature rises
        assert float(new.extra.temperature.log) > -0.4


def test_the_actor_moves_up_its_objective_and_no_gradient_enters_the_weights():
    """The gradient of the actor's loss equals the one with w, V and the candidates as plain numbers."""
    algorithm = for_space(configure("fova", "equations", hidden=(6, 5)), SPACE)
    learner, broadcast = mid_training(algorithm)
    batch = coded_batch(4)
    new, metrics = jax.jit(algorithm.step)(learner, broadcast, batch, jax.random.key(0))
    q = learner.critic.network.every(batch.observations).min(axis=0)
    mu = candidates(learner.actor(batch.observations), batch.actions, broadcast.actor(batch.observations))
    scored = np.einsum("ba,cba->cb", q, mu)
    w = np.exp((scored[2] - scored.max(axis=0)) / 5.0)

    def loss(actor):
        policy = actor(batch.observations)
        return -(5.0 * (w * policy.log_prob(batch.actions)).mean() + (policy.probabilities() * q).sum(-1).mean())

    expected, objective, _ = learner.actor.descend(loss)
    assert float(objective) == pytest.approx(float(metrics["actor_loss"]), rel=1e-5)
    jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, atol=2e-6), new.actor.network, expected.network)


def test_the_gradient_through_the_weight_enters_by_the_value_of_the_local_policy():
    """Where the local policy wins the vote, w falls as its expected Q rises; elsewhere nothing changes."""
    settings = {"hidden": (6, 5), "weigh": "data", "beta": 0.5, "lam": 2.0}
    moving, fixed = (
        for_space(configure("fova", "equations", weight_gradient=on, **settings), SPACE) for on in (True, False)
    )
    learner, broadcast = mid_training(moving)
    swapped = broadcast.actor, learner.actor.network  # so that the local policy wins the vote somewhere
    learner = replace(learner, actor=replace(learner.actor, network=swapped[0]))
    broadcast = Broadcast(swapped[1], broadcast.critic)
    s, a = (batch := coded_batch(4)).observations, batch.actions
    q = learner.critic.network.every(s).min(axis=0)
    others = jnp.einsum("ba,cba->cb", q, candidates(learner.actor(s), a, broadcast.actor(s)))[1:]

    def loss(actor):
        policy = actor(s)
        q_local = (policy.probabilities() * q).sum(-1)
        w = jnp.exp((others[0] - jnp.maximum(q_local, others.max(axis=0))) / 0.5)
        return -(2.0 * (w * policy.log_prob(a)).mean() + q_local.mean())

    new, other = (jax.jit(it.step)(learner, broadcast, batch, jax.random.key(0))[0] for it in (moving, fixed))
    expected = learner.actor.descend(loss)[0].network
    jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, atol=2e-6), new.actor.network, expected)
    moved = [np.abs(x - z).max() for x, z in zip(*map(jax.tree.leaves, (new.actor.network, other.actor.network)))]
    assert max(moved) > 1e-5


# --- A tiny task ---


@pytest.mark.parametrize("preset", ["recommended", "equations", "released"])
def test_it_learns_to_walk_to_the_end_of_the_corridor_from_aimless_data(preset):
    """The data goes left as often as right.

    The automatic strengths belong to rewards in which a good policy is worth about 1 / (1 - gamma) = 10. The reward
    of the other presets is 1 at most, so their strengths are small.
    """
    strengths = {} if preset == "recommended" else {"alpha": 0.1, "lam": 0.1, "beta": 0.1}
    settings = {
        "hidden": (16,),
        "batch_size": 64,
        "discount": 0.9,
        "actor_lr": 3e-3,
        "critic_lr": 3e-3,
        "tau": 0.02,
    }
    algorithm = for_space(configure("fova", preset, **settings, **strengths), Space(5, Discrete(("left", "right"))))
    data = walks(0, right=0.5)
    data = with_fields(data, rewards=data.rewards * np.float32(10.0 if preset == "recommended" else 1.0))
    actor, _ = trained(algorithm, data, steps=400)
    right = np.asarray(actor(jnp.asarray(EVERY_PLACE)).probabilities())[:, 1]
    assert (right > 0.5).all(), right
