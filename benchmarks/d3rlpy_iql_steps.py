"""Records a few gradient steps of d3rlpy's IQL, which `tests/algorithms/test_d3rlpy_steps.py` repeats with ours.

    reference/bin/python benchmarks/d3rlpy_iql_steps.py tests/algorithms/d3rlpy_iql_steps.npz

Runs in an environment that has d3rlpy, knows nothing of fova. The minibatches are those of `d3rlpy_steps.py`. The
policy's log-std is an output of its network, as ours is; d3rlpy's own IQL has one trained number per dimension.
"""

import dataclasses
import sys

import d3rlpy
import numpy as np
import torch
from d3rlpy.models.builders import create_normal_policy
from d3rlpy.torch_utility import TorchMiniBatch
from d3rlpy_steps import ACTION, BATCH, HIDDEN, OBSERVATION, STEPS, layers, minibatches

LOSSES = ("q_loss", "v_loss", "actor_loss")


def policy_layers(policy: torch.nn.Module) -> np.ndarray:
    """The hidden layers, then mean and log-std as the two halves of one last layer."""
    last = [torch.cat([getattr(policy._mu, part), getattr(policy._logstd, part)]) for part in ("weight", "bias")]
    weight, bias = (part.detach().numpy() for part in last)
    return np.concatenate([layers(policy._encoder), weight.T.ravel(), bias])


def networks(modules) -> dict[str, np.ndarray]:
    return {
        "actor": policy_layers(modules.policy),
        "critic": np.stack([layers(member) for member in modules.q_funcs]),
        "target_critic": np.stack([layers(member) for member in modules.targ_q_funcs]),
        "value": layers(modules.value_func),
    }


def created() -> object:
    """d3rlpy's IQL with a log-std that depends on the state."""
    hidden = d3rlpy.models.encoders.VectorEncoderFactory(hidden_units=HIDDEN)
    config = d3rlpy.algos.IQLConfig(
        batch_size=BATCH, actor_encoder_factory=hidden, critic_encoder_factory=hidden, value_encoder_factory=hidden
    )
    algorithm = config.create(device="cpu")
    algorithm.create_impl((OBSERVATION,), ACTION)
    impl = algorithm.impl
    policy = create_normal_policy((OBSERVATION,), ACTION, hidden, "cpu", False, -5.0, 2.0)
    optimizer = config.actor_optim_factory.create(
        policy.named_modules(), lr=config.actor_learning_rate, compiled=False
    )
    impl._modules = dataclasses.replace(impl._modules, policy=policy, actor_optim=optimizer)
    return impl


def main() -> None:
    d3rlpy.seed(0)
    impl, data, losses = created(), minibatches(), []
    before = networks(impl._modules)
    for step in range(STEPS):
        rows = {name: torch.tensor(values[step].reshape(BATCH, -1)) for name, values in data.items()}
        unused = {"next_actions": rows["actions"], "returns_to_go": rows["rewards"]}
        batch = TorchMiniBatch(**rows, **unused, intervals=torch.ones(BATCH, 1), device="cpu")
        measured = impl.inner_update(batch, step + 1)
        losses.append([measured[name] for name in LOSSES])
    after = networks(impl._modules)
    np.savez_compressed(
        sys.argv[1],
        losses=np.array(losses, np.float32),
        **data,
        **{f"before_{name}": values for name, values in before.items()},
        **{f"after_{name}": values for name, values in after.items()},
    )


if __name__ == "__main__":
    main()
