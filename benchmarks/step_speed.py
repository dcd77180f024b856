"""How quick local steps are: each algorithm, FOVA against the machine's own products, the vote, PyTorch.

Everything is measured through `Simulation.round`, as a user meets it. Called by `bench.py`.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from necessary_work import Product, Sizes, flops, fova_step, of_algorithm
from turns import Timer, now, ratios, seconds_of, spread, take_turns

from fova import algorithms
from fova.algorithms.base import FIELDS, Batch
from fova.data.transitions import Episode, Transitions, from_episodes
from fova.federation.engine import RoundSettings
from fova.federation.simulation import Simulation
from fova.spaces import Space

SPACE = Space.unit(17, 6)  # HalfCheetah's
CLIENTS, ROWS = 4, 5000
RIVAL_CLIENTS = {"3x256, batch 256": (1, 4, 64), "2x128, batch 128": (4,)}  # in the comparison with PyTorch
RIVAL_STEPS = 80  # client-steps in a turn of that comparison
DEAR, SHORT = ("cql-fl", "drpo"), 10  # their rounds are short: they score thirty actions a row
LIBRARIES = ("XLA", "NumPy")  # that take the products alone


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


def round_timer(setting: Setting, algorithm: str = "fova", clients: int = CLIENTS, **settings: Any) -> Timer:
    """Seconds per client-step of a round; the first call compiles."""
    simulation = Simulation(
        algorithms.configure(algorithm, **setting.sizes, **settings),
        {f"client-{i}": made_up(ROWS, i) for i in range(clients)},
        SPACE,
        RoundSettings(local_steps=setting.steps),
    )
    state = simulation.start()

    def timer() -> float:
        nonlocal state
        began = now()
        state, _ = simulation.round(state)
        jax.block_until_ready(state.broadcast)
        return (now() - began) / (clients * setting.steps)

    return timer


def compiled_step(algorithm: Any) -> Any:
    """The compiled step of all clients, of which nothing is run."""
    keys = jax.random.split(jax.random.key(0), CLIENTS)
    learners = jax.eval_shape(jax.vmap(lambda key: algorithm.init(key, SPACE)), keys)
    broadcast = jax.eval_shape(lambda key: algorithm.start(algorithm.init(key, SPACE)).broadcast, keys[0])
    rows = algorithm.stride * algorithm.batch_size
    widths = {"observations": SPACE.observation, "next_observations": SPACE.observation}
    widths |= {"actions": SPACE.action.size, "next_actions": SPACE.action.size}
    shapes = ((CLIENTS, rows, widths[name]) if name in widths else (CLIENTS, rows) for name in FIELDS)
    batch = Batch(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    return jax.jit(jax.vmap(algorithm.step, (0, None, 0, 0))).lower(learners, broadcast, batch, keys).compile()


def working_memory(setting: Setting, **settings: Any) -> float:
    """Megabytes that the compiled step of all clients needs beyond what it is given and gives back."""
    compiled = compiled_step(algorithms.configure("fova", **setting.sizes, **settings))
    return float(f"{compiled.memory_analysis().temp_size_in_bytes / 1e6:.4g}")


# --- The machine's own products ---


def product_timers(products: list[Product], clients: int, repeats: int) -> dict[str, Timer]:
    """For each library, seconds per client-step that the products alone take, stacked as the step stacks them.

    A turn takes them `repeats` times.
    """
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
        timer = seconds_of(lambda: [work() for _ in range(repeats)])
        return lambda: timer() / (clients * repeats)

    return {"XLA": per_client(xla), "NumPy": per_client(numpy)}


# --- PyTorch ---

RIVALS = {"PyTorch": (), "PyTorch compiled": ("compiled",)}  # name -> further arguments of torch_step.py


@contextmanager
def torch_timers(interpreter: str, setting: Setting, clients: int) -> Iterator[dict[str, Timer]]:
    """Seconds per client-step of `torch_step.py`, eager and compiled, in an interpreter that has torch.

    A rival that does not start is left out, with its reason on the screen.
    """
    with ExitStack() as processes:
        timers = {}
        for name, more in RIVALS.items():
            timer = processes.enter_context(_torch_timer(interpreter, setting, clients, more))
            try:
                timer()  # compiles
            except ValueError:
                print(f"  {name} does not run; its message is above", flush=True)
            else:
                timers[name] = timer
        yield timers


@contextmanager
def _torch_timer(interpreter: str, setting: Setting, clients: int, more: tuple[str, ...]) -> Iterator[Timer]:
    layers = (setting.hidden[0], len(setting.hidden))
    sizes = (SPACE.observation, SPACE.action.size, *layers, setting.batch, clients)
    script = Path(__file__).with_name("torch_step.py")
    command = [interpreter, str(script), *map(str, sizes), *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        questions, answers = process.stdin, process.stdout
        assert questions is not None
        assert answers is not None
        answers.readline()  # its version, once it is ready

        def timer() -> float:
            with suppress(BrokenPipeError):  # it has ended; there is no answer either
                questions.write(f"{setting.steps}\n")
                questions.flush()
            return float(answers.readline()) / (clients * setting.steps)

        yield timer
        with suppress(BrokenPipeError):
            questions.close()


# --- What is reported ---


def fova_against_the_machine(setting: Setting, turns: int) -> dict[str, Any]:
    """The share of the products' own rate that the step reaches, and what the vote costs."""
    sizes = Sizes(SPACE, setting.hidden, setting.batch)
    needed, without = fova_step(sizes), fova_step(sizes, vote=False)
    seconds = take_turns(
        {
            "FOVA": round_timer(setting),
            "no vote": round_timer(setting, vote=False),
            **product_timers(needed, CLIENTS, setting.steps),
        },
        turns,
    )
    best = quickest_products(seconds)
    return {
        "necessary_gigaflops": flops(needed) / 1e9,
        "milliseconds": {name: spread([1e3 * s for s in values]) for name, values in seconds.items()},
        "rate_of_products": {
            library: spread([flops(needed) / s / 1e9 for s in seconds[library]]) for library in LIBRARIES
        },
        "quickest_products": best,
        "share_of_rate": ratios(seconds[best], seconds["FOVA"]),
        "vote": {
            "extra_flops": flops(needed) / flops(without) - 1,
            "extra_time": {k: v - 1 for k, v in ratios(seconds["FOVA"], seconds["no vote"]).items()},
            "working_megabytes": {"with": working_memory(setting), "without": working_memory(setting, vote=False)},
        },
    }


def quickest_products(seconds: dict[str, list[float]]) -> str:
    """The library that takes the products in the least time."""
    return min(LIBRARIES, key=lambda library: median(seconds[library]))


def against_pytorch(setting: Setting, turns: int, interpreter: str) -> dict[str, Any]:
    """For few and many clients: milliseconds per client-step, and how many times quicker FOVA is than PyTorch.

    A turn has about as many client-steps for every number of clients, so with many clients a round has few local
    steps, and the work of a round itself counts more.
    """
    report = {}
    for clients in RIVAL_CLIENTS[setting.name]:
        some = replace(setting, steps=max(4, RIVAL_STEPS // clients))
        with torch_timers(interpreter, some, clients) as torch:
            seconds = take_turns({"FOVA": round_timer(some, clients=clients), **torch}, turns)
        report[str(clients)] = {
            "milliseconds": {name: spread([1e3 * s for s in values]) for name, values in seconds.items()},
            "times_quicker": {name: ratios(seconds[name], seconds["FOVA"]) for name in torch},
        }
        print(f"  {setting.name}, {clients} clients: {report[str(clients)]['times_quicker']}", flush=True)
    return report


def each_algorithm(setting: Setting, turns: int) -> dict[str, Any]:
    """Client-steps per second of every algorithm of the package, all with the same networks and batch."""
    timers = {name: algorithm_timer(setting, name) for name in algorithms.by_name()}
    return {name: spread([1 / s for s in seconds]) for name, seconds in take_turns(timers, turns).items()}


# CQL-FL and DRPO also as presets that score or differentiate fewer actions
COMPARED = [(name, None) for name in algorithms.by_name()] + [("cql-fl", "assisted"), ("drpo", "assisted")]


def shares_of_rate(setting: Setting, turns: int) -> dict[str, Any]:
    """For every algorithm: operations, time as a multiple of FOVA's, and the share of the products' own rate."""
    fova = algorithm_timer(setting, "fova")
    report = {}
    for name, preset in COMPARED:
        algorithm = algorithms.configure(name, preset, **setting.sizes)
        needed = of_algorithm(algorithm, SPACE)
        timers = {"step": algorithm_timer(setting, name, preset), "FOVA": fova}
        repeats = (SHORT if name in DEAR else setting.steps) // 4
        seconds = take_turns(timers | product_timers(needed, CLIENTS, repeats), turns)
        products = [s / algorithm.stride for s in seconds[quickest_products(seconds)]]
        label = name if preset is None else f"{name} ({preset})"
        report[label] = {
            "necessary_gigaflops": float(f"{flops(needed) / algorithm.stride / 1e9:.4g}"),
            "times_fova": ratios(seconds["step"], seconds["FOVA"]),
            "share_of_rate": ratios(products, seconds["step"]),
        }
        print(f"  {setting.name}, {label}: {report[label]['share_of_rate']['median']:.0%} of the rate", flush=True)
    return report


def algorithm_timer(setting: Setting, name: str, preset: str | None = None) -> Timer:
    """Seconds per client-step of an algorithm. CQL-FL and DRPO have short rounds."""
    steps = SHORT if name in DEAR else setting.steps
    return round_timer(replace(setting, steps=steps), name, preset=preset)
