"""The paper's tables and figures, each as one entry. Data only.

If the paper does not state a setting, `source` says so and names the value that is used. `full` is the paper's own
setting as far as it is known: networks, batch size and learning rates are the algorithms' defaults; rounds and
clients are those of the authors' program. `small` is a reduced setting for two cores. `quick` only shows that an
entry works.
"""

from dataclasses import replace

from fova.experiments.specifications import Case, Entry, Scale, Variant
from fova.federation.client_specs import ClientSpec

# --- Scales ---------------------------------------------------------------------------------------------

QUICK = Scale(
    "quick",
    seeds=1,
    run={"rounds": 2, "local_steps": 4, "evaluate_every": 1, "episodes": 1, "final_episodes": 1},
    settings={"hidden": (16,), "batch_size": 16},
    most_rows=300,
    most_cases=2,
)
# The same width, batch size and learning rates for every algorithm. CQL-FL and DRPO score 3 actions of each source
# instead of 10. With 10, one of their runs takes as long as four to five runs of FOVA.
SMALL = Scale(
    "small",
    seeds=3,
    run={"rounds": 40, "local_steps": 100, "evaluate_every": 10, "episodes": 5, "final_episodes": 20},
    settings={"hidden": (128, 128), "batch_size": 128, "actor_lr": 3e-4, "critic_lr": 3e-4, "samples": 3},
)
FULL = Scale(
    "full",
    seeds=5,
    run={"rounds": 1000, "local_steps": 100, "evaluate_every": 25, "episodes": 10, "final_episodes": 20},
)
SCALES = {scale.name: scale for scale in (QUICK, SMALL, FULL)}


def _with_rounds(**rounds: int) -> dict[str, Scale]:
    return {
        name: replace(scale, run={**scale.run, "rounds": rounds.get(name, scale.run["rounds"])})
        for name, scale in SCALES.items()
    }


# --- Lines ----------------------------------------------------------------------------------------------

RECOMMENDED = Variant("fova", "fova", paper="fova")  # this package's default
PRINTED = Variant("fova (equations)", "fova", preset="equations", paper="fova")  # the paper's text
RELEASED = Variant("fova (released)", "fova", preset="released", paper="fova")  # the authors' program
FEDORA = Variant("fedora", "fedora", paper="fedora")
DRPO = Variant("drpo", "drpo", paper="drpo")
CQL = Variant("cql-fl", "cql-fl", paper="cql-fl")
TD3BC = Variant("fed-td3bc", "fed-td3bc", paper="fed-td3bc")

OURS = (RECOMMENDED, PRINTED)
FOVA_AND_TWO = (*OURS, FEDORA, DRPO)  # the paper's figures compare FOVA with these two
ALL = (*FOVA_AND_TWO, CQL, TD3BC)

LOCOMOTION = ("halfcheetah", "hopper", "walker2d", "ant")
SIZES = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
# The paper does not state the values of its sweeps. It also does not state the task of the sweeps and of the
# data-size figure. Hopper is used because it learns early.
SWEPT = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
TUNED_ON = ("hopper", ("medium-expert",) * 4)


def _locomotion_rows() -> tuple[Case, ...]:
    return tuple(
        Case(f"{task} {quality}", task, (quality,) * 5, 10_000, paper=f"{task} {quality}")
        for quality in ("medium-replay", "medium", "medium-expert", "expert")
        for task in LOCOMOTION
    )


def _maze_rows() -> tuple[Case, ...]:
    return tuple(
        Case(f"{maze} {reward}", task, ("undirected",) * 5, 10_000, paper=f"{maze} {reward}")
        for reward, ending in (("sparse", ""), ("dense", "-dense"))
        for maze in ("umaze", "medium", "large")
        for task in (f"maze2d-{maze}{ending}",)
    )


def _two_and_two(task: str, low: str) -> Case:
    return Case(f"{task} expert + {low}", task, ("expert", "expert", low, low), 5_000)


def _sweep(name: str, other: str) -> tuple[Case, ...]:
    task, clients = TUNED_ON
    return tuple(
        Case(f"{name} {value:g}", task, clients, 5_000, settings={name: value, other: 1.0}, at=value)
        for value in SWEPT
    )


def _deals(task: str) -> tuple[Case, ...]:
    """The same rows twice: 6,000 of an expert and 6,000 of a medium policy, dealt out by quality or evenly."""
    starts = (0, 3_000)
    mixed = tuple(ClientSpec(quality, offset=start) for quality in ("medium", "expert") for start in starts)
    even = tuple(ClientSpec("medium:50+expert:50", offset=3_000 * i, name=f"half-{i + 1}") for i in range(4))
    return (
        Case(f"{task}: 2 medium, 2 expert", task, mixed, 3_000),
        Case(f"{task}: 4 of both", task, even, 3_000),
    )


def _sizes(task: str, clients: tuple[str, ...]) -> tuple[Case, ...]:
    return tuple(Case(f"{size:,} each", task, clients, size, at=size) for size in SIZES)


def _drpo_and_mixing(task: str) -> tuple[Case, ...]:
    return (
        Case(f"{task} expert only", task, ("expert", "expert"), 5_000, variants=(DRPO,)),
        *(
            Case(f"{task} expert + {low}", task, ("expert", "expert", low, low), 5_000, variants=(DRPO, *OURS))
            for low in ("random", "medium")
        ),
    )


# --- Entries --------------------------------------------------------------------------------------------

ENTRIES = (
    Entry(
        "compare",
        "Five algorithms on uniform quality: locomotion and mazes",
        (*_locomotion_rows(), *_maze_rows()),
        (*OURS, RELEASED, FEDORA, DRPO, CQL, TD3BC),
        SCALES,
        source="table 'compare'; 5 clients of 10,000 transitions as in the authors' program",
    ),
    Entry(
        "mixed-or-uniform",
        "The same 12,000 transitions, dealt out by quality or evenly",
        tuple(case for task in ("hopper", "halfcheetah", "walker2d", "ant") for case in _deals(task)),
        ALL,
        SCALES,
        run={"evaluate_clients": True},
        measured="every client",
        source="figures 'intro' and 'moti-heter' (hopper); supplement II for the other robots",
    ),
    Entry(
        "server-or-clients",
        "The server's policy against the mean of its clients along training",
        (Case("hopper medium-replay", "hopper", ("medium-replay",) * 4, 3_000),),
        (*FOVA_AND_TWO, CQL),
        SCALES,
        run={"evaluate_clients": True},
        measured="server minus mean client",
        source="figures 'intro-incon' and 'incon-cover'",
    ),
    Entry(
        "server-or-clients-robots",
        "The server's policy against the mean of its clients: four robots, four qualities",
        tuple(
            Case(f"{task} {quality}", task, (quality,) * 4, 3_000)
            for task in LOCOMOTION
            for quality in ("medium-replay", "medium", "medium-expert", "expert")
        ),
        FOVA_AND_TWO,
        SCALES,
        run={"evaluate_clients": True},
        measured="server minus mean client",
        source="supplement I; the size of the data is that of figure 'intro-incon'",
    ),
    Entry(
        "server-or-clients-by-size",
        "The server's policy against the mean of its clients, by size of data",
        _sizes("walker2d", ("medium-expert",) * 5),
        FOVA_AND_TWO,
        SCALES,
        axis="transitions of each client",
        measured="server minus mean client",
        source="figure 'incon-datasize'",
    ),
    Entry(
        "mixed-curves",
        "Learning curves with two expert and two medium or random clients",
        tuple(_two_and_two(task, low) for low in ("random", "medium") for task in LOCOMOTION),
        FOVA_AND_TWO,
        SCALES,
        source="figure 'compare'; the size of the data is not given, 5,000 is taken",
    ),
    Entry(
        "client-curves",
        "Learning curves of every client with expert and random data",
        (_two_and_two("walker2d", "random"),),
        (DRPO, *OURS),
        SCALES,
        run={"evaluate_clients": True},
        measured="every client",
        source="figure 'Walker2d-fova'",
    ),
    Entry(
        "clients",
        "Number of clients, half with expert and half with random data",
        tuple(
            Case(f"{count} clients", "hopper", ("expert", "random") * (count // 2), 5_000, at=count)
            for count in (2, 4, 6, 8, 10)
        ),
        FOVA_AND_TWO,
        SCALES,
        axis="clients",
        source="figures 'mix-K' and 'noc'",
    ),
    Entry(
        "mixing-hurts",
        "DRPO with expert clients alone, DRPO with mixed clients, FOVA with mixed clients",
        (*_drpo_and_mixing("hopper"), *_drpo_and_mixing("walker2d")),
        (),
        SCALES,
        source="figures 'intro-hopper' and 'intro1-walker2d'",
    ),
    Entry(
        "continual",
        "Data whose quality changes: random, random, expert, expert, replay, replay, medium, medium",
        tuple(
            Case(
                task, task, tuple(ClientSpec("random", name=f"client-{i}") for i in range(1, 5)), 5_000, paper=task
            )
            for task in ("walker2d", "ant", "halfcheetah", "hopper")
        ),
        (
            Variant("vote + L2", "fova", "equations", {"continual": 1.0}, paper="vote+l2"),
            Variant("vote", "fova", "equations", paper="vote"),
            Variant("L2", "fova", "equations", {"vote": False, "continual": 1.0}, paper="l2"),
            Variant("vanilla", "fova", "equations", {"vote": False}, paper="vanilla"),
        ),
        _with_rounds(quick=8, small=80),
        run={"data_sequence": tuple(q for q in ("random", "expert", "medium-replay", "medium") for _ in range(2))},
        measured="PER and BWT",
        source="table 'cl'; alpha_2 and the size of the data are not given, 1 and 5,000 are taken",
    ),
    Entry(
        "lambda",
        "Weight of imitation, with beta = 1",
        _sweep("lam", "beta"),
        (PRINTED,),
        SCALES,
        axis="lambda",
        source="figure 'parameter'",
    ),
    Entry(
        "beta",
        "Temperature of the imitation weights, with lambda = 1",
        _sweep("beta", "lam"),
        (PRINTED,),
        SCALES,
        axis="beta",
        source="figure 'parameter'",
    ),
    Entry(
        "size",
        "Transitions of each of four clients",
        _sizes(*TUNED_ON),
        FOVA_AND_TWO,
        SCALES,
        axis="transitions of each client",
        source="figure 'datasize'",
    ),
    Entry(
        "ablation",
        "FOVA without the vote, without AWR, without imitation",
        (Case("walker2d medium-expert", "walker2d", ("medium-expert",) * 5, 10_000),),
        (
            PRINTED,
            Variant("no vote", "fova", "equations", {"vote": False}),
            Variant("no AWR", "fova", "equations", {"awr": False}),
            Variant("no imitation", "fova", "equations", {"lam": 0.0}),
        ),
        SCALES,
        source="figure 'Ablation'",
    ),
    Entry(
        "cost",
        "Memory and time of every algorithm on Adroit",
        tuple(Case(task, task, ("random",) * 4, 5_000) for task in ("pen", "door", "hammer", "relocate")),
        (
            TD3BC,
            replace(CQL, settings={"samples": 10}),  # timed as published, at every scale
            FEDORA,
            replace(DRPO, settings={"samples": 10}),
            Variant("fova without vote", "fova", "equations", {"vote": False}, paper="fova-without-vote"),
            PRINTED,
        ),
        _with_rounds(small=10),
        measured="memory and time",
        source="table 'gpu_comparison'; its clients are not given, 4 with 5,000 random transitions are taken",
    ),
    Entry(
        "distance",
        "Total variation between each client's policy and the global one",
        (Case("hopper medium-replay", "hopper", ("medium-replay",) * 4, 3_000),),
        (*ALL, Variant("drpo without the server's term", "drpo", settings={"eta": 1.0})),
        SCALES,
        measured="distance to the global policy",
        source="figure 'moti-incon'",
    ),
)
