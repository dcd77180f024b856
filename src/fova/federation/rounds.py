"""The steps of a round at a client and at the server, and the source of its randomness.

Every engine computes a round with these functions only. Therefore the same seed gives the same parameters in a
simulation and over a network. Pure functions of arrays: no file, network or clock here.

All randomness is derived from (seed, round, client name, step). A client's batches do not depend on its position in
the list of clients, and an interrupted run continues with the same results.
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

from fova.algorithms.base import FIELDS, Batch, Data, Submission, pack, replace, row_width, weighted_mean
from fova.data.returns import next_returns
from fova.data.transitions import Transitions
from fova.federation import trust
from fova.federation.aggregation import Aggregation, weigh
from fova.federation.privacy import Private
from fova.federation.wire import Envelope, payload_bytes
from fova.spaces import Space

ROWS_AT_ONCE = 4096  # of a client's data when they are copied

# --- Keys -------------------------------------------------------------------------------------------------

# Each use of randomness has a separate stream.
_INIT, _PARTICIPATION, _CLIENTS, _ENVELOPES, _PUBLICATION, _GROUPS = range(6)


def init_key(root: PRNGKeyArray) -> PRNGKeyArray:
    """The key for the initial networks. Here and below, `root` is the key of the seed."""
    return jax.random.fold_in(root, _INIT)


def participation_key(root: PRNGKeyArray, round_number: int) -> PRNGKeyArray:
    """The key for drawing the clients of a round."""
    return jax.random.fold_in(jax.random.fold_in(root, _PARTICIPATION), round_number)


def client_key(root: PRNGKeyArray, round_number: int, client: Any) -> PRNGKeyArray:
    """The key for the local steps of a client in a round. `client` is its `identity`."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(root, _CLIENTS), round_number), client)


def envelope_key(root: PRNGKeyArray, round_number: int, client: Any) -> PRNGKeyArray:
    """The key for the envelope of a simulated client's submission. A real client uses a secret key instead."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(root, _ENVELOPES), round_number), client)


def publication_key(root: PRNGKeyArray, round_number: int) -> PRNGKeyArray:
    """The key for the noise of a simulated server. A real server uses a secret key instead."""
    return jax.random.fold_in(jax.random.fold_in(root, _PUBLICATION), round_number)


def groups_key(root: PRNGKeyArray, round_number: int) -> PRNGKeyArray:
    """The key for dealing a large round's submissions out to groups that are judged one after another."""
    return jax.random.fold_in(jax.random.fold_in(root, _GROUPS), round_number)


def identity(name: str) -> int:
    """The number that identifies a client in its keys."""
    return zlib.crc32(name.encode())


# --- A client's part --------------------------------------------------------------------------------------


def local_round(
    algorithm: Any, local_steps: int, learner: Any, broadcast: Any, data: Data, key: PRNGKeyArray
) -> tuple[Any, Submission]:
    """A client's round: receive, local steps, submit. Returns the new learner and the submission.

    The metrics of the steps are averaged over the round.
    """
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
    """The learner that every client starts from, and the server's initial state."""
    learner = algorithm.init(key, space)
    return learner, algorithm.start(learner)


def rows_of(
    prepared: Transitions,
    discount: float,
    drawn: NDArray[np.int64] | None = None,
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """A client's prepared data as the rows of `Data`, on the host; in `out` if it is given.

    `drawn` are rows that come by their weights, as `fova.data.sampling` chooses them: one beside each row.
    """
    fields = {name: getattr(prepared, name) for name in FIELDS if name != "next_returns"}
    fields["next_returns"] = next_returns(prepared, discount)
    batch = Batch(**fields)
    if drawn is None:
        return pack(batch, out)
    if out is None:
        rows = pack(batch)
        return np.concatenate([rows, rows[drawn]], axis=1)
    alike, weighted = np.split(out, 2, axis=1)
    pack(batch, alike)
    for first in range(0, len(drawn), ROWS_AT_ONCE):  # so that a large client is not copied as a whole
        weighted[first : first + ROWS_AT_ONCE] = alike[drawn[first : first + ROWS_AT_ONCE]]
    return out


def no_data(space: Space) -> Data:
    """A dataset of one row of zeros. It is used to derive the shapes of messages."""
    return Data.of(jnp.zeros((1, row_width(space))), space)


class Judged(NamedTuple):
    """The result of judging and weighing some clients' submissions."""

    # The input of `Algorithm.aggregate`: all submissions, or one combined submission if that is enough.
    submissions: Submission
    log_total: Float[Array, ""]  # logarithm of the total weight of the accepted clients
    verdicts: Int[Array, " clients"]
    log_weights: Float[Array, " clients"]  # -inf for an absent or rejected client
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
    """The server's part of a round: decode the submissions, judge each, weigh and combine the accepted ones.

    `present` is False for the padding that fills a group. `by_returns` are the log-weights that `--aggregation
    returns` uses. Every engine calls this once for a whole round, or once for each group of clients.
    """
    submissions = jax.vmap(envelope.decode, (0, None))(sent, broadcast)
    metrics, alone = submissions.metrics, None
    if isinstance(envelope, Private):  # comparing clients would reveal information about each one
        verdicts = judge(submissions, None, present)
    else:
        norms = update_norms(algorithm, submissions, broadcast)
        metrics = metrics | {"update_norm": norms}
        verdicts = judge(submissions, norms, present)
        if len(present) >= trust.FEWEST_CLIENTS and not trust.believes_all(aggregation.largest_share):
            compared = present & (verdicts == ACCEPTED)
            alone = trust.alone_against_all(network_updates(algorithm, submissions, broadcast), compared)
            factors = length_factors(norms, compared, alone)
            parameters = trust.shortened(submissions.parameters, broadcast, factors)
            submissions = replace(submissions, parameters=parameters)
    accepted = present & (verdicts == ACCEPTED)
    submissions = replace(submissions, log_weight=jnp.where(accepted, submissions.log_weight, -jnp.inf))
    submissions = weigh(aggregation, submissions, by_returns, alone)
    log_weights = submissions.log_weight
    combined = combine(algorithm, aggregation, submissions)
    return Judged(combined, jax.nn.logsumexp(log_weights), verdicts, log_weights, metrics)


def combine(algorithm: Any, aggregation: Aggregation, submissions: Submission) -> Submission:
    """One combined submission if the aggregation or the algorithm allows it, otherwise all submissions."""
    if aggregation.combine is not None:
        return alone(aggregation.combine(submissions, algorithm.networks))
    if algorithm.mergeable:
        return alone(weighted_mean(submissions.parameters, submissions.log_weight))
    return submissions


@jax.jit
def merge_groups(one: Submission, log_one: Any, other: Submission, log_other: Any) -> tuple[Submission, Any]:
    """The mean of two groups' means, each weighted by its total weight, and the log-weight of both together.

    Groups are merged one after another, so that a round holds at most two means for any number of groups.
    """
    stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), one.parameters, other.parameters)
    mean = weighted_mean(stacked, jnp.stack([log_one, log_other]))
    return alone(mean), jnp.logaddexp(log_one, log_other)


def alone(parameters: Any) -> Submission:
    """A single submission of these parameters, with a client axis of length one."""
    return Submission(jax.tree.map(lambda leaf: leaf[None], parameters), jnp.zeros(1), {})


def parameters_of(single: Submission) -> Any:
    """The parameters of a single submission: the inverse of `alone`."""
    return jax.tree.map(lambda leaf: leaf.squeeze(axis=0), single.parameters)


@partial(jax.jit, static_argnames=("algorithm",))
def aggregate(algorithm: Any, server: Any, submissions: Submission) -> Any:
    """`Algorithm.aggregate`, compiled."""
    return algorithm.aggregate(server, submissions)


@partial(jax.jit, static_argnames=("algorithm", "envelope"))
def aggregate_each(
    algorithm: Any, envelope: Envelope, servers: Any, sent: Submission
) -> tuple[Any, Int[Array, " clients"], dict[str, Float[Array, " clients"]]]:
    """Aggregate for local training, where every client is a separate federation.

    Returns the new servers, the verdicts and the metrics.
    """
    submissions = jax.vmap(envelope.decode)(sent, servers.broadcast)
    norms = update_norms(algorithm, submissions, servers.broadcast)
    servers = jax.vmap(algorithm.aggregate)(servers, jax.vmap(alone)(submissions.parameters))
    return servers, judge(submissions, None, None), submissions.metrics | {"update_norm": norms}


def server_weights(log_weights: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Each client's weight in the round's mean. The weights sum to 1; all are 0 if no client is accepted."""
    largest = np.max(log_weights, initial=-np.inf)
    if largest == -np.inf:
        return np.zeros(len(log_weights))
    weights = np.exp(np.asarray(log_weights, np.float64) - largest)
    return weights / weights.sum()


# --- Traffic -----------------------------------------------------------------------------------------------


class Traffic(NamedTuple):
    """Bytes of arrays between the server and one client in one round, without the engine's message format."""

    down: int
    up: int


def traffic(envelope: Envelope, broadcast: Any, metrics: Iterable[str]) -> Traffic:
    """The bytes that a client with these metrics receives and sends. Nothing is computed."""
    number = jax.ShapeDtypeStruct((), jnp.float32)
    submission = Submission(broadcast, number, dict.fromkeys(metrics, number))  # type: ignore[arg-type]
    sent = jax.eval_shape(envelope.encode, submission, broadcast, jax.eval_shape(lambda: jax.random.key(0)))
    return Traffic(payload_bytes(broadcast), payload_bytes(sent))


# --- Which submissions are accepted -----------------------------------------------------------------------

ACCEPTED, NOT_FINITE, HUGE = range(3)
WHY_REJECTED = {
    NOT_FINITE: "its numbers are not finite",
    HUGE: "its update is more than 10 times as long as the round's median",
}

# Adam moves all clients of a round by similar lengths, so honest clients stay far below this factor.
_HUGE_FACTOR = 10.0
_FEWEST_TO_COMPARE = 3  # if two clients differ, it is unknown which one is wrong


def judge(
    submissions: Submission, norms: Float[Array, " clients"] | None, present: Bool[Array, " clients"] | None
) -> Int[Array, " clients"]:
    """The verdict on every client: ACCEPTED or the reason for rejection.

    `norms` are the norms of the updates. With None, clients are not compared. A fixed limit would depend on
    networks, learning rates and local steps, so the limit comes from the other clients of the round.
    """
    finite = all_finite(submissions)
    if norms is None or present is None:
        return jnp.where(finite, ACCEPTED, NOT_FINITE)
    compared = present & finite
    median = jnp.nanmedian(jnp.where(compared, norms, jnp.nan))
    huge = (compared.sum() >= _FEWEST_TO_COMPARE) & (median > 0) & (norms > _HUGE_FACTOR * median)
    return jnp.where(finite, jnp.where(huge, HUGE, ACCEPTED), NOT_FINITE)


def all_finite(submissions: Submission) -> Bool[Array, " clients"]:
    """Which clients sent only finite numbers. Metrics are checked too, because a metric can be a weight."""
    leaves = jax.tree.leaves(submissions)
    return jnp.stack([jnp.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in leaves]).all(axis=0)


def length_factors(
    norms: Float[Array, " clients"], compared: Bool[Array, " clients"], alone: Bool[Array, " clients"]
) -> Float[Array, " clients"]:
    """The factor that scales down each update that is too long; 1 for the others.

    An update may be twice as long as the median, or as long as the median if it is alone against all others.
    """
    median = jnp.nanmedian(jnp.where(compared, norms, jnp.nan))
    longest = jnp.where(alone, 1.0, trust.LONGEST) * median
    too_long = compared & (compared.sum() >= trust.FEWEST_CLIENTS) & (longest > 0.0) & (norms > longest)
    return jnp.where(too_long, longest / norms, 1.0)


def network_updates(algorithm: Any, submissions: Submission, broadcast: Any) -> Float[Array, "clients parameters"]:
    """The update of every client's networks as one vector."""
    sent, before = algorithm.networks(submissions.parameters), algorithm.networks(broadcast)
    updates = jax.tree.map(lambda own, was: (own - was).reshape(len(own), -1), sent, before)
    return jnp.concatenate(jax.tree.leaves(updates), axis=1)


def update_norms(algorithm: Any, submissions: Submission, broadcast: Any) -> Float[Array, " clients"]:
    """The distance of every client's networks from the broadcast, or from the client's own broadcast.

    Other parameters that an algorithm federates depend on a client's data and not on Adam's steps. Honest clients
    may differ in them by any amount, so they are left out.
    """
    sent, before = algorithm.networks(submissions.parameters), algorithm.networks(broadcast)
    squares = jax.tree.map(lambda a, b: jnp.square(a - b).reshape(len(a), -1).sum(axis=1), sent, before)
    return jnp.sqrt(sum(jax.tree.leaves(squares), jnp.zeros(())))
