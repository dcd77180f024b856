"""Records steps of d3rlpy's DiscreteBC and DiscreteCQL, which `tests/algorithms/discrete` repeats with ours.

    reference/bin/python benchmarks/d3rlpy_discrete_steps.py tests/algorithms/discrete/d3rlpy_discrete_steps.npz

Runs in an environment that has d3rlpy, knows nothing of fova. Made-up minibatches and tiny networks. The target
network of CQL is another random network and stays as it is, so that the action and its value come from different
networks. Rewards and values are small: d3rlpy's Huber loss is then half the squared error, which is checked.
"""

import sys

import d3rlpy
import numpy as np
import torch
from d3rlpy.torch_utility import TorchMiniBatch
from d3rlpy_steps import layers

OBSERVATION, ACTIONS, HIDDEN, BATCH, STEPS, ALPHA = 3, 4, [6, 5], 8, 20, 1.5


def minibatches() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    drawn = {
        "observations": rng.uniform(-1, 1, size=(STEPS, BATCH, OBSERVATION)),
        "actions": rng.integers(0, ACTIONS, size=(STEPS, BATCH, 1)),
        "rewards": rng.uniform(-0.2, 0.2, size=(STEPS, BATCH)),
        "next_observations": rng.uniform(-1, 1, size=(STEPS, BATCH, OBSERVATION)),
        "terminals": rng.random((STEPS, BATCH)) < 0.2,
    }
    return {name: values.astype(np.float32) for name, values in drawn.items()}


def created(config) -> object:
    algorithm = config.create(device="cpu")
    algorithm.create_impl((OBSERVATION,), ACTIONS)
    return algorithm.impl


def steps(impl, data, key: str) -> np.ndarray:
    losses = []
    for step in range(STEPS):
        rows = {name: torch.tensor(values[step].reshape(BATCH, -1)) for name, values in data.items()}
        unused = {"next_actions": rows["actions"], "returns_to_go": rows["rewards"]}
        batch = TorchMiniBatch(**rows, **unused, intervals=torch.ones(BATCH, 1), device="cpu")
        losses.append(impl.inner_update(batch, step + 1)[key])
    return np.array(losses, np.float32)


def cloning(data, encoder) -> dict[str, np.ndarray]:
    impl = created(
        d3rlpy.algos.DiscreteBCConfig(learning_rate=3e-4, batch_size=BATCH, beta=0.0, encoder_factory=encoder)
    )
    before = layers(impl._modules.imitator)
    losses = steps(impl, data, "loss")
    return {"bc_before": before, "bc_losses": losses, "bc_after": layers(impl._modules.imitator)}


def largest_td_error(impl, data) -> float:
    largest = 0.0
    for step in range(STEPS):
        rows = {name: torch.tensor(values[step].reshape(BATCH, -1)) for name, values in data.items()}
        q = impl._q_func_forwarder.compute_expected_q(rows["observations"]).gather(1, rows["actions"].long())
        best = impl.inner_predict_best_action(rows["next_observations"])
        next_q = impl._targ_q_func_forwarder.compute_target(rows["next_observations"], best)
        y = rows["rewards"] + 0.99 * (1 - rows["terminals"]) * next_q
        largest = max(largest, float((q - y).detach().abs().max()))
    return largest


def conservative(data, encoder) -> dict[str, np.ndarray]:
    config = d3rlpy.algos.DiscreteCQLConfig(
        learning_rate=3e-4, batch_size=BATCH, alpha=ALPHA, encoder_factory=encoder, target_update_interval=STEPS + 1
    )
    impl, other = created(config), created(config)
    (q,), (target,) = impl._modules.q_funcs, impl._modules.targ_q_funcs
    target.load_state_dict(other._modules.q_funcs[0].state_dict())
    with torch.no_grad():
        for last in (*list(q.parameters())[-2:], *list(target.parameters())[-2:]):
            last *= 0.5
    before, slow = layers(q), layers(target)
    assert largest_td_error(impl, data) < 1.0
    losses = steps(impl, data, "loss")
    assert largest_td_error(impl, data) < 1.0
    return {"cql_before": before, "cql_target": slow, "cql_losses": losses, "cql_after": layers(q)}


def main() -> None:
    d3rlpy.seed(0)
    encoder = d3rlpy.models.encoders.VectorEncoderFactory(hidden_units=HIDDEN)
    data = minibatches()
    np.savez_compressed(sys.argv[1], alpha=ALPHA, **data, **cloning(data, encoder), **conservative(data, encoder))


if __name__ == "__main__":
    main()
