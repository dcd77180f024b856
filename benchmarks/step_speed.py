"""How quick local steps are: each algorithm, FOVA against the machine's own products, the vote, plain PyTorch.

Everything is measured through `Simulation.round`, as a user meets it. Called by `bench.py`.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from necessary_work import Product, flops, fova_step
from turns import Timer, now, ratios, seconds_of, spread, take_turns

from fova import algorithms
from fova.algorithms.base import Broadcast, unpack
from fova.data.transitions import Episode, Transitions, from_episodes
from fova.federation.engine import RoundSettings
from fova.federation.simulation import Simulation
from fova.spaces import Space

SPACE = Space.unit(17, 6)  # HalfCheetah's
CLIENTS, ROWS = 4, 5000
REPEATS = 20  # of the bare products in a turn, to last about as long as the steps they are compared with


@dataclass(frozen=True)
class Setting:
    name: str
    hidden: tuple[int, ...]
    batch: int
    steps: int  # of every client in one turn

    @property
    def sizes(self) -> dict[str, Any]:
        return {"hidden": self.hidden, "batch_size": self.batch}


PAPER = Setting("3x256, batch 256", (256, 256, 256), 256, steps=40)
SMALL = Setting("2x128, batch 128", (128, 128), 128, steps=100)


def made_up(rows: int, seed: int, space: Space = SPACE) -> Transitions:
    """Random transitions: what they hold does not change how long a step takes."""
    rng = np.random.default_rng(seed)
    return from_episodes(
        [
            Episode(
                observations=rng.normal(size=(rows + 1, space.observation)).astype(np.float32),
                actions=rng.uniform(-1, 1, (rows, space.action.size)).astype(np.float32),
                rewards=rng.normal(size=rows).astype(np.float32),
                terminated=False,
            )
        ]
    )


def round_timer(setting: Setting, algorithm: str = "fova", **settings: Any) -> Timer:
    """Seconds per client-step of a round; the first call compiles."""
    simulation = Simulation(
        algorithms.configure(algorithm, **setting.sizes, **settings),
        {f"client-{i}": made_up(ROWS, i) for i in range(CLIENTS)},
        SPACE,
        RoundSettings(local_steps=setting.steps),
    )
    state = simulation.start()

    def timer() -> float:
        nonlocal state
        began = now()
        state, _ = simulation.round(state)
        jax.block_until_ready(state.broadcast)
        return (now() - began) / (CLIENTS * setting.steps)

    return timer


def working_memory(setting: Setting, **settings: Any) -> float:
    """Megabytes that the compiled step of all clients needs beyond what it is given and gives back."""
    algorithm = algorithms.configure("fova", **setting.sizes, **settings)
    keys = jax.random.split(jax.random.key(0), CLIENTS)
    learners = jax.eval_shape(jax.vmap(lambda key: algorithm.init(key, SPACE)), keys)
    one = jax.eval_shape(lambda key: algorithm.init(key, SPACE), keys[0])
    rows = jax.ShapeDtypeStruct((CLIENTS, setting.batch, pack_width(SPACE)), jnp.float32)

    def step(learner: Any, broadcast: Any, rows: Any, key: Any) -> Any:
        return algorithm.step(learner, broadcast, unpack(rows, SPACE), key)

    broadcast = Broadcast(one.actor, one.critic)
    compiled = jax.jit(jax.vmap(step, (0, None, 0, 0))).lower(learners, broadcast, rows, keys).compile()
    return float(f"{compiled.memory_analysis().temp_size_in_bytes / 1e6:.4g}")


def pack_width(space: Space) -> int:
    """Columns of a packed row: s, a, r, s', a', terminal, whether there is an a'."""
    return 2 * (space.observation + space.action.size) + 3


# --- The machine's own products ---


def product_timers(products: list[Product], clients: int) -> dict[str, Timer]:
    """For each library, seconds per client-step that the products alone take, stacked as the step stacks them."""
    merged: dict[tuple[int, int, int, int], int] = {}
    for count, rows, inner, columns in products:
        merged[count, rows, inner, columns] = merged.get((count, rows, inner, columns), 0) + 1
    multiply = jax.jit(jnp.matmul)
    operands = [
        (
            times,
            np.ones((clients * count, rows, inner), np.float32),
            np.ones((clients * count, inner, columns), np.float32),
        )
        for (count, rows, inner, columns), times in merged.items()
    ]
    on_device = [(times, jnp.asarray(left), jnp.asarray(right)) for times, left, right in operands]

    def xla() -> None:
        for times, left, right in on_device:
            for _ in range(times):
                jax.block_until_ready(multiply(left, right))

    def numpy() -> None:
        for times, left, right in operands:
            for _ in range(times):
                np.matmul(left, right)

    def per_client(work: Any) -> Timer:
        timer = seconds_of(lambda: [work() for _ in range(REPEATS)])
        return lambda: timer() / (clients * REPEATS)

    return {"XLA": per_client(xla), "NumPy": per_client(numpy)}


# --- Plain PyTorch ---


@contextmanager
def torch_timer(interpreter: str | None, setting: Setting) -> Iterator[dict[str, Timer]]:
    """Seconds per client-step of `torch_step.py` in an interpreter that has torch; nothing without one."""
    if interpreter is None:
        yield {}
        return
    sizes = (*SPACE, setting.hidden[0], len(setting.hidden), setting.batch, CLIENTS)
    script = Path(__file__).with_name("torch_step.py")
    with subprocess.Popen(
        [interpreter, str(script), *map(str, sizes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        questions, answers = process.stdin, process.stdout
        assert questions is not None
        assert answers is not None
        answers.readline()  # its version, once it is ready

        def timer() -> float:
            questions.write(f"{setting.steps}\n")
            questions.flush()
            return float(answers.readline()) / (CLIENTS * setting.steps)

        yield {"PyTorch": timer}
        questions.close()


# --- What is reported ---


def fova_against_the_machine(setting: Setting, turns: int, interpreter: str | None) -> dict[str, Any]:
    """The share of the products' own rate that the step reaches, what the vote costs, and plain PyTorch."""
    needed = fova_step(SPACE, setting.hidden, setting.batch)
    without = fova_step(SPACE, setting.hidden, setting.batch, vote=False)
    with torch_timer(interpreter, setting) as torch:
        seconds = take_turns(
            {
                "FOVA": round_timer(setting),
                "no vote": round_timer(setting, vote=False),
                **product_timers(needed, CLIENTS),
                **torch,
            },
            turns,
        )
    best = min(("XLA", "NumPy"), key=lambda library: sorted(seconds[library])[turns // 2])
    report = {
        "necessary_gigaflops": flops(needed) / 1e9,
        "milliseconds": {name: spread([1e3 * s for s in values]) for name, values in seconds.items()},
        "rate_of_products": {
            library: spread([flops(needed) / s / 1e9 for s in seconds[library]]) for library in ("XLA", "NumPy")
        },
        "quickest_products": best,
        "share_of_rate": ratios(seconds[best], seconds["FOVA"]),
        "vote": {
            "extra_flops": flops(needed) / flops(without) - 1,
            "extra_time": {k: v - 1 for k, v in ratios(seconds["FOVA"], seconds["no vote"]).items()},
            "working_megabytes": {"with": working_memory(setting), "without": working_memory(setting, vote=False)},
        },
    }
    if torch:
        report["times_quicker_than_pytorch"] = ratios(seconds["PyTorch"], seconds["FOVA"])
    return report


def each_algorithm(setting: Setting, turns: int) -> dict[str, Any]:
    """Client-steps per second of every algorithm of the package, all with the same networks and batch."""
    short = replace(setting, steps=10)  # CQL-FL and DRPO score thirty actions a row
    timers = {name: round_timer(short, name) for name in algorithms.by_name()}
    return {name: spread([1 / s for s in seconds]) for name, seconds in take_turns(timers, turns).items()}
