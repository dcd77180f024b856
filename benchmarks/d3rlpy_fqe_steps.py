"""Records a few gradient steps of d3rlpy's fitted Q evaluation. `tests/algorithms/test_fqe.py` repeats them.

    reference/bin/python benchmarks/d3rlpy_fqe_steps.py tests/algorithms/d3rlpy_fqe_steps.npz

Runs in an environment that has d3rlpy, and knows nothing of fova. Made-up minibatches and tiny networks. Rewards
are multiplied by 1 - gamma here, because fova's critics estimate values per step. Continuous: the policy of an
untrained TD3+BC. Discrete: the greedy policy of an untrained DQN.
"""

import sys

import d3rlpy
import numpy as np
import torch
from d3rlpy.ope.fqe import FQE, DiscreteFQE, FQEConfig
from d3rlpy.torch_utility import TorchMiniBatch
from d3rlpy_steps import ACTION, BATCH, HIDDEN, OBSERVATION, STEPS, layers, minibatches

GAMMA, COUNT = 0.9, 3


def encoder():
    return d3rlpy.models.encoders.VectorEncoderFactory(hidden_units=HIDDEN)


def recorded(evaluated, kind, actions: int, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters before and after the steps, and every step's loss."""
    config = FQEConfig(
        learning_rate=3e-4, encoder_factory=encoder(), batch_size=BATCH, gamma=GAMMA, target_update_interval=1
    )
    fqe = kind(algo=evaluated, config=config, device="cpu")
    fqe.create_impl((OBSERVATION,), actions)
    before, losses = layers(fqe.impl._modules.q_funcs[0]), []
    for step in range(STEPS):
        rows = {name: torch.tensor(values[step].reshape(BATCH, -1)) for name, values in data.items()}
        rows["rewards"] = (1 - GAMMA) * rows["rewards"]
        unused = {"next_actions": rows["actions"], "returns_to_go": rows["rewards"]}
        batch = TorchMiniBatch(**rows, **unused, intervals=torch.ones(BATCH, 1), device="cpu")
        losses.append(fqe.impl.inner_update(batch, step + 1)["loss"])
    after = layers(fqe.impl._modules.q_funcs[0])
    return {"before": before, "after": after, "losses": np.array(losses, np.float32)}


def main() -> None:
    d3rlpy.seed(0)
    data = minibatches()
    continuous = d3rlpy.algos.TD3PlusBCConfig(actor_encoder_factory=encoder()).create(device="cpu")
    continuous.create_impl((OBSERVATION,), ACTION)
    codes = np.random.default_rng(1).integers(0, COUNT, (STEPS, BATCH, 1)).astype(np.float32)
    discrete = d3rlpy.algos.DQNConfig(encoder_factory=encoder()).create(device="cpu")
    discrete.create_impl((OBSERVATION,), COUNT)
    records = {
        "continuous": recorded(continuous, FQE, ACTION, data) | {"policy": layers(continuous.impl._modules.policy)},
        "discrete": recorded(discrete, DiscreteFQE, COUNT, data | {"actions": codes})
        | {"policy": layers(discrete.impl._modules.q_funcs[0])},
    }
    named = {f"{kind}_{name}": values for kind, record in records.items() for name, values in record.items()}
    np.savez_compressed(sys.argv[1], **data, codes=codes, **named)


if __name__ == "__main__":
    main()
