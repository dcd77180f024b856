"""Control variates in one file: SCAFFOLD for behaviour cloning.

    fova train --algorithm examples/scaffold.py --task maze2d-umaze --clients expert random

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", algorithm 1 with option II.
Clients whose data differ drift apart during their local steps. Each client k therefore carries an estimate c_k of
its gradient, and the server an estimate c of the mean gradient. A local step is corrected by c - c_k.

A local step is plain gradient descent, as in the paper. With Adam, (x - y) / (K eta_l) in option II would not be a
mean gradient.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from fova.algorithms.base import Batch, Broadcast, Data, Learner, Metrics, Server, Submission, replace
from fova.algorithms.bc import FedBc, cloning_loss
from fova.spaces import Space


class Extra(eqx.Module):
    control: Any  # c_k, with the structure of the actor
    steps: jax.Array  # local steps in this round so far; K at its end


@dataclass(frozen=True)
class Scaffold(FedBc):
    """SCAFFOLD on behaviour cloning. The broadcast is (x, c): the actor, and the server's control in `extra`."""

    name: ClassVar[str] = "scaffold"

    actor_lr: float = 0.02
    """eta_l: learning rate of gradient descent at a client."""
    client_share: float = 1.0
    """|S| / N: share of the clients that take part in a round. Give the same number as --participation."""

    def init(self, key: jax.Array, space: Space) -> Learner:
        learner = super().init(key, space)
        no_control = jax.tree.map(jnp.zeros_like, learner.actor.network)
        return replace(learner, extra=Extra(no_control, jnp.zeros(())))

    def start(self, learner: Learner) -> Server:
        return Server(Broadcast(learner.actor.network, None, extra=learner.extra.control))

    def receive(self, learner: Learner, broadcast: Broadcast) -> Learner:
        learner = super().receive(learner, broadcast)
        return replace(learner, extra=replace(learner.extra, steps=jnp.zeros(())))

    def step(self, learner: Learner, broadcast: Broadcast, batch: Batch, key: jax.Array) -> tuple[Learner, Metrics]:
        def loss(actor):
            return cloning_loss(actor(batch.observations), batch.actions)

        y, c_k, c = learner.actor.network, learner.extra.control, broadcast.extra
        objective, gradient = jax.value_and_grad(loss)(y)

        # y <- y - eta_l (g(y) - c_k + c)
        y = jax.tree.map(lambda y, g, c_k, c: y - self.actor_lr * (g - c_k + c), y, gradient, c_k, c)
        actor, extra = replace(learner.actor, network=y), Extra(c_k, learner.extra.steps + 1.0)
        return replace(learner, actor=actor, extra=extra), {"actor_loss": objective}

    def submit(self, learner: Learner, broadcast: Broadcast, data: Data) -> tuple[Learner, Submission]:
        learner, submission = super().submit(learner, broadcast, data)
        x, y, c_k, c = broadcast.actor, learner.actor.network, learner.extra.control, broadcast.extra

        # Option II: c_k+ = c_k - c + (x - y) / (K eta_l)
        scale = learner.extra.steps * self.actor_lr
        new_c_k = jax.tree.map(lambda c_k, c, x, y: c_k - c + (x - y) / scale, c_k, c, x, y)

        # The message holds c + (c_k+ - c_k): compression and privacy work on its difference from the broadcast.
        sent = jax.tree.map(lambda c, new, old: c + (new - old), c, new_c_k, c_k)
        learner = replace(learner, extra=replace(learner.extra, control=new_c_k))
        return learner, replace(submission, parameters=replace(submission.parameters, extra=sent))

    def aggregate(self, server: Server, submissions: Submission) -> Server:
        mean = super().aggregate(server, submissions).broadcast

        # x <- mean_k y_k;  c <- c + |S| / N mean_k (c_k+ - c_k)
        c = jax.tree.map(lambda c, sent: c + self.client_share * (sent - c), server.broadcast.extra, mean.extra)
        return replace(server, broadcast=replace(mean, extra=c))
