"""How much quicker data is made side by side than one step at a time, as a ratio measured in one run.

    python benchmarks/generation.py [TASK ...]

The plain loop is what one would write first: one Gymnasium environment, one policy call per step. Both sides play
the same behaviour and take turns; of each side the shortest turn counts, since other programs on the machine only
ever make a turn longer. The ratio of processor time is what is left where the threads find no idle processor.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

from fova.tasks import datasets, registry
from fova.tasks.behaviour_policy import load_behaviour
from fova.tasks.locomotion import LOCOMOTION_TASKS

STEPS = 4000
TURNS = 5


def plain(task_name: str, quality: str, steps: int) -> int:
    """Steps of the plain loop."""
    rng = np.random.default_rng(0)
    environment = registry.get(task_name).make()
    policy = None if quality == "random" else load_behaviour(task_name, quality)
    observation, _ = environment.reset(seed=0)
    rows = []
    for _ in range(steps):
        if policy is None:
            action = rng.uniform(-1.0, 1.0, environment.action_space.shape).astype(np.float32)
        else:
            action = policy.sample(observation, rng)
        following, reward, terminated, truncated, _ = environment.step(action)
        rows.append((observation, action, reward, following, terminated))
        observation = environment.reset()[0] if terminated or truncated else following
    return len(rows)


def side_by_side(task_name: str, quality: str, steps: int) -> int:
    """Steps as `fova data make` makes them. What is played beyond those counts as time, not as steps."""
    return sum(map(len, datasets.make_episodes(registry.get(task_name), quality, steps, seed=0)))


def microseconds_per_step(
    make: Callable[[str, str, int], int], task_name: str, quality: str, steps: int
) -> tuple[float, float]:
    """On the clock, and of processor time over all threads."""
    began, used = time.perf_counter(), time.process_time()
    made = make(task_name, quality, steps)
    return 1e6 * (time.perf_counter() - began) / made, 1e6 * (time.process_time() - used) / made


def main() -> None:
    for task_name in sys.argv[1:] or LOCOMOTION_TASKS:
        quality = "expert" if "expert" in registry.get(task_name).qualities else "random"
        turns = [
            (
                microseconds_per_step(plain, task_name, quality, STEPS),
                microseconds_per_step(side_by_side, task_name, quality, 4 * STEPS),
            )
            for _ in range(TURNS)
        ]
        slow, quick = (np.min([turn[side] for turn in turns], axis=0) for side in (0, 1))
        print(
            f"{task_name}/{quality}: plain loop {slow[0]:.0f} us a step, side by side {quick[0]:.0f} us: "
            f"{slow[0] / quick[0]:.1f} times as quick ({slow[1] / quick[1]:.1f} in processor time)"
        )


if __name__ == "__main__":
    main()
