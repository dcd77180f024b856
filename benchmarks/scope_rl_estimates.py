"""Records estimates of SCOPE-RL on made-up episodes. `tests/evaluation/judging/test_scope_rl.py` repeats them.

    reference/bin/python benchmarks/scope_rl_estimates.py tests/evaluation/judging/scope_rl_estimates.npz

Runs in an environment that has scope-rl 0.2.1, and knows nothing of fova. SCOPE-RL takes episodes of equal length
only. Here some end early: from then on the log and the policy take action 0 for sure, which pays and is worth
nothing, so every ratio is 1.
"""

import sys

import numpy as np
from scope_rl.ope.discrete import (
    DoublyRobust,
    PerDecisionImportanceSampling,
    SelfNormalizedDR,
    SelfNormalizedPDIS,
)

EPISODES, STEPS, ACTIONS, GAMMA = 12, 7, 3, 0.9
ESTIMATORS = {
    "importance_sampling": PerDecisionImportanceSampling,
    "weighted_importance_sampling": SelfNormalizedPDIS,
    "doubly_robust": DoublyRobust,
    "weighted_doubly_robust": SelfNormalizedDR,
}


def made_up() -> dict[str, np.ndarray]:
    """Logged episodes, the policy's probabilities and a model of its values, all [episodes, steps, ...]."""
    rng = np.random.default_rng(0)
    shape = (EPISODES, STEPS)
    lengths = rng.integers(2, STEPS + 1, EPISODES)
    lengths[:3] = STEPS
    ended = np.arange(STEPS) >= lengths[:, None]
    behaviour, policy = (rng.dirichlet(np.full(ACTIONS, 2.0), shape) for _ in range(2))
    actions = np.array([rng.choice(ACTIONS, p=p) for p in behaviour.reshape(-1, ACTIONS)]).reshape(shape)
    actions[ended] = 0
    for probabilities in (behaviour, policy):
        probabilities[ended] = np.eye(ACTIONS)[0]
    return {
        "lengths": lengths,
        "actions": actions,
        "rewards": np.where(ended, 0.0, rng.normal(1.0, 1.0, shape)),
        "taken": np.take_along_axis(behaviour, actions[..., None], axis=2)[..., 0],
        "policy": policy,
        "q": np.where(ended[..., None], 0.0, rng.normal(3.0, 1.0, (*shape, ACTIONS))),
    }


def estimates(data: dict[str, np.ndarray]) -> dict[str, float]:
    arguments = {
        "step_per_trajectory": STEPS,
        "action": data["actions"].ravel(),
        "reward": data["rewards"].ravel(),
        "pscore": data["taken"].ravel(),
        "evaluation_policy_action_dist": data["policy"].reshape(-1, ACTIONS),
        "state_action_value_prediction": data["q"].reshape(-1, ACTIONS),
        "gamma": GAMMA,
    }
    return {name: kind().estimate_policy_value(**arguments) for name, kind in ESTIMATORS.items()}


def main() -> None:
    data = made_up()
    np.savez_compressed(sys.argv[1], gamma=GAMMA, **data, **estimates(data))


if __name__ == "__main__":
    main()
