"""How many floating-point operations a step of each algorithm cannot do without, and the products they are made of.

Counted: products that the equations need, each once. Not counted: whatever else the program does (a state's part
of the first layer for each candidate again, activations, normalisation, the optimiser, random numbers).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fova.spaces import Space

TWINS = 2


class Product(NamedTuple):
    """`count` products [rows, inner] @ [inner, columns] per client-step."""

    count: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        return 2 * self.count * self.rows * self.inner * self.columns


@dataclass(frozen=True)
class Net:
    """The widths of an MLP, from its input to its output."""

    widths: tuple[int, ...]

    @property
    def layers(self) -> list[tuple[int, int]]:
        return list(zip(self.widths[:-1], self.widths[1:]))

    def forward(self, rows: int, copies: int = 1) -> list[Product]:
        return [Product(copies, rows, inner, columns) for inner, columns in self.layers]

    def weight_gradients(self, rows: int, copies: int = 1) -> list[Product]:
        return [Product(copies, inner, rows, columns) for inner, columns in self.layers]

    def input_gradients(self, rows: int, copies: int = 1) -> list[Product]:
        """Back to the first hidden layer; nobody needs the gradient of an observation."""
        return [Product(copies, rows, columns, inner) for inner, columns in self.layers[1:]]


@dataclass(frozen=True)
class Sizes:
    """The networks of an algorithm and its minibatch."""

    space: Space
    hidden: tuple[int, ...]
    batch: int

    @property
    def policy(self) -> Net:
        """An actor with a mean and a log-standard-deviation for each number of the action."""
        return Net((self.space.observation, *self.hidden, 2 * self.space.action.size))

    @property
    def point_policy(self) -> Net:
        return Net((self.space.observation, *self.hidden, self.space.action.size))

    @property
    def value(self) -> Net:
        return Net((self.space.observation, *self.hidden, 1))

    @property
    def critic(self) -> Net:
        return Net((self.space.observation + self.space.action.size, *self.hidden, 1))


def gradients(net: Net, rows: int, copies: int = 1) -> list[Product]:
    """The products of a backward pass, for the parameters."""
    return [*net.weight_gradients(rows, copies), *net.input_gradients(rows, copies)]


def scored(sizes: Sizes, actions: int) -> list[Product]:
    """Q of several actions per state: the state's part of the first layer is needed once."""
    space, width = sizes.space, sizes.hidden[0]
    return [
        Product(TWINS, sizes.batch, space.observation, width),
        Product(TWINS, actions * sizes.batch, space.action.size, width),
        *sizes.critic.forward(actions * sizes.batch, TWINS)[1:],
    ]


def scored_gradients(sizes: Sizes, actions: int) -> list[Product]:
    """The backward pass of `scored` for the critics' parameters: the first layer's, too, is parted."""
    space, rows = sizes.space, actions * sizes.batch
    return [
        Product(TWINS, space.observation, sizes.batch, sizes.hidden[0]),
        Product(TWINS, space.action.size, rows, sizes.hidden[0]),
        *sizes.critic.weight_gradients(rows, TWINS)[1:],
        *sizes.critic.input_gradients(rows, TWINS),
    ]


def action_gradients(sizes: Sizes, copies: int) -> list[Product]:
    """The gradient of Q with respect to one action per state."""
    width, action = sizes.hidden[0], sizes.space.action.size
    return [*sizes.critic.input_gradients(sizes.batch, copies), Product(copies, sizes.batch, width, action)]


# --- The algorithms ---


def fova_step(sizes: Sizes, vote: bool = True) -> list[Product]:
    """The products of one step of one client, with the conservative term of the paper's text."""
    actor, batch = sizes.policy, sizes.batch
    return [
        # the actors: pi_k and pibar at s and s', and the gradient of pi_k at s
        *actor.forward(2 * batch),
        *actor.forward(2 * batch if vote else batch),  # without the vote nobody asks pibar about s'
        *gradients(actor, batch),
        # the target critics at s'
        *scored(sizes, 3 if vote else 1),
        # the critics at s: the data's action, the client's own and the global one, which w needs in any case
        *scored(sizes, 3),
        # their gradient has two rows a state: the data's action and the voted one
        *gradients(sizes.critic, 2 * batch, TWINS),
        *action_gradients(sizes, TWINS),
    ]


def cql_step(sizes: Sizes, samples: int, estimated: bool) -> list[Product]:
    """CQL-FL: pi at s, after its update at s and s'; three sources of sampled actions and the data's.

    With an estimated gradient one of the sampled actions is differentiated beside the data's.
    """
    actor, batch = sizes.policy, sizes.batch
    return [
        *actor.forward(3 * batch),
        *gradients(actor, batch),
        *scored(sizes, 1),  # the target critics at s'
        *scored(sizes, 3 * samples + 2),  # the critics at s: sampled actions, the data's, the actor's own
        *scored_gradients(sizes, 2 if estimated else 3 * samples + 1),
        *action_gradients(sizes, TWINS),
    ]


def drpo_step(sizes: Sizes, samples: int, estimated: bool) -> list[Product]:
    """DRPO: actor and critics are updated from the same parameters, and the global policy is asked about s."""
    return cql_step(sizes, samples, estimated)  # three passes of actors, too: pi at s and s', pibar at s


def td3bc_steps(sizes: Sizes, critics_at_target: int = 1, policies_at_s: int = 0) -> list[Product]:
    """Two critic steps and one actor step of TD3+BC."""
    actor, batch = sizes.point_policy, sizes.batch
    critics = [
        *actor.forward(batch),
        *(product for _ in range(critics_at_target) for product in scored(sizes, 1)),
        *scored(sizes, 1),
        *gradients(sizes.critic, batch, TWINS),
    ]
    return [
        *critics,
        *critics,
        *actor.forward((1 + policies_at_s) * batch),
        *gradients(actor, batch),
        *sizes.critic.forward(batch),  # the actor follows the first critic
        *action_gradients(sizes, 1),
    ]


def fedora_steps(sizes: Sizes) -> list[Product]:
    """The same, with the federated critics in the target and two policies beside the actor."""
    return td3bc_steps(sizes, critics_at_target=2, policies_at_s=2)


def iql_step(sizes: Sizes) -> list[Product]:
    """V at s and s', the critics and the target critics at the data's action, the actor at s."""
    batch = sizes.batch
    return [
        *sizes.value.forward(2 * batch),
        *gradients(sizes.value, batch),
        *scored(sizes, 1),
        *scored(sizes, 1),
        *gradients(sizes.critic, batch, TWINS),
        *sizes.policy.forward(batch),
        *gradients(sizes.policy, batch),
    ]


def bc_step(sizes: Sizes) -> list[Product]:
    """The actor at s."""
    return [*sizes.policy.forward(sizes.batch), *gradients(sizes.policy, sizes.batch)]


def of_algorithm(algorithm: Any, space: Space) -> list[Product]:
    """The products of one call of an algorithm's `step`, which takes `stride` gradient steps."""
    sizes = Sizes(space, algorithm.hidden, algorithm.batch_size)
    makers: dict[str, Callable[[], list[Product]]] = {
        "fova": lambda: fova_step(sizes),
        "cql-fl": lambda: cql_step(sizes, algorithm.samples, algorithm.soft_gradient == "estimated"),
        "drpo": lambda: drpo_step(sizes, algorithm.samples, algorithm.soft_gradient == "estimated"),
        "fed-td3bc": lambda: td3bc_steps(sizes),
        "fedora": lambda: fedora_steps(sizes),
        "fed-iql": lambda: iql_step(sizes),
        "fed-bc": lambda: bc_step(sizes),
    }
    return makers[algorithm.name]()


def flops(products: list[Product]) -> int:
    return sum(product.flops for product in products)
