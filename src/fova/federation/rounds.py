"""What happens in a round, at a client and at the server, and where its randomness comes from.

Every engine calls these functions and adds none of its own, so the same seed gives the same parameters whether the
clients share one machine or a network. Pure functions of arrays: no file, network or clock here.

All randomness is derived from (seed, round, the client's name, step): a client draws the same batches wherever it
stands in the list, and a run continues as if it had never stopped.
"""

import zlib
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from fova.algorithms.base import Data, Submission, replace, weighted_mean
from fova.federation.aggregation import Aggregation, weigh
from fova.federation.privacy import Private
from fova.federation.wire import Envelope, payload_bytes
from fova.spaces import Space

# --- Keys -------------------------------------------------------------------------------------------------

# Each use of randomness has a stream of its own.
_INIT, _PARTICIPATION, _CLIENTS, _ENVELOPES, _PUBLICATION = range(5)


def init_key(root: PRNGKeyArray) -> PRNGKeyArray:
    """For the networks that everybody starts from. `root` is the seed's key, here as below."""
    return jax.random.fold_in(root, _INIT)


def participation_key(root: PRNGKeyArray, round_number: int) -> PRNGKeyArray:
    """For the choice of who takes part in a round."""
    return jax.random.fold_in(jax.random.fold_in(root, _PARTICIPATION), round_number)


def client_key(root: PRNGKeyArray, round_number: int, client: Any) -> PRNGKeyArray:
    """For the local steps of a client (an `identity`) in a round."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(root, _CLIENTS), round_number), client)


def envelope_key(root: PRNGKeyArray, round_number: int, client: Any) -> PRNGKeyArray:
    """For the envelope of a simulated client's submission; a real client takes a secret key instead."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(root, _ENVELOPES), round_number), client)


def publication_key(root: PRNGKeyArray, round_number: int) -> PRNGKeyArray:
    """For the noise of a simulated server; a real one takes a secret key instead."""
    return jax.random.fold_in(jax.random.fold_in(root, _PUBLICATION), round_number)


def identity(name: str) -> int:
    """The number that stands for a client in its keys."""
    return zlib.crc32(name.encode())


# --- A client's part --------------------------------------------------------------------------------------


def local_round(
    algorithm: Any, local_steps: int, learner: Any, broadcast: Any, data: Data, key: PRNGKeyArray
) -> tuple[Any, Submission]:
    """Receive, local steps, submit. Metrics of the steps are their means over the round."""
    stride = algorithm.stride

    def step(learner: Any, number: Any) -> tuple[Any, Any]:
        batch_key, step_key = jax.random.split(jax.random.fold_in(key, number))
        batch = data.sample(batch_key, stride * algorithm.batch_size)
        return algorithm.step(learner, broadcast, batch, step_key)

    learner, history = jax.lax.scan(step, algorithm.receive(learner, broadcast), jnp.arange(local_steps // stride))
    learner, submission = algorithm.submit(learner, broadcast, data)
    means = {name: values.mean(axis=0) for name, values in history.items()}
    return learner, Submission(submission.parameters, submission.log_weight, means | submission.metrics)


# --- The server's part ------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("algorithm", "space"))
def start(algorithm: Any, space: Space, key: PRNGKeyArray) -> tuple[Any, Any]:
    """The learner that every client starts from, and the server's state before any message."""
    learner = algorithm.init(key, space)
    return learner, algorithm.start(learner)


def no_data(space: Space) -> Data:
    """One made-up row of zeros, for the shapes of messages."""
    width = 2 * (space.observation + space.action.size) + 3
    return Data(jnp.zeros((1, width)), jnp.ones((), jnp.int32), space)


class Judged(NamedTuple):
    """What the server makes of some clients' submissions."""

    # What `Algorithm.aggregate` is given: all submissions, or one that stands for all where that is enough.
    submissions: Submission
    log_total: Float[Array, ""]  # logarithm of the total weight of the accepted clients
    verdicts: Int[Array, " clients"]
    log_weights: Float[Array, " clients"]  # -inf for a client that does not count
    metrics: dict[str, Float[Array, " clients"]]


@partial(jax.jit, static_argnames=("algorithm", "aggregation", "envelope"))
def judge_submissions(
    algorithm: Any,
    aggregation: Aggregation,
    envelope: Envelope,
    broadcast: Any,
    sent: Submission,
    present: Bool[Array, " clients"],
    by_returns: Float[Array, " clients"],
) -> Judged:
    """The server's part of a round: open the messages, judge each, weigh and combine those that are accepted.

    `present` is False for stand-ins that fill up a group; `by_returns` are the log-weights that `--aggregation
    returns` uses. Every engine calls this for a whole round, or for one group of clients after the other.
    """
    submissions = jax.vmap(envelope.decode, (0, None))(sent, broadcast)
    norms, metrics = None, submissions.metrics
    if not isinstance(envelope, Private):  # to compare clients with one another would tell about each of them
        norms = update_norms(algorithm, submissions, broadcast)
        metrics = metrics | {"update_norm": norms}
    verdicts = judge(submissions, norms, present)
    accepted = present & (verdicts == ACCEPTED)
    submissions = replace(submissions, log_weight=jnp.where(accepted, submissions.log_weight, -jnp.inf))
    submissions = weigh(aggregation, submissions, by_returns)
    log_weights = submissions.log_weight
    combined = combine(algorithm, aggregation, submissions)
    return Judged(combined, jax.nn.logsumexp(log_weights), verdicts, log_weights, metrics)


def combine(algorithm: Any, aggregation: Aggregation, submissions: Submission) -> Submission:
    """One submission that stands for all, where the algorithm asks for no more; else all of them."""
    if aggregation.combine is not None:
        return alone(aggregation.combine(submissions, algorithm.networks))
    if algorithm.mergeable:
        return alone(weighted_mean(submissions.parameters, submissions.log_weight))
    return submissions


@jax.jit
def merge_groups(one: Submission, log_one: Any, other: Submission, log_other: Any) -> tuple[Submission, Any]:
    """The mean of two groups' means, each counted by its total weight, and the weight of both.

    Group after group, so that a round never holds more than two means however many groups it has.
    """
    stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), one.parameters, other.parameters)
    mean = weighted_mean(stacked, jnp.stack([log_one, log_other]))
    return alone(mean), jnp.logaddexp(log_one, log_other)


def alone(parameters: Any) -> Submission:
    """A single submission of these parameters, with an axis of one client."""
    return Submission(jax.tree.map(lambda leaf: leaf[None], parameters), jnp.zeros(1), {})


@partial(jax.jit, static_argnames=("algorithm",))
def aggregate(algorithm: Any, server: Any, submissions: Submission) -> Any:
    """`Algorithm.aggregate`, compiled."""
    return algorithm.aggregate(server, submissions)


@partial(jax.jit, static_argnames=("algorithm", "envelope"))
def aggregate_each(
    algorithm: Any, envelope: Envelope, servers: Any, sent: Submission
) -> tuple[Any, Int[Array, " clients"], dict[str, Float[Array, " clients"]]]:
    """Local training: every client is a federation of its own. The servers afterwards, verdicts and metrics."""
    submissions = jax.vmap(envelope.decode)(sent, servers.broadcast)
    norms = update_norms(algorithm, submissions, servers.broadcast)
    servers = jax.vmap(algorithm.aggregate)(servers, jax.vmap(alone)(submissions.parameters))
    return servers, judge(submissions, None, None), submissions.metrics | {"update_norm": norms}


def server_weights(log_weights: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Each client's share of the round's mean; they add up to 1. All 0 where nobody counts."""
    largest = np.max(log_weights, initial=-np.inf)
    if largest == -np.inf:
        return np.zeros(len(log_weights))
    weights = np.exp(np.asarray(log_weights, np.float64) - largest)
    return weights / weights.sum()


# --- What travels ------------------------------------------------------------------------------------------


class Traffic(NamedTuple):
    """Bytes of numbers between the server and one client in one round; an engine's own wrapping is not counted."""

    down: int
    up: int


def traffic(envelope: Envelope, broadcast: Any, metrics: Iterable[str]) -> Traffic:
    """What a client that sends these metrics receives and sends, without computing anything."""
    number = jax.ShapeDtypeStruct((), jnp.float32)
    submission = Submission(broadcast, number, dict.fromkeys(metrics, number))  # type: ignore[arg-type]
    sent = jax.eval_shape(envelope.encode, submission, broadcast, jax.eval_shape(lambda: jax.random.key(0)))
    return Traffic(payload_bytes(broadcast), payload_bytes(sent))


# --- Whose submission counts ------------------------------------------------------------------------------

ACCEPTED, NOT_FINITE, HUGE = range(3)
WHY_REJECTED = {
    NOT_FINITE: "its numbers are not finite",
    HUGE: "its update is more than 10 times as long as the round's median",
}

# Adam moves all clients of a round by similar lengths, so that honest ones stay far below this.
_HUGE_FACTOR = 10.0
_FEWEST_TO_COMPARE = 3  # of two clients that differ, nobody can say which one is wrong


def judge(
    submissions: Submission, norms: Float[Array, " clients"] | None, present: Bool[Array, " clients"] | None
) -> Int[Array, " clients"]:
    """For every client ACCEPTED, or why not. `norms` are the lengths of their updates; None compares nobody.

    A fixed limit would depend on networks, learning rates and local steps; the other clients of the round are the
    measure that is always at hand. A mean survives submissions of any length this way; ones that are wrong but of
    ordinary length are what median, trimmed mean and Krum are for.
    """
    finite = all_finite(submissions)
    if norms is None or present is None:
        return jnp.where(finite, ACCEPTED, NOT_FINITE)
    compared = present & finite
    median = jnp.nanmedian(jnp.where(compared, norms, jnp.nan))
    huge = (compared.sum() >= _FEWEST_TO_COMPARE) & (median > 0) & (norms > _HUGE_FACTOR * median)
    return jnp.where(finite, jnp.where(huge, HUGE, ACCEPTED), NOT_FINITE)


def all_finite(submissions: Submission) -> Bool[Array, " clients"]:
    """Which clients sent nothing but finite numbers; a metric can be a weight, too."""
    leaves = jax.tree.leaves(submissions)
    return jnp.stack([jnp.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in leaves]).all(axis=0)


def update_norms(algorithm: Any, submissions: Submission, broadcast: Any) -> Float[Array, " clients"]:
    """How far every client's networks moved away from the broadcast, or each from its own.

    What an algorithm federates beside networks follows a client's data and not Adam's steps: honest clients may
    differ in it by any amount.
    """
    sent, before = algorithm.networks(submissions.parameters), algorithm.networks(broadcast)
    squares = jax.tree.map(lambda a, b: jnp.square(a - b).reshape(len(a), -1).sum(axis=1), sent, before)
    return jnp.sqrt(sum(jax.tree.leaves(squares), jnp.zeros(())))
