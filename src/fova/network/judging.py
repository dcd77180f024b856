"""What server and clients share when a trained policy is judged over the network.

A plan with a `Judging` describes the fit of the policy's value in place of a training: the algorithm is federated
fitted Q evaluation, and clients fit critics to the episodes that they hold out. The policy travels inside the plan.
"""

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from safetensors.numpy import save

from fova.algorithms.fqe import Fqe
from fova.errors import FovaError
from fova.evaluation.judging.client import Scale
from fova.evaluation.judging.judge import JudgeSettings, Promise, normaliser_of
from fova.policy import Policy, insist_on_sound_weights, parse_weights
from fova.run.config import RunConfig
from fova.settings import fill
from fova.spaces import Space

SCALE = ("unit", "level", "lowest", "highest")


@dataclass(frozen=True)
class Judging:
    """The policy that is judged, and how. The scale is known when the clients have told about their data."""

    policy: Policy
    discount: float
    settings: JudgeSettings
    scale: Scale | None = None

    def algorithm(self) -> Fqe:
        return self.settings.algorithm(self.scale or Scale(normaliser_of(self.policy), self.discount))

    def to_json(self) -> dict[str, Any]:
        weights = base64.b64encode(save(dict(self.policy.weights))).decode()
        scale = None if self.scale is None else {name: getattr(self.scale, name) for name in SCALE}
        return {
            "policy": {"kind": self.policy.kind, "weights": weights},
            "discount": self.discount,
            "settings": asdict(self.settings),
            "scale": scale,
        }

    @staticmethod
    def from_json(content: Any, space: Space) -> "Judging":
        """The same at a client. A policy that cannot be run in the plan's space is refused."""
        described = content["policy"]
        policy = Policy(described["kind"], parse_weights(base64.b64decode(described["weights"])), space)
        insist_on_sound_weights(policy)
        settings = fill(JudgeSettings, content["settings"], "of the server's judge")
        discount = float(content["discount"])
        scale = None
        if content["scale"] is not None:
            numbers = {name: float(content["scale"][name]) for name in SCALE}
            if not numbers["unit"] > 0.0:
                raise FovaError(f"The unit of reward is {numbers['unit']}, but must be a number above 0.")
            scale = Scale(normaliser_of(policy), discount, **numbers)
        return Judging(policy, discount, settings, scale)


DATA = ("hold_out", "seed", "actions", "action_names", "action_low", "action_high")
PRIVACY = ("privacy", "privacy_clip", "privacy_noise", "privacy_delta", "privacy_accountant")


def settings_for(trained: RunConfig, settings: JudgeSettings, promise: Promise | None) -> JudgeSettings:
    """How the fit of a run's policy combines clients: as robustly as the training, and as it was promised."""
    if promise is None:
        return settings.combining_like(trained.aggregation)
    if promise.privacy is None:  # secure aggregation, which the server has for sums only
        return replace(settings, aggregation=trained.aggregation)
    return promise.settings(settings)


def run_settings(trained: RunConfig, settings: JudgeSettings, promise: Promise | None = None) -> RunConfig:
    """The rounds of the fit, on the episodes that the training held out. Rewards are those of the log."""
    kept = DATA if promise is None else DATA + PRIVACY
    unchanged: Mapping[str, Any] = {name: getattr(trained, name) for name in kept}
    return RunConfig(
        **unchanged,
        rounds=settings.rounds,
        local_steps=settings.round_settings().local_steps,
        aggregation=settings.aggregation,
        normalise=False,
        reward_unit="algorithm" if promise is None else promise.reward_unit,
    )
