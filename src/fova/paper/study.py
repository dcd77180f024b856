"""Our own study of clients of mixed quality: whether FOVA is best, and why. It goes beyond the paper. Data only.

Every algorithm gets the same networks, minibatches, learning rates and gradient steps. The baselines of the main
entry have LayerNorm in their critics, as FOVA does. They were published without it, but need it on datasets of this
size. A separate entry runs them as published.
"""

from dataclasses import replace

from fova.experiments.specifications import Case, Entry, Scale, Variant
from fova.paper.experiments import QUICK

# CQL-FL and DRPO score 3 actions of each source instead of 10, as in the small scale of the paper's entries.
SMALL = Scale(
    "small",
    seeds=3,
    run={"rounds": 50, "local_steps": 100, "evaluate_every": 10, "episodes": 10, "final_episodes": 20},
    settings={"hidden": (128, 128), "batch_size": 128, "actor_lr": 3e-4, "critic_lr": 3e-4, "samples": 3},
)
SCALES = {scale.name: scale for scale in (QUICK, SMALL)}
# The clients' own policies are not played: the table compares servers.
FIVE_SEEDS = {"quick": QUICK, "small": replace(SMALL, seeds=5, run={**SMALL.run, "final_clients": False})}
# Walker2d learns late: even behaviour cloning of four experts falls during the first 5,000 steps.
LONGER = {"quick": QUICK, "small": replace(SMALL, run={**SMALL.run, "rounds": 100})}

# Four times as many rounds: where do the curves flatten, and does the order of the algorithms stay?
FOUR_TIMES = {
    "quick": QUICK,
    "small": replace(FIVE_SEEDS["small"], run={**FIVE_SEEDS["small"].run, "rounds": 200, "evaluate_every": 20}),
}
# As many steps as the paper has.
TWENTY_TIMES = {
    "quick": QUICK,
    "small": replace(
        FIVE_SEEDS["small"], seeds=1, run={**FIVE_SEEDS["small"].run, "rounds": 1000, "evaluate_every": 50}
    ),
}

# The paper's width, learning rates and number of steps. Minibatches have 64 transitions to fit a CPU.
PAPER_WIDTH = {
    "quick": QUICK,
    "full": Scale(
        "full",
        seeds=1,
        run={"rounds": 1000, "local_steps": 100, "evaluate_every": 50, "episodes": 10, "final_episodes": 20},
        settings={"hidden": (256, 256, 256), "batch_size": 64},
    ),
}

RECOMMENDED = Variant("fova", "fova")
EQUATIONS = Variant("fova (equations)", "fova", preset="equations")
RELEASED = Variant("fova (released)", "fova", preset="released")
BASELINES = (
    Variant("fedora", "fedora", preset="layer-norm"),
    Variant("fed-td3bc", "fed-td3bc", preset="layer-norm"),
    Variant("fed-bc", "fed-bc"),
)
IQL = Variant("fed-iql", "fed-iql", preset="layer-norm")

# What the recommended preset does about good and bad episodes inside one client, each part removed in turn.
INSIDE_CHANGES = (
    RECOMMENDED,
    Variant("without data returns", "fova", settings={"data_returns": False}),
    Variant("without relative weights", "fova", settings={"relative_weights": False}),
    Variant("without both", "fova", settings={"data_returns": False, "relative_weights": False}),
    Variant("the last policy", "fova", run={"average_rounds": 1}),
    Variant("fed-bc, the last policy", "fed-bc", run={"average_rounds": 1, "aggregation": "returns"}),
)

# The paper's ablation of the vote, with the recommended preset: the client's own action wins everywhere.
VOTE = (RECOMMENDED, Variant("without the vote", "fova", settings={"vote": False}))

# The same help for everybody: every rival weights clients by the returns in their data, as FOVA does.
SAME_WEIGHTS = tuple(
    Variant(f"{name} (returns)", name, preset=preset, run={"aggregation": "returns"})
    for name, preset in (
        ("fed-bc", None),
        ("fed-iql", "layer-norm"),
        ("fedora", "layer-norm"),
        ("fed-td3bc", "layer-norm"),
    )
)

# The same rivals, whose critics also learn in the federation's unit of reward, as FOVA's do.
SAME_UNIT = tuple(
    replace(variant, label=f"{variant.label[:-1]}, unit)", run={**variant.run, "reward_unit": "federation"})
    for variant in SAME_WEIGHTS[1:]  # cloning has no critics
)

# The same weights for episodes inside a client, too: rows of episodes that earned more are trained on more often.
SAME_EPISODES = tuple(
    replace(
        variant, label=f"{variant.label.removesuffix(')')}, episodes)", run={**variant.run, "sampling": "returns"}
    )
    for variant in SAME_WEIGHTS
)
FOVA_EPISODES = replace(RECOMMENDED, label="fova (advantages, episodes)", run={"sampling": "returns"})
GOOD_EPISODES = Variant("fova (good-episodes)", "fova", preset="good-episodes")
# What its parts are worth, each changed alone.
GOOD_EPISODES_CHANGES = (
    GOOD_EPISODES,
    replace(GOOD_EPISODES, label="without the vote", settings={"vote": False}),
    replace(GOOD_EPISODES, label="with advantage weights", settings={"awr": True}),
    replace(GOOD_EPISODES, label="lambda 10", settings={"lam": "auto"}),
    replace(GOOD_EPISODES, label="lambda 1", settings={"lam": 1.0}),
)
WITH_EPISODES = (FOVA_EPISODES, GOOD_EPISODES, *SAME_EPISODES)


def _with_actor_rate(variant: Variant) -> Variant:
    label = variant.label
    label = f"{label[:-1]}, actor 1e-3)" if label.endswith(")") else f"{label} (actor 1e-3)"
    return replace(variant, label=label, settings={**variant.settings, "actor_lr": 1e-3})


# Three times the actor's learning rate: FOVA, and the strongest rivals with weights for clients and episodes.
STRONGEST = (RECOMMENDED, GOOD_EPISODES, SAME_EPISODES[0], *SAME_WEIGHTS[:2])
ACTOR_RATE = tuple(_with_actor_rate(variant) for variant in STRONGEST)

# The two dear rivals with FOVA's client weights, FOVA's actor and LayerNorm in their critics.
DEAR = tuple(
    Variant(f"{name} (returns)", name, preset="assisted", run={"aggregation": "returns"})
    for name in ("cql-fl", "drpo")
)

# Gaussian actors with one standard deviation for all states: rows that are hard to predict count like all others.
SHARED_STD = (
    Variant("fova, shared std", "fova", settings={"shared_std": True}),
    *(
        replace(variant, label=f"{variant.label[:-1]}, shared std)", settings={"shared_std": True})
        for variant in SAME_WEIGHTS[:2]
    ),
)

OTHERS = (
    Variant("fedora (published)", "fedora"),
    Variant("fed-td3bc (published)", "fed-td3bc"),
    Variant("fed-iql", "fed-iql"),
    Variant("cql-fl", "cql-fl", preset="paper"),
    Variant("drpo", "drpo", preset="paper"),
)


# Two groups of cases: some client's data is good as a whole and could be cloned, or none is.
DIFFERENT, NONE_GOOD = "clients differ", "no client is good"


def _mixtures(*tasks: str) -> tuple[Case, ...]:
    return tuple(
        Case(f"{task} expert + {low}", task, ("expert", "expert", low, low), 5_000, group=DIFFERENT)
        for low in ("random", "medium")
        for task in tasks
    )


MIXED = _mixtures("hopper", "halfcheetah")
# Each client's data covers one half of the way to the goal. Only the near half has rewards.
COMPLEMENTARY = Case(
    "maze2d-umaze near + far", "maze2d-umaze", ("near", "near", "far", "far"), 5_000, group=DIFFERENT
)

# Good and bad episodes inside every client, in different shares: no client's data can be cloned as it is.
SHARES = (90, 50, 50, 10)


def _inside(task: str) -> Case:
    clients = tuple(f"expert:{share}+random:{100 - share}" for share in SHARES)
    return Case(f"{task} expert and random inside", task, clients, 5_000, group=NONE_GOOD)


def _uniform(task: str, quality: str, group: str | None = None) -> Case:
    return Case(f"{task} {quality}", task, (quality,) * 4, 5_000, group=group)


# Cases in which no client is good as a whole.
NO_BEST_CLIENT = (
    _inside("hopper"),
    _inside("halfcheetah"),
    *(_uniform(task, "medium-replay", NONE_GOOD) for task in ("hopper", "halfcheetah")),
    *(_uniform(task, "medium-expert", NONE_GOOD) for task in ("hopper", "halfcheetah")),
    _uniform("maze2d-umaze", "undirected", NONE_GOOD),
)

# Ablation: each difference between the printed and the recommended method, and each common part, removed in turn.
CHANGES = (
    RECOMMENDED,
    Variant("without data-action weight", "fova", settings={"weigh": "global"}),
    Variant("without auto alpha", "fova", settings={"alpha": 5.0}),
    Variant("without auto lambda", "fova", settings={"lam": 5.0}),
    Variant("without auto beta", "fova", settings={"beta": 5.0}),
    Variant("without value weights", "fova", settings={"server_weights": "plain"}),
    Variant("with the squashed Gaussian", "fova", settings={"actor": "squashed"}),
    Variant("without the vote", "fova", settings={"vote": False}),
    Variant("without imitation", "fova", settings={"lam": 0.0}),
    EQUATIONS,
    RELEASED,
)

# Ways to weight clients whose data covers different parts of the task.
LISTENING = (
    RECOMMENDED,
    Variant("all alike", "fova", settings={"server_weights": "plain"}),
    Variant("winner takes all", "fova", settings={"server_weights": "plain", "value_weight": 1.0}),
    BASELINES[0],
    Variant("fova, local only", "fova", mode="local"),
)

# All clients have the same quality. Methods for mixed quality should lose nothing here.
UNIFORM = tuple(
    _uniform(task, quality)
    for task, quality in (("hopper", "medium"), ("hopper", "expert"), ("halfcheetah", "expert"))
)


# Rewards in other units: the automatic strengths must not depend on them.
def _units(task: str) -> tuple[Case, ...]:
    clients = ("expert", "expert", "random", "random")
    return tuple(
        Case(f"rewards x {factor:g}", task, clients, 5_000, run={"reward_scale": factor}, at=factor)
        for factor in (0.01, 1.0, 100.0)
    )


def _fixed(alpha: float, lam: float, beta: float) -> tuple[Variant, ...]:
    """Variants with fixed strengths: the printed values, and the given values."""
    return (
        Variant("fixed as printed", "fova", settings={"alpha": 5.0, "lam": 5.0, "beta": 5.0}),
        Variant("fixed, fitted to x 1", "fova", settings={"alpha": alpha, "lam": lam, "beta": beta}),
    )


ENTRIES = (
    Entry(
        "mixed-quality",
        "Clients of mixed quality: FOVA and the baselines in a fair fight",
        (*MIXED, COMPLEMENTARY),
        (RECOMMENDED, *BASELINES),
        SCALES,
    ),
    Entry(
        "same-weights",
        "FOVA and its rivals, with and without the same client weights",
        (*MIXED, COMPLEMENTARY, *NO_BEST_CLIENT),
        (RECOMMENDED, *SAME_WEIGHTS, *BASELINES, IQL, RELEASED),
        FIVE_SEEDS,
    ),
    Entry(
        "same-unit",
        "FOVA and its rivals with the same client weights and the same unit of reward",
        (*MIXED, COMPLEMENTARY, *NO_BEST_CLIENT),
        (RECOMMENDED, *SAME_UNIT),
        FIVE_SEEDS,
    ),
    Entry(
        "same-episodes",
        "FOVA and its rivals with the same weights for clients and for episodes",
        (*MIXED, COMPLEMENTARY, *NO_BEST_CLIENT),
        (RECOMMENDED, FOVA_EPISODES, GOOD_EPISODES, *SAME_EPISODES, SAME_WEIGHTS[0]),
        FIVE_SEEDS,
    ),
    Entry(
        "actor-rate",
        "FOVA and its rivals with two learning rates of the actor",
        (*MIXED, COMPLEMENTARY, *NO_BEST_CLIENT),
        (*ACTOR_RATE, *STRONGEST),
        FIVE_SEEDS,
    ),
    Entry(
        "actor-rate-others",
        "The same on Walker2d and Ant, where no setting was chosen",
        (*_mixtures("walker2d", "ant"), _uniform("walker2d", "expert")),
        (*ACTOR_RATE[:3], *STRONGEST[:3]),
        {"quick": QUICK, "small": replace(FIVE_SEEDS["small"], seeds=3)},
    ),
    Entry(
        "good-episodes",
        "What the parts of FOVA's preset good-episodes are worth",
        (*MIXED, COMPLEMENTARY, *NO_BEST_CLIENT),
        GOOD_EPISODES_CHANGES,
        FIVE_SEEDS,
    ),
    Entry(
        "same-weights-longer",
        "FOVA and its rivals with the same client weights, 20,000 steps",
        (*MIXED, COMPLEMENTARY, *NO_BEST_CLIENT),
        (RECOMMENDED, EQUATIONS, RELEASED, *SAME_WEIGHTS, *WITH_EPISODES),
        FOUR_TIMES,
    ),
    Entry(
        "same-weights-longest",
        "FOVA and its rivals with the same client weights, 100,000 steps",
        (*MIXED[2:], NO_BEST_CLIENT[0], NO_BEST_CLIENT[5]),
        (RECOMMENDED, EQUATIONS, RELEASED, *SAME_WEIGHTS, *WITH_EPISODES),
        TWENTY_TIMES,
    ),
    Entry(
        "same-weights-mazes",
        "Larger mazes of which each client knows one half, with the same weights for everybody",
        tuple(
            Case(f"maze2d-{maze} near + far", f"maze2d-{maze}", ("near", "near", "far", "far"), 5_000)
            for maze in ("medium", "large")
        ),
        (RECOMMENDED, *SAME_WEIGHTS, *SHARED_STD),
        FIVE_SEEDS,
    ),
    Entry(
        "inside-changes",
        "What data returns, relative weights and the running mean are worth",
        (MIXED[2], _inside("hopper"), *(_uniform(task, "medium-expert") for task in ("hopper", "halfcheetah"))),
        INSIDE_CHANGES,
        {"quick": QUICK, "small": replace(FIVE_SEEDS["small"], seeds=3)},
    ),
    Entry(
        "vote",
        "What the vote is worth",
        (*MIXED, COMPLEMENTARY, *NO_BEST_CLIENT),
        VOTE,
        FIVE_SEEDS,
    ),
    Entry(
        "mixed-quality-walker2d",
        "The same on Walker2d, twice as long",
        _mixtures("walker2d"),
        (RECOMMENDED, *BASELINES),
        LONGER,
    ),
    Entry(
        "mixed-quality-others",
        "Clients of mixed quality: the other baselines, and two as published",
        (*MIXED, COMPLEMENTARY),
        (*OTHERS, *DEAR),
        SCALES,
    ),
    Entry(
        "mixed-quality-changes",
        "What each change to the printed method is worth",
        MIXED[:2],
        CHANGES,
        SCALES,
    ),
    Entry(
        "equations-long",
        "The printed equations at the paper's width and learning rates, 100,000 steps",
        (Case("hopper expert + random", "hopper", ("expert", "random"), 5_000),),
        (EQUATIONS,),
        PAPER_WIDTH,
        run={"evaluate_clients": True},
    ),
    Entry(
        "complementary",
        "A maze of which each client knows one half: ways to weight the clients",
        (COMPLEMENTARY,),
        LISTENING,
        SCALES,
    ),
    Entry(
        "reward-units",
        "Automatic strengths against fixed ones, with rewards in three units",
        _units("maze2d-umaze"),
        (RECOMMENDED, *_fixed(0.3, 59.0, 0.18)),  # what the automatic rule gives: an expert's step is worth 0.59
        SCALES,
        axis="rewards times",
    ),
    Entry(
        "reward-units-hopper",
        "The same on Hopper",
        _units("hopper"),
        (RECOMMENDED, *_fixed(1.5, 300.0, 0.9)),  # the same rule: a step is worth 3.0
        SCALES,
        axis="rewards times",
    ),
    Entry(
        "uniform-quality",
        "Clients of one quality: FOVA and the baselines",
        UNIFORM,
        (RECOMMENDED, *BASELINES),
        SCALES,
    ),
)
