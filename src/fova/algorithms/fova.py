"""FOVA: federated offline RL with a vote and advantage-weighted regression.

Read this file beside the paper, whose equation labels stand at the functions. Three candidates compete at state x:
a_l ~ pi_k(.|x) of the client's policy, a_b the action of the data at x, and a_g ~ pibar(.|x) of the global policy,
which is frozen during a round.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fova.algorithms.base import ActorCritic, Batch, Broadcast, Learner, Metrics, Model, Temperature, replace
from fova.networks import Clipped, Forward, GaussianActor, Scored, Squashed, TwinCritic, pick, polyak
from fova.settings import Within
from fova.spaces import Space

LOCAL, BEHAVIOUR, GLOBAL = range(3)
VoteOrder = Literal["min_then_max", "max_then_min"]
Auto = Literal["auto"]

# The values of "auto", in the federation's unit of reward: a good policy is worth about 1 / (1 - gamma) in it.
AUTO_ALPHA, AUTO_BETA = 0.5, 0.3
AUTO_LAMBDA = 1.0  # times 1 / (1 - gamma): imitation and Q then have about equal weight in the actor's loss

# With the vote on, a_g is itself a candidate and w is in (0, 1]. With the vote off, only this bounds w.
MAX_WEIGHT = 100.0


# --- What a client carries beyond the skeleton ------------------------------------------------------------


class Memory(eqx.Module):
    """The critics as they were when the data last changed (continual variant)."""

    critic: TwinCritic
    rescale: Float[Array, ""]  # the unit of reward in which they learned / the present one
    valid: Float[Array, ""]  # 0 until the data has changed once, then 1


class Extra(eqx.Module):
    temperature: Temperature | None
    memory: Memory | None


# --- The equations ----------------------------------------------------------------------------------------


class Candidates(NamedTuple):
    actions: Float[Array, "3 batch action"]  # a_l, a_b, a_g
    log_density: Float[Array, "3 batch"]  # under the policy that proposed it; 0 for the data's action


class Vote(NamedTuple):
    winner: Int[Array, "2 batch"]  # the candidate that each critic takes
    value: Float[Array, " batch"]


def candidates(
    local: Squashed | Clipped,
    behaviour: Float[Array, "batch action"],
    global_policy: Squashed | Clipped,
    local_key: PRNGKeyArray,
    global_key: PRNGKeyArray,
) -> Candidates:
    """One action from each of pi_k, the data and pibar."""
    a_l, log_l = local.sample_with_log_prob(local_key)
    a_g, log_g = global_policy.sample_with_log_prob(global_key)
    return Candidates(jnp.stack([a_l, behaviour, a_g]), jnp.stack([log_l, jnp.zeros_like(log_l), log_g]))


def vote(q: Float[Array, "2 candidates batch"], ballot: Float[Array, "candidates batch"], order: VoteOrder) -> Vote:
    """eq. (vote_policy): the candidate with the largest Q wins. `ballot` is 0 for a candidate that may not win."""
    q = jnp.where(ballot > 0, q, -jnp.inf)
    if order == "min_then_max":  # one vote on the smaller value of the twins
        q = jnp.broadcast_to(q.min(axis=0), q.shape)
    return Vote(q.argmax(axis=1), q.max(axis=1).min(axis=0))


def voted(
    values: Float[Array, "3 batch ..."], winner: Int[Array, "critic batch"]
) -> Float[Array, "critic batch ..."]:
    """For each critic and state, the winning candidate's action or log-density."""
    return pick(jnp.broadcast_to(values, (len(winner), *values.shape)), winner)


def soft_sources(
    here: Candidates, there: Candidates, winner: Int[Array, "2 batch"], next_winner: Int[Array, "2 batch"], key: Any
) -> tuple[Float[Array, "2 2 batch action"], Float[Array, "2 3 batch"]]:
    """The voted action at s' and a uniform one; the log-densities of the voted action at s and of these two."""
    a_next = voted(there.actions, next_winner)
    a_uniform = jax.random.uniform(key, a_next.shape[1:], minval=-1.0, maxval=1.0)
    log_here, log_next = voted(here.log_density, winner), voted(there.log_density, next_winner)
    log_uniform = jnp.full_like(log_here, -a_next.shape[-1] * jnp.log(2.0))
    actions = jnp.stack([a_next, jnp.broadcast_to(a_uniform, a_next.shape)], axis=1)
    return actions, jnp.stack([log_here, log_next, log_uniform], axis=1)


def soft_maximum(
    q_voted: Float[Array, "2 batch"], q_others: Float[Array, "2 2 batch"], log_density: Float[Array, "2 3 batch"]
) -> Float[Array, "2 batch"]:
    """The authors' program: log sum exp over the three sources of Q minus log-density, all at s."""
    q = jnp.concatenate([q_voted[:, None], q_others], axis=1)
    return jax.nn.logsumexp(q - log_density, axis=1)


def vcql_loss(
    q_data: Float[Array, "2 batch"],
    y: Float[Array, " batch"],
    gap: Float[Array, "2 batch"],
    alpha: float,
    td_scale: float,
) -> Float[Array, ""]:
    """eq. (vcql), the sum over both critics of td_scale E[(Q(s,a) - y)^2] + alpha (E[Q(s,a_v)] - E[Q(s,a)])."""
    return jnp.sum(td_scale * jnp.square(q_data - y).mean(axis=1) + alpha * gap.mean(axis=1))


def memory_loss(q_data: Float[Array, "2 batch"], q_before: Float[Array, "2 batch"]) -> Float[Array, ""]:
    """The pull of the continual variant, the sum over both critics of E[(Q(s,a) - Q_prev(s,a))^2]."""
    return jnp.square(q_data - q_before).mean(axis=1).sum()


def awr_weight(q: Float[Array, " batch"], v: Float[Array, " batch"], beta: float) -> Float[Array, " batch"]:
    """w(s) = exp((Q(s, a_g) - V(s)) / beta), with Q(s, a_g) as printed or the Q of another candidate."""
    return jnp.minimum(jnp.exp((q - v) / beta), MAX_WEIGHT)


def awr_loss(
    log_prob: Float[Array, " batch"], w: Float[Array, " batch"], q_local: Float[Array, " batch"], lam: float
) -> Float[Array, ""]:
    """eq. (awr), negated: lambda E[w(s) log pi_k(a|s)] + E[Q(s, a_l)] is maximised."""
    return -(lam * jnp.mean(w * log_prob) + q_local.mean())


# --- The algorithm ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fova(ActorCritic):
    """FOVA: the vote mechanism with advantage-weighted regression."""

    name: ClassVar[str] = "fova"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        # the default: the best setting in a study of clients with mixed quality (docs/study-mixed-quality.md)
        "recommended": {
            "weigh": "data",  # the printed weight depends on the state only and cannot rank the data's actions
            "alpha": "auto",  # a number in units of reward cannot fit every task
            "lam": "auto",
            "beta": "auto",
            "server_weights": "returns",  # the plain mean of an expert and a beginner plays like neither
            "actor_lr": 3e-4,
        },
        # the paper's text
        "equations": {"actor": "squashed"},
        # the authors' program (1000 rounds of 100 steps, 5 clients of 10,000 transitions)
        "released": {
            "actor": "squashed",
            "conservative": "logsumexp",
            "td_scale": 1.0,
            "entropy": "auto",
            "vote_order": "max_then_min",
            "advantage_from": "target",
            "lam": 3.0,
            "beta": 3.0,
            "actor_layer_norm": True,
        },
    }

    actor: Literal["clipped", "squashed"] = "clipped"
    """Distribution of the actions: clipped (Gaussian around a tanh mean, clipped to the bounds) or squashed (tanh
    of a Gaussian, as in the authors' program)."""
    alpha: Annotated[float | Auto, Within(0)] = 5.0
    """Weight of the conservative term (eq. vcql), in the unit in which critics learn: the federation's unit of
    reward if alpha, lambda or beta is auto, else that of the raw rewards. auto is 0.5."""
    lam: Annotated[float | Auto, Within(0)] = 5.0
    """Lambda: weight of imitation against the Q term of the actor (eq. awr), in the same unit. auto is
    1 / (1 - gamma), which a good policy is worth. 0 leaves the Q term alone."""
    beta: Annotated[float | Auto, Within(0, above=True)] = 5.0
    """Temperature of the imitation weights w (eq. awr), in the same unit. auto is 0.3. Large values mean plain
    behaviour cloning."""
    conservative: Literal["vote", "logsumexp"] = "vote"
    """Which Q the critics push down: that of the voted action, or a soft maximum over the votes at s and s' and a
    uniform action."""
    td_scale: Annotated[float, Within(0, above=True)] = 0.5
    """Factor of the squared TD error: 0.5 in the paper, 1 in the authors' program."""
    entropy: Literal["none", "auto"] = "none"
    """Entropy bonus of the actor: none, or SAC's with automatic temperature and target -dim(A)."""
    vote_order: VoteOrder = "min_then_max"
    """One vote on the smaller of the twins' values, or one vote per critic and then the smaller outcome."""
    advantage_from: Literal["current", "target"] = "current"
    """Which critics give V and w for the actor."""
    weigh: Literal["global", "data"] = "global"
    """Whose advantage weights the imitation: that of the global action, as printed, or of the data's, as in AWR."""
    imitate: Literal["data", "vote"] = "data"
    """Which action the actor imitates: that of the data, as printed, or the winner of the vote at s."""
    server_weights: Literal["plain", "returns"] = "plain"
    """Weights of the clients at the server: equal, as printed (or as value_weight says), or by the returns that
    their data shows. Every client keeps a minimum weight."""
    vote: bool = True
    """Hold the vote. Without it (ablation) the action of the client's policy wins everywhere."""
    awr: bool = True
    """Weight the imitation by advantage. Without it (ablation) w = 1: plain behaviour cloning."""
    continual: Annotated[float, Within(0)] = 0.0
    """alpha_2: pull of Q towards the Q at the last change of the data; 0 is off. It has no effect in a run whose
    data never changes."""

    @property
    def reward_unit(self) -> Literal["raw", "federation"]:
        return "federation" if "auto" in (self.alpha, self.lam, self.beta) else "raw"

    @property
    def client_weights(self) -> Literal["submitted", "returns"]:
        return "returns" if self.server_weights == "returns" else "submitted"

    @property
    def strengths(self) -> tuple[float, float, float]:
        """Alpha, lambda and beta as numbers."""
        alpha = AUTO_ALPHA if self.alpha == "auto" else self.alpha
        lam = AUTO_LAMBDA / (1.0 - self.discount) if self.lam == "auto" else self.lam
        return alpha, lam, AUTO_BETA if self.beta == "auto" else self.beta

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        learner = super().init(key, space)
        temperature = Temperature.start(self.actor_lr) if self.entropy == "auto" else None
        memory = Memory(learner.critic.network, jnp.ones(()), jnp.zeros(())) if self.continual else None
        return replace(learner, extra=Extra(temperature, memory))

    def data_changed(self, learner: Learner, rescale: Float[Array, ""]) -> Learner:
        if learner.extra.memory is None:
            return learner
        memory = Memory(learner.critic.network, jnp.asarray(rescale), jnp.ones(()))
        return replace(learner, extra=replace(learner.extra, memory=memory))

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        local_key, global_key, next_local_key, next_global_key, uniform_key = jax.random.split(key, 5)
        s, next_s = batch.observations, batch.next_observations

        # --- Candidates at s, scored by the current critics, and at s' ---
        local, global_policy = learner.actor.network.forward(s), broadcast.actor
        here = candidates(local.policy, batch.actions, global_policy(s), local_key, global_key)
        scored = learner.critic.network.score(s, here.actions)
        next_local, a_next = learner.actor(next_s), batch.next_actions
        there = candidates(next_local, a_next, global_policy(next_s), next_local_key, next_global_key)

        critic, critic_metrics = self.update_critics(learner, batch, here, there, scored, uniform_key)
        actor, temperature, actor_metrics = self.update_actor(learner, batch, here, local, scored, local_key)
        target_critic = polyak(learner.target_critic, critic.network, self.tau)
        learner = Learner(actor, critic, target_critic, Extra(temperature, learner.extra.memory))
        return learner, critic_metrics | actor_metrics

    def ballot(self, has_action: Float[Array, " batch"]) -> Float[Array, "3 batch"]:
        """Who may win: the data's action only where there is one; with the vote off, the local policy only."""
        everyone = jnp.ones_like(has_action)
        return jnp.stack([everyone, has_action * self.vote, everyone * self.vote])

    def update_critics(
        self, learner: Learner, batch: Batch, here: Candidates, there: Candidates, scored: Scored, key: PRNGKeyArray
    ) -> tuple[Model, Metrics]:
        """eq. (vcql): one step of both critics on the conservative objective."""
        s, a, next_s = batch.observations, batch.actions, batch.next_observations
        (alpha, _, _), memory = self.strengths, learner.extra.memory

        # --- Target: the vote at s' under the target critics, which score only candidates that can win ---
        entrants = slice(None) if self.vote else slice(LOCAL, LOCAL + 1)
        next_q = learner.target_critic(next_s, there.actions[entrants])
        next_vote = vote(next_q, self.ballot(batch.has_next_action)[entrants], self.vote_order)
        y = self.target(batch, next_vote.value)

        # --- Actions of the conservative term ---
        winner = vote(scored.q, self.ballot(jnp.ones_like(y)), self.vote_order).winner
        a_others, log_density = soft_sources(here, there, winner, next_vote.winner, key)

        def loss(critic: TwinCritic) -> tuple[Float[Array, ""], Float[Array, "2 batch"]]:
            q_data, q_pushed = scored.for_critic(critic, BEHAVIOUR, winner)
            if self.conservative == "logsumexp":
                q_pushed = soft_maximum(q_pushed, critic.paired(s, a_others), log_density)
            gap = q_pushed - q_data
            objective = vcql_loss(q_data, y, gap, alpha, self.td_scale)
            if memory is not None:
                q_before = memory.rescale * memory.critic(s, a)
                objective += self.continual * memory.valid * memory_loss(q_data, q_before)
            return objective, gap

        critic, objective, gap = learner.critic.descend(loss, has_aux=True)
        q_data = scored.q[:, BEHAVIOUR]
        metrics = {
            "vote_local": jnp.mean(next_vote.winner == LOCAL),
            "vote_behaviour": jnp.mean(next_vote.winner == BEHAVIOUR),
            "vote_global": jnp.mean(next_vote.winner == GLOBAL),
            "q_data": q_data.mean(),
            "conservative_gap": gap.mean(),
            "td_error": jnp.abs(q_data - y).mean(),
            "critic_loss": objective,
        }
        return critic, metrics

    def update_actor(
        self, learner: Learner, batch: Batch, here: Candidates, local: Forward, scored: Scored, key: PRNGKeyArray
    ) -> tuple[Model, Temperature | None, Metrics]:
        """eq. (awr): one step of the actor on the weighted regression, and one of the temperature."""
        s, a = batch.observations, batch.actions
        (_, lam, beta), temperature = self.strengths, learner.extra.temperature

        # --- Weights: the vote at s is the value V(s) ---
        q = scored.q if self.advantage_from == "current" else learner.target_critic(s, here.actions)
        v = vote(q, self.ballot(jnp.ones_like(batch.rewards)), self.vote_order)
        q_weighed = q[:, GLOBAL if self.weigh == "global" else BEHAVIOUR].min(axis=0)
        w = awr_weight(q_weighed, v.value, beta) if self.awr else jnp.ones_like(q_weighed)
        imitated = a if self.imitate == "data" else voted(here.actions, v.winner[:1])[0]

        def loss(actor: GaussianActor) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
            policy = local.for_actor(actor)
            a_l, log_prob = policy.sample_with_log_prob(key)  # the candidate again, now with its gradient
            q_local = scored.for_action(LOCAL, a_l).min(axis=0)
            objective = awr_loss(policy.log_prob(imitated), w, q_local, lam)
            if temperature is not None:
                objective += temperature.value * log_prob.mean()
            return objective, log_prob

        actor, objective, log_prob = learner.actor.descend(loss, has_aux=True)
        if temperature is not None:
            temperature = temperature.follow(log_prob, target=-a.shape[-1])
        return actor, temperature, {"weight": w.mean(), "entropy": -log_prob.mean(), "actor_loss": objective}
