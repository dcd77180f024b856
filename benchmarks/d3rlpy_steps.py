"""Records a few gradient steps of d3rlpy's TD3+BC, which `tests/algorithms/test_d3rlpy_steps.py` repeats with ours.

    reference/bin/python benchmarks/d3rlpy_steps.py tests/algorithms/d3rlpy_td3bc_steps.npz

Runs in an environment that has d3rlpy, knows nothing of fova. Made-up minibatches, tiny networks, no noise on the
target actions: what is left is arithmetic, and must be the same. The file holds the minibatches, every step's
losses, and all parameters before and after, layer by layer with weights as [inputs, outputs].
"""

import sys

import d3rlpy
import numpy as np
import torch
from d3rlpy.torch_utility import TorchMiniBatch

OBSERVATION, ACTION, HIDDEN, BATCH, STEPS = 3, 2, [6, 5], 8, 20


def minibatches() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    drawn = {
        "observations": rng.normal(size=(STEPS, BATCH, OBSERVATION)),
        "actions": rng.uniform(-1, 1, size=(STEPS, BATCH, ACTION)),
        "rewards": rng.normal(1, 1, size=(STEPS, BATCH)),
        "next_observations": rng.normal(size=(STEPS, BATCH, OBSERVATION)),
        "terminals": rng.random((STEPS, BATCH)) < 0.2,
    }
    return {name: values.astype(np.float32) for name, values in drawn.items()}


def layers(network: torch.nn.Module) -> np.ndarray:
    """Every parameter of a network in one vector."""
    parameters = [parameter.detach().numpy() for parameter in network.parameters()]
    return np.concatenate([(p.T if p.ndim == 2 else p).ravel() for p in parameters])


def networks(modules) -> dict[str, np.ndarray]:
    return {
        "actor": layers(modules.policy),
        "slow_actor": layers(modules.targ_policy),
        "critic": np.stack([layers(member) for member in modules.q_funcs]),
        "slow_critic": np.stack([layers(member) for member in modules.targ_q_funcs]),
    }


def main() -> None:
    d3rlpy.seed(0)
    hidden = d3rlpy.models.encoders.VectorEncoderFactory(hidden_units=HIDDEN)
    algorithm = d3rlpy.algos.TD3PlusBCConfig(
        actor_learning_rate=3e-4,
        critic_learning_rate=3e-4,
        batch_size=BATCH,
        actor_encoder_factory=hidden,
        critic_encoder_factory=hidden,
        target_smoothing_sigma=0.0,
    ).create(device="cpu")
    algorithm.create_impl((OBSERVATION,), ACTION)
    data, losses = minibatches(), []
    before = networks(algorithm.impl._modules)
    for step in range(STEPS):
        rows = {name: torch.tensor(values[step].reshape(BATCH, -1)) for name, values in data.items()}
        unused = {"next_actions": rows["actions"], "returns_to_go": rows["rewards"]}
        batch = TorchMiniBatch(**rows, **unused, intervals=torch.ones(BATCH, 1), device="cpu")
        # counted from 1: a critic step alone first, then one with the actor
        measured = algorithm.impl.inner_update(batch, step + 1)
        losses.append([measured["critic_loss"], measured.get("actor_loss", np.nan)])
    after = networks(algorithm.impl._modules)
    np.savez_compressed(
        sys.argv[1],
        losses=np.array(losses, np.float32),
        **data,
        **{f"before_{name}": values for name, values in before.items()},
        **{f"after_{name}": values for name, values in after.items()},
    )


if __name__ == "__main__":
    main()
