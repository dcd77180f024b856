"""The other side of `single_agent_reference.py`: runs in an environment that has d3rlpy, knows nothing of fova.

    python d3rlpy_side.py ROWS.npz td3bc|cql STEPS SEED ENVIRONMENT EPISODES EVALUATION_SEED

ROWS.npz holds observations (already normalised), actions, rewards, terminals and timeouts, and the normaliser
(`mean`, `std`) that playing needs. Prints one JSON line with the returns.
"""

import json
import sys

import d3rlpy
import gymnasium
import numpy as np


def make(name: str):
    hidden = d3rlpy.models.encoders.VectorEncoderFactory(hidden_units=[256, 256])
    common = {"batch_size": 256, "actor_encoder_factory": hidden, "critic_encoder_factory": hidden}
    if name == "td3bc":
        config = d3rlpy.algos.TD3PlusBCConfig(actor_learning_rate=3e-4, critic_learning_rate=3e-4, **common)
    else:
        config = d3rlpy.algos.CQLConfig(
            actor_learning_rate=1e-4,
            critic_learning_rate=3e-4,
            temp_learning_rate=1e-4,
            alpha_learning_rate=0.0,
            initial_alpha=5.0,
            conservative_weight=5.0,
            **common,
        )
    return config.create(device="cpu")


def main() -> None:
    file, name, steps, seed, environment, episodes, first_seed = sys.argv[1:]
    d3rlpy.seed(int(seed))
    data = np.load(file)
    dataset = d3rlpy.dataset.MDPDataset(
        data["observations"], data["actions"], data["rewards"], data["terminals"], data["timeouts"]
    )
    algorithm = make(name)
    algorithm.fit(
        dataset,
        n_steps=int(steps),
        n_steps_per_epoch=int(steps),
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    env, returns = gymnasium.make(environment), []
    for episode in range(int(episodes)):
        observation, _ = env.reset(seed=int(first_seed) + episode)
        total, over = 0.0, False
        while not over:
            seen = ((observation - data["mean"]) / data["std"])[None].astype(np.float32)
            observation, reward, terminated, truncated, _ = env.step(algorithm.predict(seen)[0])
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    print(json.dumps(returns))


if __name__ == "__main__":
    main()
