"""Puts the figures of results/bench.json into the marked places of the pages in docs/. Called by `bench.py`.

python benchmarks/performance_page.py      again from the figures that are there, and the estimates of fova.paper
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = ("docs/performance.md", "docs/large-federations.md")
MANY = 1_000_000
AIMS = "aims"
LARGE = "3x256, batch 256"
HELP = "fova COMMAND --help, processor time, every command"
QUIET = 2.0  # the load below which a machine of two cores counts as quiet


def fill(results: dict[str, Any]) -> None:
    """Put the figures into all pages."""
    for path in PAGES:
        page = ROOT / path
        page.write_text(filled(page.read_text(), results))


def filled(page: str, results: dict[str, Any]) -> str:
    """The page with what stands between `<!-- NAME -->` and `<!-- end -->` made anew for every section."""
    places = "|".join((*TABLES, AIMS))
    return re.sub(
        rf"(<!-- ({places}) -->\n).*?(<!-- end -->)",
        lambda match: match[1] + "".join(f"{line}\n" for line in _block(match[2], results)) + match[3],
        page,
        flags=re.S,
    )


def _block(name: str, results: dict[str, Any]) -> list[str]:
    if name == AIMS:
        return _aims(results)
    if name not in results:
        return ["*Not measured yet.*"]
    return [*TABLES[name](results[name]["figures"]), "", _measured_on(results[name]["machine"])]


# --- What was aimed at ---


class Aim(NamedTuple):
    """A figure that is to stay below or to reach a limit."""

    what: str
    section: str
    figure: Callable[[Any], float]  # of the section's figures
    limit: float
    at_least: bool = False

    def row(self, results: dict[str, Any]) -> str:
        words = f"{'at least' if self.at_least else 'at most'} {self.limit:g}"
        try:
            value = self.figure(results[self.section]["figures"])
        except KeyError:
            return f"| {self.what} | {words} | - | not measured |"
        reached = value >= self.limit if self.at_least else value <= self.limit
        load = results[self.section]["machine"]["load_before"][0]
        busy = f" (load {load:.0f} before)" if load > QUIET else ""
        verdict = "reached" if reached else "**missed**"
        return f"| {self.what} | {words} | {_number(value, 3)} | {verdict}{busy} |"


def _share(algorithm: str) -> Aim:
    def figure(settings: Any) -> float:
        return 100 * float(settings[LARGE][algorithm]["share_of_rate"]["median"])

    return Aim(f"{algorithm}: share of its products' rate at 3x256, %", "shares", figure, 60, at_least=True)


def _aims(results: dict[str, Any]) -> list[str]:
    lines = ["| | aim | median | |", "|---|---|---|---|"]
    return lines + [aim.row(results) for aim in AIMED_AT]


def _measured_on(machine: dict[str, Any]) -> str:
    cores = "1 core" if machine["cores"] == 1 else f"{machine['cores']} cores"
    busy = ", processor time, because the machine was busy" if machine["clock"] == "processor" else ""
    return (
        f"*{machine['processor']}, {cores}{busy}, jax {machine['packages']['jax']}; "
        f"load of the machine before this section: {machine['load_before'][0]:.1f}.*"
    )


def _range(values: dict[str, float], factor: float = 1.0, digits: int = 3) -> str:
    median, least, most = (_number(factor * values[key], digits) for key in ("median", "least", "most"))
    return f"{median} ({least} to {most})"


def _number(value: float, digits: int) -> str:
    """To some significant digits, with commas rather than an exponent."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def _step(settings: dict[str, Any]) -> list[str]:
    names = {
        "FOVA": "FOVA, ms per client-step",
        "no vote": "without the vote, ms",
    }
    lines = [f"| | {' | '.join(settings)} |", "|---|" + "---|" * len(settings)]

    def row(label: str, cells: list[str]) -> None:
        lines.append(f"| {label} | {' | '.join(cells)} |")

    figures = list(settings.values())
    row("necessary GFLOP per client-step", [f"{f['necessary_gigaflops']:.3g}" for f in figures])
    for name, label in names.items():
        row(label, [_range(f["milliseconds"][name]) for f in figures])
    for library in ("XLA", "NumPy"):
        row(
            f"the same products alone, {library}, GFLOP/s",
            [_range(f["rate_of_products"][library]) for f in figures],
        )
    row(
        "**share of the quicker one's rate, %**",
        [f"**{_range(f['share_of_rate'], 100)}** ({f['quickest_products']})" for f in figures],
    )
    row("the vote's extra FLOPs, %", [f"{100 * f['vote']['extra_flops']:.3g}" for f in figures])
    row("**the vote's extra time, %**", [f"**{_range(f['vote']['extra_time'], 100)}**" for f in figures])
    row(
        "working memory with and without the vote, MB",
        ["{with} and {without}".format(**f["vote"]["working_megabytes"]) for f in figures],
    )
    return lines


def _rivals(settings: dict[str, Any]) -> list[str]:
    lines = [
        "| networks | clients | FOVA, ms per client-step | PyTorch, ms | PyTorch compiled, ms "
        "| times quicker than PyTorch | than PyTorch compiled |",
        "|---|---|---|---|---|---|---|",
    ]
    for setting, sizes in settings.items():
        for clients, figures in sizes.items():
            took, quicker = figures["milliseconds"], figures["times_quicker"]
            rivals = ("PyTorch", "PyTorch compiled")
            cells = [_range(took[name]) if name in took else "does not run" for name in ("FOVA", *rivals)]
            cells += [f"**{_range(quicker[name])}**" if name in quicker else "-" for name in rivals]
            lines.append(f"| {setting} | {clients} | {' | '.join(cells)} |")
    return lines


def _algorithms(settings: dict[str, Any]) -> list[str]:
    lines = [f"| client-steps per second | {' | '.join(settings)} |", "|---|" + "---|" * len(settings)]
    for algorithm in sorted(next(iter(settings.values()))):
        lines.append(f"| {algorithm} | {' | '.join(_range(f[algorithm]) for f in settings.values())} |")
    return lines


def _shares(settings: dict[str, Any]) -> list[str]:
    lines = [
        "| networks | algorithm | necessary GFLOP per client-step | time / FOVA's time "
        "| share of the products' rate, % |",
        "|---|---|---|---|---|",
    ]
    for setting, figures in settings.items():
        lines += [
            f"| {setting} | {name} | {f['necessary_gigaflops']:.3g} | {_range(f['times_fova'])} "
            f"| {_range(f['share_of_rate'], 100)} |"
            for name, f in sorted(figures.items())
        ]
    return lines


def _growth(sizes: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| clients | networks | steps a round | cohort | ms per client-step | peak MB | MB carried |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {size['clients']:,} | 2×{size['width']} | {size['steps_a_round']} | {size['cohort']} "
        f"| {_range(size['milliseconds_per_client_step'])} "
        f"| {size['peak_megabytes']:,} | {size['megabytes_carried_between_rounds']:,} |"
        for size in sizes
    ]
    return lines


def _start_up(figures: dict[str, Any]) -> list[str]:
    lines = ["| a fresh process | seconds |", "|---|---|"]
    return lines + [f"| {name} | {_range(values)} |" for name, values in figures.items()]


def _processes(figures: dict[str, Any]) -> list[str]:
    lines = [
        "| processes | clients of each | seconds of a round | exchange of a round, s | peak MB of each |",
        "|---|---|---|---|---|",
    ]
    for count in sorted({report["processes"] for report in figures["reports"]}):
        reports = [report for report in figures["reports"] if report["processes"] == count]
        cells = [
            ", ".join(f"{report['clients_here']:,}" for report in reports),
            _number(max(report["seconds_per_round"]["median"] for report in reports), 3),
            ", ".join(_exchange(report) for report in reports),
            ", ".join(f"{report['peak_megabytes']:,}" for report in reports),
        ]
        lines.append(f"| {count} | {' | '.join(cells)} |")
    return [
        *lines,
        "",
        f"{figures['clients']:,} clients of {figures['rows_each']:,} rows, 2×{figures['width']} networks, "
        f"{figures['steps_a_round']} steps a round, cohorts of {figures['cohort']}. A mean has "
        f"{figures['reports'][0]['megabytes_of_a_mean']} MB. Largest difference of a parameter of the server: "
        f"{figures['largest_difference_of_a_parameter']:.1e}.",
    ]


def _exchange(report: dict[str, Any]) -> str:
    spent = report["exchange_seconds_per_round"]
    return "none" if spent is None else _number(spent["median"], 2)


def _server_work(settings: dict[str, Any]) -> list[str]:
    lines = [
        "| networks | clients in a round | received by the server in a round | time to merge "
        "| rounds until each of a million was asked once |",
        "|---|---|---|---|---|",
    ]
    for name, figures in settings.items():
        message, milliseconds = figures["bytes_each_way"], figures["merge_milliseconds_per_client"]["median"]
        for clients in (100, 1_000, 10_000):
            gigabytes = clients * message / 1e9
            lines.append(
                f"| {name.split(',')[0]} ({message / 1e6:.3g} MB) | {clients:,} | {gigabytes:.3g} GB "
                f"| {clients * milliseconds / 1e3:.2g} s | {MANY // clients:,} |"
            )
    return lines


def _network_rounds(figures: dict[str, Any]) -> list[str]:
    return [
        f"| server and {figures['clients']} clients on one machine | |",
        "|---|---|",
        f"| seconds of a round of 2 tiny steps | {_range(figures['seconds_of_a_round'])} |",
        f"| processor seconds of all processes together | {figures['processor_seconds_of_a_round']:.3g} |",
        f"| seconds of the first round, which compiles | {figures['seconds_of_the_first']:.3g} |",
        f"| memory of a client's processes, MB | {_range(figures['megabytes_of_a_client'])} |",
    ]


def _large_rounds(figures: dict[str, Any]) -> list[str]:
    lines = ["| answers in a round | bytes of all answers, MB | peak memory of the server, MB |", "|---|---|---|"]
    return lines + [
        f"| {int(count):,} | {int(count) * f['message_megabytes']:,.0f} | {f['megabytes']:,.0f} |"
        for count, f in figures.items()
    ]


def _playing(tasks: dict[str, Any]) -> list[str]:
    lines = ["| environment steps per second | together | plain loop | times quicker |", "|---|---|---|---|"]
    return lines + [
        f"| {task} | {_range(f['together'])} | {_range(f['plain loop'])} | {_range(f['times_quicker'])} |"
        for task, f in tasks.items()
    ]


def _loading(figures: dict[str, Any]) -> list[str]:
    lines = ["| file | rows per second, loaded and checked |", "|---|---|"]
    return lines + [f"| {name} | {_range(values)} |" for name, values in figures.items()]


def _deployed(requests: dict[str, Any]) -> list[str]:
    head = [f"{'one observation' if rows == '1' else f'{rows} observations'}, µs | times" for rows in requests]
    lines = [f"| | {' | '.join(head)} |", "|---|" + "---|---|" * len(requests)]
    for name in next(iter(requests.values())):
        cells = [f"{_range(f[name]['microseconds'])} | {_range(f[name]['times'])}" for f in requests.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


TABLES = {
    "start_up": _start_up,
    "step": _step,
    "rivals": _rivals,
    "algorithms": _algorithms,
    "shares": _shares,
    "growth": _growth,
    "processes": _processes,
    "server_work": _server_work,
    "network_rounds": _network_rounds,
    "large_rounds": _large_rounds,
    "playing": _playing,
    "loading": _loading,
    "deployed": _deployed,
}

AIMED_AT = [
    Aim("the same run again, s", "start_up", lambda f: float(f["same setting again"]["median"]), 3.5),
    Aim("a first run, which compiles, s", "start_up", lambda f: float(f["first run, compiling"]["median"]), 12),
    Aim("the slowest `fova COMMAND --help`, s of a processor", "start_up", lambda f: float(f[HELP]["most"]), 0.5),
    Aim("a round over a network, s", "network_rounds", lambda f: float(f["seconds_of_a_round"]["median"]), 2),
    *(_share(name) for name in ("fova", "cql-fl", "drpo", "fed-bc", "fed-iql", "fed-td3bc", "fedora")),
]


def fill_all(results: dict[str, Any]) -> None:
    """Make everything anew that comes from results/bench.json: the pages, and the estimates of `fova.paper`."""
    from fova.paper import catalogue, cost

    fill(results)
    if set(cost.SECTIONS) <= set(results):
        cost.write_speeds(results)
        catalogue.write_listing()


if __name__ == "__main__":
    fill_all(json.loads((ROOT / "results" / "bench.json").read_text()))
