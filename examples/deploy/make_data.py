"""Two files of logged decisions, as two clients might have them: north an expert's, south random ones.

python examples/deploy/make_data.py [ROWS]
"""

import sys

import numpy as np

from fova.tasks import datasets, registry

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
for name, quality in (("north", "expert"), ("south", "random")):
    data = datasets.made(registry.get("maze2d-umaze"), quality, rows, seed=0)[:rows]
    np.savez(
        f"{name}.npz",
        observations=data.observations,
        actions=data.actions,
        rewards=data.rewards,
        next_observations=data.next_observations,
        terminals=data.terminals > 0,
        timeouts=data.episode_ends & (data.terminals == 0),
    )
    print(f"{name}.npz: {len(data)} steps of {quality} driving in a maze")
