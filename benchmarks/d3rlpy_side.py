"""The other side of `single_agent_reference.py`: runs in an environment that has d3rlpy, knows nothing of fova.

    python d3rlpy_side.py ROWS.npz SETTING.json

ROWS.npz holds observations (already normalised), actions, rewards, terminals and timeouts, and the normaliser
(`mean`, `std`) that playing needs. SETTING.json is what both sides are told. Prints one JSON line: the mean return
at each evaluation.
"""

import json
import sys
from pathlib import Path

import d3rlpy
import gymnasium
import numpy as np


def make(setting):
    hidden = d3rlpy.models.encoders.VectorEncoderFactory(hidden_units=setting["hidden"])
    common = {
        "batch_size": setting["batch_size"],
        "actor_learning_rate": setting["actor_lr"],
        "critic_learning_rate": setting["critic_lr"],
        "actor_encoder_factory": hidden,
        "critic_encoder_factory": hidden,
    }
    if setting["algorithm"] == "td3bc":
        return d3rlpy.algos.TD3PlusBCConfig(**common).create(device="cpu")
    # d3rlpy multiplies a learned alpha with a fixed weight: held at 1, the weight alone is CQL's alpha.
    return d3rlpy.algos.CQLConfig(
        temp_learning_rate=setting["actor_lr"],
        alpha_learning_rate=0.0,
        initial_alpha=1.0,
        conservative_weight=5.0,
        **common,
    ).create(device="cpu")


def play(algorithm, setting, mean, std) -> float:
    """The mean return of the best actions; all episodes are asked for their actions in one call."""
    environments = [gymnasium.make(setting["environment"]) for _ in range(setting["episodes"])]
    seen = np.stack([env.reset(seed=setting["evaluation_seed"] + i)[0] for i, env in enumerate(environments)])
    returns, running = np.zeros(len(environments)), list(range(len(environments)))
    while running:
        actions = algorithm.predict(((seen - mean) / std).astype(np.float32))
        still_running = []
        for i in running:
            seen[i], reward, terminated, truncated, _ = environments[i].step(actions[i])
            returns[i] += float(reward)
            if not (terminated or truncated):
                still_running.append(i)
        running = still_running
    return float(returns.mean())


def main() -> None:
    data, setting = np.load(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    d3rlpy.seed(setting["seed"])
    dataset = d3rlpy.dataset.MDPDataset(
        data["observations"], data["actions"], data["rewards"], data["terminals"], data["timeouts"]
    )
    algorithm = make(setting)
    epochs = algorithm.fitter(
        dataset,
        n_steps=setting["steps"],
        n_steps_per_epoch=setting["steps"] // setting["evaluations"],
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    print(json.dumps([play(algorithm, setting, data["mean"], data["std"]) for _ in epochs]))


if __name__ == "__main__":
    main()
