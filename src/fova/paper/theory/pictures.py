"""Four pictures of the theory: underestimation, the safety penalty, heterogeneity, and the vote in a maze.

Each function computes its numbers from a seed and draws one figure. `draw_all` saves the figures to files.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fova.paper.theory.case import Case, random_case
from fova.paper.theory.conservatism import alpha_limit, alpha_limit_as_printed
from fova.paper.theory.heterogeneity import heterogeneity_level
from fova.paper.theory.mdp import MDP, Array, advantages, expectation, garnet, optimal_policy, state_values
from fova.paper.theory.mixed_quality import compare
from fova.paper.theory.safety import penalty
from fova.paper.theory.tabular_fova import relaxed_vote, vcql_values, vote

INK = {"blue": "#2563a8", "orange": "#d9762b", "green": "#3c8a4e", "grey": "#777777", "red": "#b3313a"}


def draw_all(directory: Path, seed: int, progress: Callable[[str], None]) -> None:
    for name, draw in (
        ("underestimation", underestimation_against_alpha),
        ("penalty", penalty_against_parameters),
        ("heterogeneity", heterogeneity_against_difference),
        ("vote", vote_against_pull),
    ):
        progress(f"drawing theory-{name}.png")
        draw(seed).savefig(directory / f"theory-{name}.png", dpi=90)


def _figure(width: float = 9.0, height: float = 3.6) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _band(axes: Axes, x: Array, samples: Array, colour: str, label: str) -> None:
    """Draw the median and the middle 80 % of the samples [x, draw]."""
    low, middle, high = np.quantile(samples, (0.1, 0.5, 0.9), axis=1)
    axes.plot(x, middle, color=INK[colour], label=label)
    axes.fill_between(x, low, high, color=INK[colour], alpha=0.15, linewidth=0)


# --- Underestimation against alpha ------------------------------------------------------------------------


def underestimation_against_alpha(seed: int, cases: int = 30) -> Figure:
    """Left: three kinds of vote, without sampling error. Right: sampled data and the limits for alpha."""
    drawn = [random_case(np.random.default_rng([seed, i]), discount=0.8, clients=1) for i in range(cases)]
    figure = _figure()
    left, right = figure.subplots(1, 2)

    alphas = np.logspace(-2, 1, 13)
    for label, colour, gap in (
        ("vote held fixed", "blue", _gap_of_a_fixed_vote),
        ("vote taken at every step", "red", _gap_of_a_moving_vote),
        ("mixed vote that confirms itself", "green", _gap_of_a_mixed_vote),
    ):
        _band(left, alphas, np.array([[gap(case, alpha) for case in drawn] for alpha in alphas]), colour, label)
    left.axhline(0.0, color=INK["grey"], linewidth=0.8)
    left.set(xscale="log", xlabel="alpha", ylabel="worst state: V_hat - V", title="No sampling error")
    left.set_yscale("symlog", linthresh=0.1)
    left.legend(frameon=False, fontsize=8)

    ratios = np.logspace(-3, 0.5, 60)
    for case in drawn:
        limit = alpha_limit(case)
        right.plot(ratios, [_gap_of_sampled_data(case, r * limit) for r in ratios], color=INK["blue"], alpha=0.25)
        printed = alpha_limit_as_printed(case)
        right.plot(printed / limit, _gap_of_sampled_data(case, printed), ".", color=INK["orange"], markersize=4)
    right.axvline(1.0, color=INK["green"], linewidth=1.2, label="corrected limit")
    right.plot([], [], ".", color=INK["orange"], label="printed limit")
    right.axhline(0.0, color=INK["grey"], linewidth=0.8)
    right.set(xscale="log", xlabel="alpha / corrected limit", title="Sampled data, vote held fixed")
    right.set_yscale("symlog", linthresh=0.1)
    right.set_ylim(-100.0, 3.0)
    right.legend(frameon=False, fontsize=8, loc="lower left")
    return figure


def _gap_of_a_fixed_vote(case: Case, alpha: float) -> float:
    conservative = vcql_values(case.mdp, case.policy, case.client.behaviour, alpha)
    return float((conservative - state_values(case.mdp, case.policy)).max())


def _gap_of_a_moving_vote(case: Case, alpha: float) -> float:
    case = replace(case, alpha=alpha)
    voted = vote(case.moving_q, case.candidates)
    return float((expectation(voted, case.moving_q) - state_values(case.mdp, voted)).max())


def _gap_of_a_mixed_vote(case: Case, alpha: float) -> float:
    voted = relaxed_vote(case.mdp, case.candidates, case.client.behaviour, alpha)
    conservative = vcql_values(case.mdp, voted, case.client.behaviour, alpha)
    return float((conservative - state_values(case.mdp, voted)).max())


def _gap_of_sampled_data(case: Case, alpha: float) -> float:
    conservative = vcql_values(case.model, case.policy, case.client.behaviour, alpha)
    return float((conservative - state_values(case.mdp, case.policy)).max())


# --- B against lambda and beta ----------------------------------------------------------------------------


def penalty_against_parameters(seed: int) -> Figure:
    """Left: B over both parameters. Right: its parts for lambda = beta, and the largest gap of two returns."""
    rng = np.random.default_rng(seed)
    case = replace(random_case(rng, states=3, actions=2, clients=2, discount=0.6), alpha=0.01)
    sizes = np.logspace(0, 5, 41)
    figure = _figure()
    left, right = figure.subplots(1, 2)

    totals = np.array([[penalty(case, case.server, lam, beta).total for lam in sizes] for beta in sizes])
    widest = 2.0 * case.mdp.largest_return
    mesh = left.pcolormesh(sizes, sizes, np.log10(totals), cmap="viridis", shading="nearest")
    if totals.min() < widest < totals.max():
        left.contour(sizes, sizes, totals, levels=[widest], colors="white", linewidths=1.2)
    left.set(
        xscale="log",
        yscale="log",
        xlabel="lambda",
        ylabel="beta",
        title="B (white: 2 r_max / (1 - gamma))",
    )
    figure.colorbar(mesh, ax=left, label="log10 B")

    parts = [penalty(case, case.server, size, size) for size in sizes]
    right.plot(sizes, [p.lam_part for p in parts], color=INK["blue"], label="(l + h + 2 sigma)^2 / 8 lambda")
    right.plot(sizes, [p.beta_part for p in parts], color=INK["orange"], label="(l + h + sigma)^2 / 8 beta")
    right.plot(sizes, [p.drift for p in parts], color=INK["green"], label="l TV(behaviour, server)")
    right.plot(sizes, [p.sampling for p in parts], color=INK["grey"], label="sampling error")
    right.axhline(widest, color=INK["red"], linestyle="--", linewidth=1, label="2 r_max / (1 - gamma)")
    right.set(xscale="log", yscale="log", xlabel="lambda = beta", title="Parts of B")
    right.legend(frameon=False, fontsize=8)
    return figure


# --- Heterogeneity ----------------------------------------------------------------------------------------


def heterogeneity_against_difference(seed: int, draws: int = 60) -> Figure:
    """||H_1||_F relative to ||A_1||_F as four clients become more different in one property at a time."""
    shares = np.linspace(0.0, 1.0, 11)
    figure = _figure(width=5.5)
    axes = figure.subplots()
    for label, colour, apart in (
        ("dynamics", "blue", _apart_in_dynamics),
        ("rewards", "orange", _apart_in_rewards),
        ("initial states", "grey", _apart_in_starts),
        ("behaviour policies", "red", _apart_in_behaviour),
    ):
        levels = [[_relative_level(*apart(_worlds(seed, i), share)) for i in range(draws)] for share in shares]
        _band(axes, shares, np.array(levels), colour, label)
    axes.set(xlabel="how different the clients are (0: identical)", ylabel="||H|| / ||A||")
    axes.legend(frameon=False, fontsize=8, title="clients differ in", title_fontsize=8)
    return figure


def _worlds(seed: int, number: int) -> list[MDP]:
    rng = np.random.default_rng([seed, number])
    return [garnet(6, 3, 3, 0.8, rng) for _ in range(4)]


def _even(mdp: MDP) -> Array:
    return np.full(mdp.reward.shape, 1.0 / mdp.actions)


def _towards(first: Array, second: Array, share: float) -> Array:
    return (1.0 - share) * first + share * second


def _apart_in_dynamics(worlds: list[MDP], share: float) -> tuple[list[MDP], list[Array]]:
    home = worlds[0]
    models = [replace(home, transition=_towards(home.transition, w.transition, share)) for w in worlds]
    return models, [_even(home)] * len(worlds)


def _apart_in_rewards(worlds: list[MDP], share: float) -> tuple[list[MDP], list[Array]]:
    home = worlds[0]
    models = [replace(home, reward=_towards(home.reward, w.reward, share)) for w in worlds]
    return models, [_even(home)] * len(worlds)


def _apart_in_starts(worlds: list[MDP], share: float) -> tuple[list[MDP], list[Array]]:
    home = worlds[0]
    models = [home.starting_at(_towards(home.start, w.start, share)) for w in worlds]
    return models, [_even(home)] * len(worlds)


def _apart_in_behaviour(worlds: list[MDP], share: float) -> tuple[list[MDP], list[Array]]:
    """One MDP. The behaviour of half of the clients moves from the uniform policy towards the best policy."""
    home = worlds[0]
    better = _towards(_even(home), optimal_policy(home), 0.95 * share)
    return [home] * len(worlds), [_even(home), _even(home), better, better]


def _relative_level(models: list[MDP], bases: list[Array]) -> float:
    return heterogeneity_level(models, bases, 0) / float(np.linalg.norm(advantages(models[0], bases[0])))


# --- The vote in a maze -----------------------------------------------------------------------------------


PULLS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def vote_against_pull(seed: int, lams: tuple[float, ...] = PULLS, federations: int = 5) -> Figure:
    """Score of the server's policy against the pull to the data, with two expert and two random clients."""
    scores = compare(lams, range(seed, seed + federations))
    figure = _figure(width=5.5)
    axes = figure.subplots()
    for (name, values), colour in zip(scores.items(), ("blue", "green", "red", "orange"), strict=True):
        axes.errorbar(lams, values.mean(1), values.std(1), color=INK[colour], capsize=2, label=name)
    axes.set(
        xscale="log",
        xlabel="lambda (the best policy's values lie between 0 and 1)",
        ylabel="score (0 random, 100 best)",
    )
    axes.legend(frameon=False, fontsize=8)
    return figure
