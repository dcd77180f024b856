"""What a client costs the server in a round: bytes of a message, and the time to merge a submission.

From these pieces `performance_page.py` computes the table of docs/large-federations.md. Called by `bench.py`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from step_speed import PAPER, SMALL, SPACE, Setting
from turns import seconds_of, spread, take_turns

from fova import algorithms
from fova.algorithms.base import Submission
from fova.federation import rounds
from fova.federation.aggregation import AGGREGATIONS
from fova.federation.wire import payload_bytes

TOGETHER = 64


def server_work(turns: int) -> dict[str, Any]:
    return {setting.name: _one(setting, turns) for setting in (PAPER, SMALL)}


def _one(setting: Setting, turns: int) -> dict[str, Any]:
    algorithm = algorithms.configure("fova", **setting.sizes)
    _, server = rounds.start(algorithm, SPACE, jax.random.key(0))
    broadcast = server.broadcast
    parameters = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], TOGETHER, axis=0), broadcast)
    submissions = Submission(parameters, jnp.zeros(TOGETHER), {})
    merge = jax.jit(partial(rounds.combine, algorithm, AGGREGATIONS["algorithm"]))
    work = seconds_of(lambda: jax.block_until_ready(merge(submissions)))
    seconds = take_turns({"merge": work}, turns)["merge"]
    return {
        "bytes_each_way": payload_bytes(broadcast),
        "merge_milliseconds_per_client": spread([1e3 * s / TOGETHER for s in seconds]),
    }
