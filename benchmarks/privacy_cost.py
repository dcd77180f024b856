"""What privacy and compression cost in score: results/privacy_cost.json and two tables in docs/privacy.md.

    python benchmarks/privacy_cost.py               measure what is missing, then write the tables

Privacy needs many clients, so its federation is large and its networks are tiny; compression is measured on a small
federation with the networks of benchmarks/poisoned_clients.py.
"""

from functools import partial
from typing import Any

from federation_scores import SEEDS, Results, federation, final_score, fova, interval, write_table

from fova.federation.aggregation import AGGREGATIONS
from fova.federation.compression import COMPRESSIONS
from fova.federation.privacy import NoiseAt, Privacy

LARGE = {"clients": 128, "size": 200, "rounds": 30, "local_steps": 25, "hidden": (24, 24)}
SMALL = {"clients": 5, "size": 2000, "rounds": 12, "local_steps": 40, "hidden": (64, 64)}
# Strengths as numbers: "auto" needs the unit of reward, a statistic of the data that privacy does not cover.
STRENGTHS = {"alpha": 5.0, "lam": 5.0, "beta": 5.0, "server_weights": "plain"}
# A client imitates the action that won its vote, which learns this maze quickly.
IMITATION = {"imitate": "vote", "awr": False}
CLIP, DELTA = 0.6, 1e-5  # without privacy the median of clients' norms is near 0.55
NOISE: tuple[tuple[NoiseAt, float], ...] = (
    ("server", 0.5),
    ("server", 1.0),
    ("server", 2.0),
    ("server", 4.0),
    ("client", 1.0),
)


def one_run(setting: dict[str, Any], seed: int, **options: Any) -> tuple[float | None, dict[str, Any]]:
    score, reports = final_score(
        fova(hidden=setting["hidden"], **STRENGTHS, **IMITATION),
        federation(setting["clients"], setting["size"]),
        setting["rounds"],
        local_steps=setting["local_steps"],
        seed=seed,
        cohort=setting["clients"],
        aggregation=AGGREGATIONS["uniform"],
        **options,
    )
    figures: dict[str, Any] = {}
    if reports and reports[-1].traffic:
        figures |= {"bytes_up": reports[-1].traffic.up, "bytes_down": reports[-1].traffic.down}
    if reports and all("update_norm" in client for client in reports[-1].clients.values()):
        figures["median_update_norms"] = [
            round(sorted(client["update_norm"] for client in r.clients.values())[len(r.clients) // 2], 3)
            for r in reports
        ]
    return score, figures


def measure_privacy(results: Results, seed: int) -> None:
    results.measure("privacy off", {}, seed, partial(one_run, LARGE))
    for noise_at, noise in NOISE:
        privacy = Privacy(noise_at, CLIP, noise, DELTA, LARGE["clients"])
        about = {"noise_at": noise_at, "noise": noise, "clip": CLIP, "delta": DELTA}
        about |= {"epsilon_round": privacy.epsilon(1), "epsilon": privacy.epsilon(LARGE["rounds"])}
        results.measure(f"privacy {noise_at} {noise}", about, seed, partial(one_run, LARGE, privacy=privacy))


def measure_compression(results: Results, seed: int) -> None:
    for name, envelope in COMPRESSIONS.items():
        results.measure(f"compress {name}", {}, seed, partial(one_run, SMALL, envelope=envelope))


def main() -> None:
    results = Results("privacy_cost", {"privacy": LARGE, "compression": SMALL, "strengths": STRENGTHS | IMITATION})
    for seed in range(SEEDS):
        measure_compression(results, seed)
        measure_privacy(results, seed)
    lines = results.lines
    rows = [["nobody", "", "", "", interval(lines["privacy off"]["scores"])]]
    for noise_at, noise in NOISE:
        line = lines[f"privacy {noise_at} {noise}"]
        spent = (f"{line[name]:.1f}" for name in ("epsilon_round", "epsilon"))
        rows.append([f"the {noise_at}", f"{noise:g}", *spent, interval(line["scores"])])
    write_table("privacy", rows, ("who adds noise", "noise", "epsilon of a round", "epsilon of all", "score"))
    rows = []
    for name in COMPRESSIONS:
        line = lines[f"compress {name}"]
        size, uncompressed = line["bytes_up"][0], lines["compress none"]["bytes_up"][0]
        rows.append([name, f"{size:,}", f"{size / uncompressed:.0%}", interval(line["scores"])])
    write_table("compression", rows, ("--compress", "bytes up, per client and round", "of none", "score"))


if __name__ == "__main__":
    main()
