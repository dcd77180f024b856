"""The policies that the improvement proofs assume: maximisers of a penalised return.

The proofs assume that pibar*_k and pi_k maximise J(M, pi) - alpha nu(pi)/(1 - gamma) minus a KL term. The updates
of the algorithm do not (one of the checks shows this). Here the maximisers are found by mirror ascent on the exact
gradient. The objective never decreases. The proofs need only this: the result is at least as good as the start.
"""

from collections.abc import Callable

import numpy as np

from fova.paper.theory.distances import chi_square, kl
from fova.paper.theory.mdp import MDP, Array, backup, visitation
from fova.paper.theory.tabular_fova import vcql_values


def nu(model: MDP, policy: Array, behaviour: Array) -> float:
    """nu(pi) = sum_{s,a} pi(s,a) (pi(a|s)/behaviour(a|s) - 1), with pi(s,a) the visitation of pi in the model."""
    return float(visitation(model, policy) @ chi_square(policy, behaviour))


def conservative_return(model: MDP, policy: Array, behaviour: Array, alpha: float) -> float:
    """J(M, pi) - alpha nu(pi) / (1 - gamma): the return that conservative evaluation of pi gives."""
    return float(model.start @ vcql_values(model, policy, behaviour, alpha))


def server_objective(
    model: MDP, policy: Array, behaviour: Array, state_law: Array, alpha: float, beta: float
) -> float:
    """J - alpha nu/(1-gamma) - beta KL(pi, behaviour): the objective that the proofs assume for pibar*_k."""
    return conservative_return(model, policy, behaviour, alpha) - beta * float(state_law @ kl(policy, behaviour))


def local_objective(
    model: MDP, policy: Array, target: Array, behaviour: Array, state_law: Array, alpha: float, lam: float
) -> float:
    """Eq. app:awr: J - alpha nu/(1-gamma) - lam KL(pibar*_k, pi): the objective that the proofs assume for pi_k."""
    return conservative_return(model, policy, behaviour, alpha) - lam * float(state_law @ kl(target, policy))


def server_maximiser(model: MDP, behaviour: Array, state_law: Array, alpha: float, beta: float) -> Array:
    """A maximiser of `server_objective`. It ascends from the behaviour policy, so it is at least as good."""
    law = state_law[:, None]
    return _ascend(
        behaviour,
        lambda policy: server_objective(model, policy, behaviour, state_law, alpha, beta),
        lambda policy: (
            _return_gradient(model, policy, behaviour, alpha) - beta * law * (np.log(policy / behaviour) + 1.0)
        ),
        lambda policy: visitation(model, policy)[:, None] * model.horizon + beta * law,
    )


def local_maximiser(
    model: MDP, target: Array, behaviour: Array, state_law: Array, alpha: float, lam: float
) -> Array:
    """A maximiser of `local_objective`. It ascends from pibar*_k (`target`), so it is at least as good."""
    law = state_law[:, None]
    return _ascend(
        target,
        lambda policy: local_objective(model, policy, target, behaviour, state_law, alpha, lam),
        lambda policy: _return_gradient(model, policy, behaviour, alpha) + lam * law * target / policy,
        lambda policy: visitation(model, policy)[:, None] * model.horizon + lam * law,
    )


def _return_gradient(model: MDP, policy: Array, behaviour: Array, alpha: float) -> Array:
    """d/dpi(a|s) of the conservative return: the visitation times the penalised action value."""
    penalised = backup(model, vcql_values(model, policy, behaviour, alpha)) - 2.0 * alpha * policy / behaviour
    return visitation(model, policy)[:, None] * model.horizon * penalised


def _ascend(
    start: Array,
    objective: Callable[[Array], float],
    gradient: Callable[[Array], Array],
    scale: Callable[[Array], Array],
    steps: int = 150,
) -> Array:
    """Mirror ascent along gradient / scale. Steps are halved until the objective increases. Ends if none does."""
    policy, reached, rate = start, objective(start), 1.0
    for _ in range(steps):
        direction = gradient(policy) / scale(policy)
        direction = direction - (policy * direction).sum(1, keepdims=True)
        while rate > 1e-9:
            trial = _shift(policy, rate * direction)
            value = objective(trial)
            if value > reached:
                break
            rate *= 0.5
        else:
            return policy
        gained, policy, reached = value - reached, trial, value
        rate *= 2.0
        if gained < 1e-12 * (1.0 + abs(reached)):
            break
    return policy


def _shift(policy: Array, logits: Array) -> Array:
    shifted = policy * np.exp(logits - logits.max(1, keepdims=True))
    shifted = np.maximum(shifted, 1e-12)  # the objectives take logarithms
    return shifted / shifted.sum(1, keepdims=True)
