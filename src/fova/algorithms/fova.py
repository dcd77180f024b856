"""FOVA: federated offline RL with a vote and advantage-weighted regression.

Read beside the paper ("FOVA: Offline Federated Reinforcement Learning with Mixed-Quality Data"): its equation
labels stand at the functions below. In order: what a client carries, the equations, then the config with one
`step` that reads as the paper's algorithm box. Pure maths: `base.py` says what may not enter this room.

Three candidates compete at a state x: a_l ~ pi_k(.|x) of the client's own policy, a_b the action its data
holds there, and a_g ~ pibar(.|x) of the global policy, which is frozen during a round.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fova.algorithms.base import (
    ActorCritic,
    Batch,
    Broadcast,
    Data,
    Learner,
    Metrics,
    Submission,
    Temperature,
    descend,
    replace,
    target,
)
from fova.networks import Clipped, GaussianActor, Squashed, TwinCritic, polyak
from fova.spaces import Space

LOCAL, BEHAVIOUR, GLOBAL = range(3)
VoteOrder = Literal["min_then_max", "max_then_min"]
Auto = Literal["auto"]

# Rewards come in any unit. Where something is "auto" the federation agrees on its own, what one step is worth:
# (1 - gamma) times the returns in its data (`Fova.submit`). Critics then learn in that unit, a good policy is worth
# about 1 / (1 - gamma) in every task, and these numbers serve them all.
AUTO_ALPHA = 0.5
AUTO_BETA = 0.3
AUTO_LAMBDA = 1.0  # times 1 / (1 - gamma): once the critics have learned, imitation and Q pull about equally
# Until the first messages have met, nobody knows the unit: so large a one leaves no reward to learn from.
UNKNOWN_LOG_UNIT = 60.0
LEAST_LOG_UNIT = -20.0  # whatever a client may claim, rewards in this unit can still be squared
# How much a client counts at the server, where its value decides.
VALUE_SHARPNESS = 20.0  # a client whose value is a tenth of 1 / (1 - gamma) lower counts e^-2 as much
LEAST_LOG_WEIGHT = -4.0  # nobody is silenced: who alone knows a part of the states must be heard, whatever it earns
MOST_LOG_WEIGHT = 2.0  # not even by clients that do far better than the federation has seen so far

# With the vote on, a_g is itself a candidate and w stays in (0, 1]. With it off nothing else bounds w.
MAX_WEIGHT = 100.0


# --- What a client carries beyond the skeleton ------------------------------------------------------------


class Unit(eqx.Module):
    """The federation's unit of reward. Both parts are averaged as parameters are."""

    log: Float[Array, ""]
    known: Float[Array, ""]  # 1; before the clients' first messages 0, and -1 at clients that were asked to begin

    @property
    def log_value(self) -> Float[Array, ""]:
        return jnp.where(self.known > 0, jnp.clip(self.log, LEAST_LOG_UNIT, UNKNOWN_LOG_UNIT), UNKNOWN_LOG_UNIT)

    def over(self, other: "Unit") -> Float[Array, ""]:
        """What one of this unit is in the other; 1 while this one is unknown and nothing was learned in it."""
        return jnp.where(self.known > 0, jnp.exp(self.log_value - other.log_value), 1.0)


class Memory(eqx.Module):
    """The critics as they were when the data last changed (continual variant)."""

    critic: TwinCritic
    unit: Unit | None  # of their values
    valid: Float[Array, ""]  # 0 until the data has changed once


class Extra(eqx.Module):
    temperature: Temperature | None
    memory: Memory | None
    unit: Unit | None  # where one is used; the server says it


# --- The equations ----------------------------------------------------------------------------------------


class Candidates(NamedTuple):
    actions: Float[Array, "3 batch action"]  # a_l, a_b, a_g
    log_density: Float[Array, "3 batch"]  # under the policy that proposed it; 0 for the data's action


class Strengths(NamedTuple):
    """Alpha, lambda and beta as numbers, in the unit in which critics learn."""

    alpha: float | Float[Array, ""]
    lam: float | Float[Array, ""]
    beta: float | Float[Array, ""]


class Vote(NamedTuple):
    winner: Int[Array, "2 batch"]  # the candidate that each critic takes
    value: Float[Array, " batch"]


def candidates(
    local: Squashed | Clipped,
    behaviour: Float[Array, "batch action"],
    world: Squashed | Clipped,
    local_key: PRNGKeyArray,
    world_key: PRNGKeyArray,
) -> Candidates:
    """One action from each of pi_k, the data and pibar."""
    a_l, log_l = local.sample_with_log_prob(local_key)
    a_g, log_g = world.sample_with_log_prob(world_key)
    return Candidates(jnp.stack([a_l, behaviour, a_g]), jnp.stack([log_l, jnp.zeros_like(log_l), log_g]))


def vote(q: Float[Array, "2 3 batch"], ballot: Float[Array, "3 batch"], order: VoteOrder) -> Vote:
    """eq. (vote_policy): the candidate with the largest Q wins; `ballot` is 0 where a candidate may not stand."""
    q = jnp.where(ballot > 0, q, -jnp.inf)
    if order == "min_then_max":  # the twins agree on the smaller value first, then there is one vote
        q = jnp.broadcast_to(q.min(axis=0), q.shape)
    return Vote(q.argmax(axis=1), q.max(axis=1).min(axis=0))


def elected(values: Float[Array, "2 3 batch ..."], winner: Int[Array, "2 batch"]) -> Float[Array, "2 batch ..."]:
    """For each critic and state, the value that belongs to the winning candidate."""
    won = winner.reshape(*winner.shape, *[1] * (values.ndim - 3))
    rest = jnp.where(won == GLOBAL, values[:, GLOBAL], values[:, BEHAVIOUR])
    return jnp.where(won == LOCAL, values[:, LOCAL], rest)


def chosen(
    values: Float[Array, "3 batch ..."], winner: Int[Array, "critic batch"]
) -> Float[Array, "critic batch ..."]:
    """The same for what does not depend on the critic: actions and log-densities."""
    return elected(jnp.broadcast_to(values, (len(winner), *values.shape)), winner)


def soft_maximum(
    q: Float[Array, "2 source batch"], log_density: Float[Array, "2 source batch"]
) -> Float[Array, "2 batch"]:
    """log sum exp over sources of Q minus log-density: the authors' program pushes this down."""
    return jax.nn.logsumexp(q - log_density, axis=1)


def vcql_loss(
    q_data: Float[Array, "2 batch"],
    y: Float[Array, " batch"],
    gap: Float[Array, "2 batch"],
    alpha: float | Float[Array, ""],
    td_scale: float,
) -> Float[Array, ""]:
    """eq. (vcql), both critics added: td_scale E[(Q(s,a) - y)^2] + alpha (E[Q(s,a_v)] - E[Q(s,a)])."""
    return jnp.sum(td_scale * jnp.square(q_data - y).mean(axis=1) + alpha * gap.mean(axis=1))


def client_log_weight(value: Float[Array, ""], discount: float) -> Float[Array, ""]:
    """How much a client counts at the server, given its value in units of what one step is worth."""
    return jnp.clip(VALUE_SHARPNESS * ((1.0 - discount) * value - 1.0), LEAST_LOG_WEIGHT, MOST_LOG_WEIGHT)


def awr_weight(
    q: Float[Array, " batch"], v: Float[Array, " batch"], beta: float | Float[Array, ""]
) -> Float[Array, " batch"]:
    """w(s) = exp((Q(s, a_g) - V(s)) / beta), with Q(s, a_g) as printed or another candidate's Q."""
    return jnp.minimum(jnp.exp((q - v) / beta), MAX_WEIGHT)


def awr_loss(
    log_prob: Float[Array, " batch"],
    w: Float[Array, " batch"],
    q_local: Float[Array, " batch"],
    lam: float | Float[Array, ""],
) -> Float[Array, ""]:
    """eq. (awr), negated: lambda E[w(s) log pi_k(a|s)] + E[Q(s, a_l)] is to be maximised."""
    return -(lam * jnp.mean(w * log_prob) + q_local.mean())


def memory_loss(q_data: Float[Array, "2 batch"], q_before: Float[Array, "2 batch"]) -> Float[Array, ""]:
    """The continual variant's pull, both critics added: E[(Q(s,a) - Q_prev(s,a))^2]."""
    return jnp.square(q_data - q_before).mean(axis=1).sum()


# --- The algorithm ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fova(ActorCritic):
    """FOVA: the vote mechanism with advantage-weighted regression."""

    name: ClassVar[str] = "fova"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        # the default: what a study on clients of mixed quality found best (docs/study-mixed-quality.md)
        "recommended": {
            "weigh": "data",  # the printed weight depends on the state alone and cannot tell good actions from bad
            "alpha": "auto",  # printed strengths are in units of reward: one number cannot serve every task
            "lam": "auto",
            "beta": "auto",
            "server_weights": "value",  # a plain mean of an expert's and a beginner's policy is neither
            "actor_lr": 3e-4,
        },
        # the paper's text
        "equations": {"actor": "squashed"},
        # the authors' program (which ran 1000 rounds of 100 steps with 5 clients of 10,000 transitions)
        "released": {
            "actor": "squashed",
            "conservative": "logsumexp",
            "td_scale": 1.0,
            "entropy": "auto",
            "vote_order": "max_then_min",
            "advantage_from": "slow",
            "lam": 3.0,
            "beta": 3.0,
            "actor_layer_norm": True,
        },
    }

    actor: Literal["clipped", "squashed"] = "clipped"
    """How the actor turns a state into actions: clipped (Gaussian around a tanh mean, clipped to the bounds) or
    squashed (tanh of a Gaussian, as the authors have it)."""
    alpha: float | Auto = 5.0
    """Weight of the conservative term of the critics (eq. vcql), in units of reward; auto is half of what one step
    is worth in this federation."""
    lam: float | Auto = 5.0
    """Lambda: weight of imitation against the Q term of the actor (eq. awr), in units of Q; auto is what a good
    policy is worth. 0 leaves the Q term alone."""
    beta: float | Auto = 5.0
    """Temperature of the imitation weights w (eq. awr), in units of Q; auto is 0.3 of what one step is worth.
    Large means plain behaviour cloning."""
    conservative: Literal["vote", "logsumexp"] = "vote"
    """Whose Q the critics push down: the voted action's, or a soft maximum over the votes at s and s' and a
    uniform action."""
    td_scale: float = 0.5
    """Factor of the squared TD error: 0.5 in the paper, 1 in the authors' program."""
    entropy: Literal["none", "auto"] = "none"
    """Entropy bonus of the actor: none, or SAC's with automatic temperature and target -dim(A)."""
    vote_order: VoteOrder = "min_then_max"
    """One vote on the smaller of the twins' values, or a vote per critic and then the smaller outcome."""
    advantage_from: Literal["current", "slow"] = "current"
    """Which critics judge V and w for the actor."""
    weigh: Literal["global", "data"] = "global"
    """Whose advantage weighs the imitation: the global action's, as printed, or the data action's, as in AWR."""
    imitate: Literal["data", "vote"] = "data"
    """Which action the actor imitates: the one in the data, as printed, or the one that won the vote at s."""
    server_weights: Literal["plain", "value"] = "plain"
    """How much clients count at the server: alike, as printed (or as value_weight says), or by the value that their
    data and critics show, in units of what one step is worth; nobody is silenced."""
    vote: bool = True
    """Hold the vote. Without it (ablation) the client's own action wins everywhere."""
    awr: bool = True
    """Weigh the imitation by advantage. Without it (ablation) w = 1: plain behaviour cloning."""
    continual: float = 0.0
    """alpha_2: pull of Q towards the Q frozen when the data last changed (`Simulation.data_changed`); 0 is off. A
    run whose data never changes has nothing to be pulled to."""

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        learner = super().init(key, space)
        temperature = Temperature.start(self.actor_lr) if self.entropy == "auto" else None
        unit = Unit(jnp.zeros(()), jnp.zeros(())) if self.uses_unit else None
        memory = Memory(learner.critic, unit, jnp.zeros(())) if self.continual else None
        return replace(learner, extra=Extra(temperature, memory, unit))

    @property
    def uses_unit(self) -> bool:
        return self.server_weights == "value" or "auto" in (self.alpha, self.lam, self.beta)

    def receive(self, learner: Learner, broadcast: Broadcast) -> Learner:
        unit = broadcast.extra
        if unit is not None:
            unit = Unit(unit.log, jnp.where(unit.known > 0, 1.0, -1.0))
        return replace(super().receive(learner, broadcast), extra=replace(learner.extra, unit=unit))

    def submit(self, learner: Learner, broadcast: Broadcast, data: Data) -> tuple[Learner, Submission]:
        learner, submission = super().submit(learner, broadcast, data)
        heard = learner.extra.unit
        if heard is None:
            return learner, submission
        # --- The client's value: the larger of what its data shows and what its critics see in its policy ---
        unit = jnp.exp(heard.log_value)
        to_go = data.returns_to_go(
            self.discount, lambda s: unit * learner.critic(s, learner.actor(s).mode()).min(axis=0)
        )
        shown = to_go.sum() / data.length / unit
        log_weight = submission.log_weight
        if self.server_weights == "value":
            log_weight = client_log_weight(jnp.maximum(submission.metrics["value"], shown), self.discount)
        # --- Its part of the unit; a logarithm, to be as small as a parameter. Who saw no reward repeats. ---
        one_step = (1.0 - self.discount) * jnp.abs(data.returns_to_go(self.discount)).sum() / data.length
        own = jnp.where(one_step > 0, jnp.log(jnp.where(one_step > 0, one_step, 1.0)), heard.log)
        # Half way to it: the unit decides who counts and who counts decides the unit, which must not swing.
        part = Unit(jnp.where(heard.known > 0, 0.5 * (own + heard.log), own), jnp.abs(heard.known))
        told_unit = jnp.where(heard.known > 0, unit, 0.0)
        metrics = submission.metrics | {"shown_value": shown, "log_weight": log_weight, "unit": told_unit}
        return learner, Submission(replace(submission.parameters, extra=part), log_weight, metrics)

    def strengths(self, unit: Unit | None) -> Strengths:
        """The three strengths of the equations in the unit in which critics learn."""
        per_reward = 1.0 if unit is None else jnp.where(unit.known > 0, jnp.exp(-unit.log_value), 1.0)
        return Strengths(
            alpha=AUTO_ALPHA if self.alpha == "auto" else self.alpha * per_reward,
            lam=AUTO_LAMBDA / (1.0 - self.discount) if self.lam == "auto" else self.lam * per_reward,
            beta=AUTO_BETA if self.beta == "auto" else self.beta * per_reward,
        )

    def data_changed(self, learner: Learner) -> Learner:
        if learner.extra.memory is None:
            return learner
        memory = Memory(learner.critic, learner.extra.unit, jnp.ones(()))
        return replace(learner, extra=replace(learner.extra, memory=memory))

    def ballot(self, has_action: Float[Array, " batch"]) -> Float[Array, "3 batch"]:
        """Who may stand: the data's action only where there is one; with the vote off, only the local policy."""
        everyone = jnp.ones_like(has_action)
        return jnp.stack([everyone, has_action * self.vote, everyone * self.vote])

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        s, a, next_s = batch.observations, batch.actions, batch.next_observations
        local_key, global_key, next_local_key, next_global_key, uniform_key = jax.random.split(key, 5)
        temperature, memory = learner.extra.temperature, learner.extra.memory
        unit = learner.extra.unit
        alpha, lam, beta = self.strengths(unit)
        rewards = batch.rewards if unit is None else batch.rewards * jnp.exp(-unit.log_value)

        # --- Candidates at s and at s' ---
        local_products = learner.actor.net.keep(s)
        local, next_local = learner.actor.distribution(local_products[-1]), learner.actor(next_s)
        here = candidates(local, a, broadcast.actor(s), local_key, global_key)
        there = candidates(next_local, batch.next_actions, broadcast.actor(next_s), next_local_key, next_global_key)
        ballot, next_ballot = self.ballot(jnp.ones_like(rewards)), self.ballot(batch.has_next_action)

        # --- Vote at s' under the slow critics: eq. (vote_policy) ---
        standing = slice(None) if self.vote else slice(LOCAL, LOCAL + 1)  # who cannot win need not be scored
        next_q = learner.slow_critic(next_s, there.actions[standing])
        next_vote = vote(next_q, next_ballot[standing], self.vote_order)
        y = target(rewards, batch.terminals, next_vote.value, self.discount)

        # --- Critics: eq. (vcql) ---
        q_products = learner.critic.keep(s, here.actions)
        q = q_products[-1][..., 0]
        winner = vote(q, ballot, self.vote_order).winner
        # Of the three candidates only two have a gradient: the data's action and the voted one.
        a_data_voted = jnp.stack([jnp.broadcast_to(a, (2, *a.shape)), chosen(here.actions, winner)], axis=1)
        data_voted = [jnp.stack([p[:, BEHAVIOUR], elected(p, winner)], axis=1) for p in q_products]

        def pushed_down(critic: TwinCritic, q_voted: Float[Array, "2 batch"]) -> Float[Array, "2 batch"]:
            if self.conservative == "vote":
                return q_voted
            # The vote at s' scored at s, and a uniform action, beside the vote at s.
            a_next = chosen(there.actions, next_vote.winner)
            a_uniform = jax.random.uniform(uniform_key, a.shape, minval=-1.0, maxval=1.0)
            others = jnp.stack([a_next, jnp.broadcast_to(a_uniform, a_next.shape)], axis=1)
            q_sources = jnp.concatenate([q_voted[:, None], critic.each(s, others)], axis=1)
            log_here = chosen(here.log_density, winner)
            log_next = chosen(there.log_density, next_vote.winner)
            log_uniform = jnp.full_like(log_here, -a.shape[-1] * jnp.log(2.0))
            return soft_maximum(q_sources, jnp.stack([log_here, log_next, log_uniform], axis=1))

        def critic_loss(critic: TwinCritic) -> tuple[Float[Array, ""], Any]:
            q_data, q_voted = jnp.moveaxis(critic.again(s, a_data_voted, data_voted), 1, 0)
            gap = pushed_down(critic, q_voted) - q_data
            loss = vcql_loss(q_data, y, gap, alpha, self.td_scale)
            if memory is not None:
                q_before = memory.critic(s, a)
                if unit is not None and memory.unit is not None:
                    q_before *= memory.unit.over(unit)
                loss += self.continual * memory.valid * memory_loss(q_data, q_before)
            return loss, gap

        (critic_objective, gap), critic_gradient = jax.value_and_grad(critic_loss, has_aux=True)(learner.critic)

        # --- Actor: eq. (awr) ---
        judged = q if self.advantage_from == "current" else learner.slow_critic(s, here.actions)
        here_vote = vote(judged, ballot, self.vote_order)
        weighed = judged[:, GLOBAL if self.weigh == "global" else BEHAVIOUR].min(axis=0)
        w = awr_weight(weighed, here_vote.value, beta) if self.awr else jnp.ones_like(weighed)
        imitated = a if self.imitate == "data" else chosen(here.actions, here_vote.winner[:1])[0]

        def actor_loss(actor: GaussianActor) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
            policy = actor.distribution(actor.net.again(s, local_products))
            a_l, log_prob = policy.sample_with_log_prob(local_key)  # the candidate again, now with its gradient
            q_local = learner.critic.again(
                s, jnp.broadcast_to(a_l, (2, *a.shape)), [p[:, LOCAL] for p in q_products]
            )
            loss = awr_loss(policy.log_prob(imitated), w, q_local.min(axis=0), lam)
            if temperature is not None:
                loss += jnp.exp(temperature.log) * log_prob.mean()
            return loss, log_prob

        (actor_objective, log_prob), actor_gradient = jax.value_and_grad(actor_loss, has_aux=True)(learner.actor)

        # --- Updates ---
        actor, actor_moments = descend(self.actor_lr, learner.actor, actor_gradient, learner.actor_moments)
        critic, critic_moments = descend(self.critic_lr, learner.critic, critic_gradient, learner.critic_moments)
        slow_critic = polyak(learner.slow_critic, critic, self.tau)
        if temperature is not None:
            temperature = temperature.follow(log_prob, target=-a.shape[-1], learning_rate=self.actor_lr)

        share = jnp.mean(next_vote.winner[..., None] == jnp.arange(3), axis=(0, 1))
        metrics = {
            "vote_local": share[LOCAL],
            "vote_behaviour": share[BEHAVIOUR],
            "vote_global": share[GLOBAL],
            "weight": w.mean(),
            "q_data": q[:, BEHAVIOUR].mean(),
            "conservative_gap": gap.mean(),
            "td_error": jnp.abs(q[:, BEHAVIOUR] - y).mean(),
            "entropy": -log_prob.mean(),
            "critic_loss": critic_objective,
            "actor_loss": actor_objective,
        }
        extra = Extra(temperature, memory, unit)
        return Learner(actor, critic, slow_critic, actor_moments, critic_moments, extra), metrics
