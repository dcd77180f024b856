"""Actors and critics: plain pytrees of weights that act on whole batches.

Networks take normalised observations. They give actions in [-1, 1], or one number for each action of a discrete
space. Nothing in this room knows about clients, losses or data. A stack of networks (twin critics, the clients of a
federation) is the same pytree with a leading axis. Averaging is then a tree map, and running a stack is one
`jax.vmap`.

`GaussianActor.forward` and `TwinCritic.score` keep the matrix products of a forward pass. A loss that needs the
same values again takes its gradients from them and repeats no product.
"""

from fova.networks.actors import (
    LOG_STD_RANGE,
    Actor,
    ActorKind,
    CategoricalActor,
    DeterministicActor,
    Forward,
    GaussianActor,
    GaussianForm,
    make_actor,
)
from fova.networks.critics import Critic, DiscreteTwinCritic, Scored, TwinCritic, make_critic, pick
from fova.networks.distributions import (
    Categorical,
    Clipped,
    Distribution,
    Point,
    Squashed,
    distance,
    taken,
)
from fova.networks.layers import MLP, Initialisation, LayerNorm, Linear, normalised, polyak

__all__ = [
    "LOG_STD_RANGE",
    "MLP",
    "Actor",
    "ActorKind",
    "Categorical",
    "CategoricalActor",
    "Clipped",
    "Critic",
    "DeterministicActor",
    "DiscreteTwinCritic",
    "Distribution",
    "Forward",
    "GaussianActor",
    "GaussianForm",
    "Initialisation",
    "LayerNorm",
    "Linear",
    "Point",
    "Scored",
    "Squashed",
    "TwinCritic",
    "distance",
    "make_actor",
    "make_critic",
    "normalised",
    "pick",
    "polyak",
    "taken",
]
