"""How many floating-point operations one FOVA step cannot do without, and the products they are made of.

Counted: products that the equations need, each once. Not counted: whatever else the program does (a state's part
of the first layer for each candidate again, activations, normalisation, the optimiser, random numbers).
"""

from dataclasses import dataclass
from typing import NamedTuple

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


def fova_step(space: Space, hidden: tuple[int, ...], batch: int, vote: bool = True) -> list[Product]:
    """The products of one step of one client, with the conservative term of the paper's text."""
    actor = Net((space.observation, *hidden, 2 * space.action.size))
    critic = Net((space.observation + space.action.size, *hidden, 1))
    candidates_next = 3 if vote else 1
    global_states = 2 * batch if vote else batch  # without the vote nobody asks pibar about s'
    return [
        # the actors: pi_k and pibar at s and s', and the gradient of pi_k at s
        *actor.forward(2 * batch),
        *actor.forward(global_states),
        *actor.weight_gradients(batch),
        *actor.input_gradients(batch),
        # the slow critics at s'
        *scored(critic, space, batch, candidates_next),
        # the critics at s: the data's action, the client's own and the global one, which w needs in any case
        *scored(critic, space, batch, 3),
        # their gradient has two rows a state: the data's action and the voted one
        *critic.weight_gradients(2 * batch, TWINS),
        *critic.input_gradients(2 * batch, TWINS),
        # the gradient of Q with respect to the client's own action
        *critic.input_gradients(batch, TWINS),
        Product(TWINS, batch, hidden[0], space.action.size),
    ]


def scored(critic: Net, space: Space, batch: int, candidates: int) -> list[Product]:
    """Q of several actions per state: the state's part of the first layer is needed once."""
    return [
        Product(TWINS, batch, space.observation, critic.widths[1]),
        Product(TWINS, candidates * batch, space.action.size, critic.widths[1]),
        *critic.forward(candidates * batch, TWINS)[1:],
    ]


def flops(products: list[Product]) -> int:
    return sum(product.flops for product in products)
