"""Twin critics: Q of continuous actions, or of every action of a discrete space."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fova.networks.distributions import taken
from fova.networks.layers import MLP, Initialisation, Products
from fova.spaces import Discrete, Space


class TwinCritic(eqx.Module):
    """Two critics stacked along the leading axis of one pytree, so that each layer is one batched product."""

    net: MLP  # every leaf has a leading axis of 2

    def __init__(
        self,
        key: PRNGKeyArray,
        space: Space,
        hidden: Sequence[int],
        layer_norm: bool = True,
        initialisation: Initialisation = "orthogonal",
        last_gain: float = 1.0,
    ) -> None:
        def one(member_key: PRNGKeyArray) -> MLP:
            inputs = space.observation + space.action.size
            return MLP(member_key, inputs, hidden, 1, layer_norm, initialisation, last_gain)

        self.net = jax.vmap(one)(jax.random.split(key, 2))

    def __call__(
        self, observation: Float[Array, "batch observation"], action: Float[Array, "*stack batch action"]
    ) -> Float[Array, "2 *stack batch"]:
        """Q1 and Q2 of each action at its observation. A stack of candidates per state is scored in one call."""
        return self.score(observation, action).q

    def first(
        self, observation: Float[Array, "batch observation"], action: Float[Array, "batch action"]
    ) -> Float[Array, " batch"]:
        """Q1 alone. The second critic costs nothing."""
        net = jax.tree.map(lambda leaf: leaf[0], self.net)
        return net(state_action_rows(observation, action))[:, 0]

    def score(
        self, observation: Float[Array, "batch observation"], action: Float[Array, "*stack batch action"]
    ) -> "Scored":
        """Q1 and Q2 as in a call, kept so that losses can use them again without a forward pass."""
        rows = state_action_rows(observation, action)
        products = jax.vmap(lambda net: net.products(rows))(self.net)
        shaped = [product.reshape(2, *action.shape[:-1], product.shape[-1]) for product in products]
        return Scored(self, observation, action, shaped)

    def of_many(
        self, observation: Float[Array, "batch observation"], action: Float[Array, "sample batch action"]
    ) -> Float[Array, "2 sample batch"]:
        """Q1 and Q2 as in a call, for many actions of each state.

        The observation's part of the first layer and its gradient are computed once, not for every action. Actions
        are scored one after another: the numbers between two layers then fit into a processor's cache.
        """

        def score(net: MLP) -> Float[Array, "sample batch"]:
            first, columns = net.layers[0], observation.shape[-1]
            shared = observation @ first.weight[:columns] + first.bias

            def one(action: Float[Array, "batch action"]) -> Float[Array, " batch"]:
                return net.after_first(shared + action @ first.weight[columns:])[:, 0]

            return jax.lax.map(one, action)

        return jax.vmap(score)(self.net)

    def paired(
        self, observation: Float[Array, "batch observation"], action: Float[Array, "2 *stack batch action"]
    ) -> Float[Array, "2 *stack batch"]:
        """Q1 of the first critic's actions and Q2 of the second's."""

        def score(net: MLP, action: Float[Array, "*stack batch action"]) -> Float[Array, "*stack batch"]:
            return net(state_action_rows(observation, action))[..., 0].reshape(action.shape[:-1])

        return jax.vmap(score)(self.net, action)

    def reuse(
        self,
        observation: Float[Array, "batch observation"],
        action: Float[Array, "2 *stack batch action"],
        products: Products,
    ) -> Float[Array, "2 *stack batch"]:
        """`paired(observation, action)`, given the products of that forward pass."""

        def score(
            net: MLP, action: Float[Array, "*stack batch action"], products: Products
        ) -> Float[Array, "*stack batch"]:
            flat = [product.reshape(-1, product.shape[-1]) for product in products]
            return net.reuse(state_action_rows(observation, action), flat)[..., 0].reshape(action.shape[:-1])

        return jax.vmap(score)(self.net, action, products)


class DiscreteTwinCritic(eqx.Module):
    """Two critics with one output for each action of a discrete space, stacked like those of `TwinCritic`."""

    net: MLP  # every leaf has a leading axis of 2

    def __init__(
        self,
        key: PRNGKeyArray,
        space: Space,
        hidden: Sequence[int],
        layer_norm: bool = True,
        initialisation: Initialisation = "orthogonal",
    ) -> None:
        assert isinstance(space.action, Discrete)
        count = space.action.count

        def one(member_key: PRNGKeyArray) -> MLP:
            return MLP(member_key, space.observation, hidden, count, layer_norm, initialisation)

        self.net = jax.vmap(one)(jax.random.split(key, 2))

    def __call__(
        self, observation: Float[Array, "batch observation"], action: Float[Array, "batch 1"]
    ) -> Float[Array, "2 batch"]:
        """Q1 and Q2 of each action, given as its code, at its observation."""
        return taken(self.every(observation), action)

    def every(self, observation: Float[Array, "batch observation"]) -> Float[Array, "2 batch count"]:
        """Q1 and Q2 of every action at each observation."""
        return jax.vmap(lambda net: net(observation))(self.net)

    def first_of_every(self, observation: Float[Array, "batch observation"]) -> Float[Array, "batch count"]:
        """Q1 alone of every action at each observation. The second critic costs nothing."""
        return jax.tree.map(lambda leaf: leaf[0], self.net)(observation)


class Scored(eqx.Module):
    """Q of a stack of candidate actions: a finished forward pass of twin critics."""

    critic: TwinCritic
    observation: Float[Array, "batch observation"]
    actions: Float[Array, "*stack batch action"]
    products: Products  # [2, *stack, batch, width] each

    @property
    def q(self) -> Float[Array, "2 *stack batch"]:
        return self.products[-1][..., 0]

    def for_critic(
        self, critic: TwinCritic, chosen: Sequence[int | Int[Array, "2 batch"]]
    ) -> Float[Array, "chosen 2 batch"]:
        """Q of chosen candidates with gradients for `critic`, which has the parameters of this forward pass.

        A choice is one candidate for all, or the number of a candidate for each critic and state. Candidates that
        are not chosen cost nothing.
        """
        picked = [
            jnp.stack([values[:, c] if isinstance(c, int) else pick(values, c) for c in chosen], axis=1)
            for values in (jnp.broadcast_to(self.actions, (2, *self.actions.shape)), *self.products)
        ]
        q = critic.reuse(self.observation, picked[0], picked[1:])
        return jnp.moveaxis(q, 1, 0)

    def for_action(self, candidate: int, action: Float[Array, "batch action"]) -> Float[Array, "2 batch"]:
        """Q of one candidate with gradients for `action`, which has the value of that candidate."""
        both = jnp.broadcast_to(action, (2, *action.shape))
        return self.critic.reuse(self.observation, both, [values[:, candidate] for values in self.products])


def pick(
    values: Float[Array, "2 candidates batch ..."], winner: Int[Array, "2 batch"]
) -> Float[Array, "2 batch ..."]:
    """For each critic and state, the value of the winning candidate."""
    won = winner.reshape(*winner.shape, *[1] * (values.ndim - 3))
    picked = values[:, 0]
    for candidate in range(1, values.shape[1]):  # selections are faster than a gather
        picked = jnp.where(won == candidate, values[:, candidate], picked)
    return picked


def state_action_rows(
    observation: Float[Array, "batch observation"], action: Float[Array, "*stack batch action"]
) -> Float[Array, "rows inputs"]:
    """One row for each action: its observation, then the action itself."""
    states = jnp.broadcast_to(observation, (*action.shape[:-1], observation.shape[-1]))
    rows = jnp.concatenate([states, action], axis=-1)
    return rows.reshape(-1, rows.shape[-1])


Critic = TwinCritic | DiscreteTwinCritic


def make_critic(
    key: PRNGKeyArray,
    space: Space,
    hidden: Sequence[int],
    layer_norm: bool = True,
    initialisation: Initialisation = "orthogonal",
) -> Critic:
    """Twin critics for the space: with one output for each action if actions are discrete."""
    kind = DiscreteTwinCritic if isinstance(space.action, Discrete) else TwinCritic
    return kind(key, space, hidden, layer_norm, initialisation)
