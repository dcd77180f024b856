"""Results of experiments built in Python, for tests of statistics and tables."""

from fova.evaluation.metrics import Evaluation, Played
from fova.experiments.results import Results, RunResult


def played(mean_return, score=None):
    return Played(float(mean_return), 1.0, score)


def made_run(case, variant, seed, final, score=None, clients=None, **changes):
    """A run whose server ended with the return `final`; `clients` are the returns of the clients' policies."""
    clients = clients or {"expert-1": final, "random-1": final}
    ended = Evaluation(10, 1000, played(final, score), {name: played(value) for name, value in clients.items()})
    fields = {
        "name": f"{case}-{variant}-seed-{seed}",
        "case": case,
        "variant": variant,
        "at": None,
        "paper": None,
        "algorithm": variant,
        "preset": "published",
        "settings": {},
        "run": {"mode": "federated", "rounds": 10, "local_steps": 100},
        "task": "hopper",
        "seed": seed,
        "clients": {
            name: {"data": name.split("-")[0], "rows": 10, "episodes": 1, "behaviour_return": 100.0}
            for name in clients
        },
        "evaluations": [ended],
        "final": ended,
        "votes": {},
        "distances": {},
        "bytes_each_way": 2_000_000,
        "gradient_steps": 2000,
        "seconds_training": 4.0,
        "seconds_evaluating": 1.0,
        "peak_memory_mb": 500.0,
        "seconds_median_round": 0.4,
    }
    return RunResult(**fields | changes)


def made_results(runs, **changes):
    fields = {"name": "made-up", "title": "Made up", "scale": "scale tiny", "axis": None, "measured": "return"}
    return Results(**fields | changes, runs=runs)
