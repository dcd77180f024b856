"""DRPO: conservative critics, and an actor regularised towards its data and towards the global policy.

Yue et al., "Federated Offline Policy Optimization with Dual Regularization". The critics are those of CQL. The
actor loss is SAC's, minus eta log pi(a_data|s), minus (1 - eta) log pi(a_server|s).
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import Batch, Broadcast
from fova.algorithms.cql import CqlFl
from fova.networks import Clipped, Squashed
from fova.settings import Within

# Settings of the authors' program that the paper does not state
PROGRAM = {
    "critic_lr": 1e-4,
    "temperature_loss": "value",
    "saturation": 1e-7,
    "log_std_least": -20.0,
    "trained_log_std": True,
    "critic_initialisation": "orthogonal",
}


@dataclass(frozen=True)
class Drpo(CqlFl):
    """DRPO: dual regularisation, towards the data and towards the global policy."""

    name: ClassVar[str] = "drpo"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "published": PROGRAM,
        "layer-norm": PROGRAM | {"critic_layer_norm": True},
        # the paper's text, with FOVA's networks
        "paper": {},
        # the actor and the critics of FOVA; a gradient that is the same in expectation
        "assisted": PROGRAM | {"actor": "clipped", "critic_layer_norm": True, "soft_gradient": "estimated"},
    }

    alpha: float = 10.0
    """Weight of the conservative term."""
    gradient_clip: float = 1.0
    """Largest norm of the actor's gradient; 0 does not clip."""
    eta: Annotated[float, Within(0, 1)] = 0.6
    """Weight of the likelihood of the data's action; 1 - eta is that of the global policy's action."""
    regularisation: Annotated[float, Within(0)] = 1.0
    """Weight of both likelihood terms together; 0 leaves CQL."""

    def imitation(
        self, policy: Squashed | Clipped, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """-eta E[log pi(a_data|s)] - (1 - eta) E[log pi(a_server|s)], a_server sampled from the global policy."""
        a_server = broadcast.actor(batch.observations).sample(key)
        likelihood = self.eta * policy.log_prob(batch.actions) + (1.0 - self.eta) * policy.log_prob(a_server)
        return -self.regularisation * likelihood.mean()
