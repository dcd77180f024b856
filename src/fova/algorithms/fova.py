"""FOVA: federated offline RL with a vote and advantage-weighted regression.

Read this file beside the paper: the functions name its equation labels. `vote.py` has the vote. Three
candidates compete at state x: a_l ~ pi_k(.|x) of the client's policy, a_b the action of the data at x, and
a_g ~ pibar(.|x) of the global policy, which is frozen during a round.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import ActorCritic, Batch, Broadcast, Learner, Metrics, Model, Temperature, replace
from fova.algorithms.vote import (
    BEHAVIOUR,
    GLOBAL,
    LOCAL,
    Candidates,
    SoftSources,
    Vote,
    VoteOrder,
    candidates,
    soft_sources,
    vote,
    vote_shares,
    voted,
)
from fova.networks import (
    Clipped,
    Critic,
    Forward,
    GaussianActor,
    GaussianForm,
    Scored,
    Squashed,
    TwinCritic,
    polyak,
)
from fova.settings import Within
from fova.spaces import Space

Auto = Literal["auto"]

# The values of "auto", in the federation's unit of reward: a good policy is worth about 1 / (1 - gamma) in it.
AUTO_ALPHA, AUTO_BETA = 0.5, 0.3
AUTO_RELATIVE_BETA = 1.0  # in units of the advantages' spread
# Lambda, times 1 / (1 - gamma). The log-density of consistent data is steep, that of varied data is flat. So
# imitation dominates where the data is consistent, and Q where it is not.
AUTO_LAMBDA = 0.1

RECOMMENDED = {
    "weigh": "data",  # the printed weight depends on the state only and cannot rank the data's actions
    "alpha": "auto",  # a number in units of reward cannot fit every task
    "lam": "auto",
    "beta": "auto",
    "server_weights": "returns",  # the plain mean of an expert and a beginner plays like neither
    "data_returns": True,  # else credit takes 200 gradient steps to travel one step back
    "relative_weights": True,  # good and bad episodes inside one client differ by less than any fixed beta
    "actor_lr": 3e-4,
}

# Relative weights: the least spread, in the unit of the critics, and the largest weight; their mean is about 1.
LEAST_SPREAD, LARGEST_RELATIVE_WEIGHT = 1e-3, 20.0


# --- What a client carries beyond the skeleton ------------------------------------------------------------


class Memory(eqx.Module):
    """The critics as they were when the data last changed (continual variant)."""

    critic: Critic
    rescale: Float[Array, ""]  # the unit of reward in which they learned / the present one
    valid: Float[Array, ""]  # 0 until the data has changed once, then 1


class Extra(eqx.Module):
    temperature: Temperature | None
    memory: Memory | None


class View(NamedTuple):
    """What a step sees at s: the client's policy, the candidates, and their Q under the current critics."""

    local: Forward
    here: Candidates
    scored: Scored


class Keys(NamedTuple):
    local: PRNGKeyArray
    global_policy: PRNGKeyArray
    next_local: PRNGKeyArray
    next_global: PRNGKeyArray
    uniform: PRNGKeyArray


WEIGHT, CONSERVATIVE = 1, 2  # terms of the objectives that can have samples of their own


# --- The equations ----------------------------------------------------------------------------------------


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


def awr_weight(
    q: Float[Array, " batch"], v: Float[Array, " batch"], beta: float, cap: float
) -> Float[Array, " batch"]:
    """w(s) = exp((Q(s, a_g) - V(s)) / beta), with Q(s, a_g) as printed or the Q of another candidate."""
    return jnp.minimum(jnp.exp((q - v) / beta), cap)


def relative_weight(q: Float[Array, " batch"], v: Float[Array, " batch"], beta: float) -> Float[Array, " batch"]:
    """Weights that do not depend on the size of the advantages, but on how they compare in the minibatch.

    exp(advantage / (beta * spread of the advantages)), divided by the mean over the minibatch. Imitation as a whole
    then counts as much as in plain behaviour cloning; advantages only decide how much each row counts.
    """
    advantage = q - v
    z = advantage / (beta * jnp.std(advantage) + LEAST_SPREAD)
    w = jnp.exp(z - z.max())  # the same after the division, and nothing overflows
    return jnp.minimum(w / w.mean(), LARGEST_RELATIVE_WEIGHT)


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
        "recommended": RECOMMENDED,
        # the default with weights from the log in place of the critics' advantages, which fade in a long training
        "good-episodes": RECOMMENDED | {"episode_weights": "returns", "awr": False, "lam": 3.0},
        # the paper's text
        "equations": {"actor": "squashed"},
        # the authors' program (1000 rounds of 100 steps, 5 clients of 10,000 transitions)
        "released": {
            "actor": "squashed",
            "conservative": "logsumexp",
            "soft_vote": "q_minus_log_pi",
            "td_scale": 1.0,
            "entropy": "auto",
            "vote_order": "max_then_min",
            "advantage_from": "target",
            "weight_gradient": True,
            "weight_cap": 1.0,
            "update_order": "actor_first",
            "fresh_samples": True,
            "terminal_action": "negated",
            "density_offset": 1e-6,
            "lam": 3.0,
            "beta": 3.0,
            "actor_layer_norm": True,
        },
    }

    actor: Literal["clipped", "squashed"] = "clipped"
    """Distribution of continuous actions: clipped (Gaussian around a tanh mean, clipped to the bounds) or squashed
    (tanh of a Gaussian, as in the authors' program). Discrete actions have a categorical distribution."""
    alpha: Annotated[float | Auto, Within(0)] = 5.0
    """Weight of the conservative term (eq. vcql), in the unit in which critics learn: the federation's unit of
    reward if alpha, lambda or beta is auto, else that of the raw rewards. auto is 0.5."""
    lam: Annotated[float | Auto, Within(0)] = 5.0
    """Lambda: weight of imitation against the Q term of the actor (eq. awr), in the same unit. auto is
    0.1 / (1 - gamma), a tenth of what a good policy is worth. 0 leaves the Q term alone."""
    beta: Annotated[float | Auto, Within(0, above=True)] = 5.0
    """Temperature of the imitation weights w (eq. awr), in the same unit (but see relative_weights). auto is 0.3.
    Large values mean plain behaviour cloning."""
    conservative: Literal["vote", "logsumexp"] = "vote"
    """Which Q the critics push down: that of the voted action, or a soft maximum over the votes at s and s' and a
    uniform action."""
    soft_vote: Literal["q", "q_minus_log_pi"] = "q"
    """What wins the two votes of the soft maximum over sampled actions: Q (at s by the critics, at s' by the target
    critics), or Q(s, a) - log pi(a) by the critics, also for candidates drawn at s'."""
    soft_temperature: Annotated[float, Within(0, above=True)] = 1.0
    """Temperature of the soft maximum."""
    td_scale: Annotated[float, Within(0, above=True)] = 0.5
    """Factor of the squared TD error: 0.5 in the paper, 1 in the authors' program."""
    entropy: Literal["none", "auto"] = "none"
    """Entropy bonus of the actor: none, or SAC's with automatic temperature and target -dim(A) (discrete actions:
    0.98 log of their number)."""
    temperature_lr: Annotated[float, Within(0)] = 1e-4
    """Adam's learning rate for the entropy temperature."""
    density_offset: Annotated[float, Within(0, 1)] = 0.0
    """Number added to 1 - a^2 in the log-density of a squashed action: 0 is exact, 1e-6 in the authors' program."""
    vote_order: VoteOrder = "min_then_max"
    """One vote on the smaller of the twins' values, or one vote per critic and then the smaller outcome."""
    advantage_from: Literal["current", "target"] = "current"
    """Which critics give V and w for the actor."""
    weight_gradient: bool = False
    """Let the actor's gradient flow through V into the local action, as in the authors' program."""
    weight_cap: Annotated[float, Within(0, above=True)] = 100.0
    """Largest weight w. It matters where a_g is no candidate of V: with the vote off or with fresh samples."""
    update_order: Literal["together", "actor_first"] = "together"
    """Update both from the same parameters, or first the actor and then the critics with its new actions."""
    fresh_samples: bool = False
    """Draw new samples for every term (Q and entropy, V, the weight, target, soft maximum), not once per step."""
    terminal_action: Literal["none", "negated"] = "none"
    """Behaviour candidate behind a terminal row: none, or the negated action of the row (authors' program)."""
    weigh: Literal["global", "data"] = "global"
    """Whose advantage weights the imitation: that of the global action, as printed, or of the data's, as in AWR."""
    imitate: Literal["data", "vote"] = "data"
    """Which action the actor imitates: that of the data, as printed, or the winner of the vote at s."""
    relative_weights: bool = False
    """Weights w that compare the advantages of a minibatch with one another: beta is then in units of their spread
    (auto is 1), and the mean weight is 1."""
    data_returns: bool = False
    """Count the data's action for at least the discounted return that follows it in the data, in the targets of the
    critics and in the advantages. Credit then travels to the start of an episode at once. In stochastic tasks this
    favours lucky episodes."""
    server_weights: Literal["plain", "returns"] = "plain"
    """Weights of the clients at the server: equal, as printed (or as value_weight says), or by the returns that
    their data shows. Every client keeps a minimum weight."""
    episode_weights: Literal["plain", "returns"] = "plain"
    """Rows that the actor learns from: all alike, or those of episodes that earned more, more often. Critics always
    learn from all rows alike. In stochastic tasks this favours lucky episodes."""
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
    def row_weights(self) -> Literal["uniform", "returns"]:
        return "returns" if self.episode_weights == "returns" else "uniform"

    @property
    def actor_votes(self) -> bool:
        """Whether the actor's objective holds a vote at s: for the advantages, or for the imitated action."""
        return self.awr or self.imitate == "vote"

    @property
    def strengths(self) -> tuple[float, float, float]:
        """Alpha, lambda and beta as numbers."""
        alpha = AUTO_ALPHA if self.alpha == "auto" else self.alpha
        lam = AUTO_LAMBDA / (1.0 - self.discount) if self.lam == "auto" else self.lam
        auto_beta = AUTO_RELATIVE_BETA if self.relative_weights else AUTO_BETA
        return alpha, lam, auto_beta if self.beta == "auto" else self.beta

    @property
    def gaussian(self) -> GaussianForm:
        return GaussianForm(slope_offset=self.density_offset, shared_std=self.shared_std)

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        learner = super().init(key, space)
        temperature = Temperature.start(self.temperature_lr) if self.entropy == "auto" else None
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
        keys = Keys(*jax.random.split(key, 5))
        look_anew = self.update_order == "actor_first" or self.fresh_samples or batch.uniform is not None
        only_local = look_anew and not self.actor_votes
        view = self.look(learner, broadcast, batch, keys, only_local=only_local)
        actor, temperature, actor_metrics = self.update_actor(learner, broadcast, batch, view, keys)
        if self.update_order == "actor_first":
            learner = replace(learner, actor=actor)
        rows = batch.for_critics
        if look_anew:
            view = self.look(learner, broadcast, rows, self.keys_of(keys, CONSERVATIVE))
        critic, critic_metrics = self.update_critics(learner, broadcast, rows, view, keys)
        target_critic = polyak(learner.target_critic, critic.network, self.tau)
        learner = Learner(actor, critic, target_critic, Extra(temperature, learner.extra.memory))
        return learner, critic_metrics | actor_metrics

    # --- Candidates ---

    def keys_of(self, keys: Keys, term: int) -> Keys:
        """The keys of one term of the objectives: the same for all terms, unless samples are fresh."""
        return Keys(*(jax.random.fold_in(key, term) for key in keys)) if self.fresh_samples else keys

    def look(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, keys: Keys, only_local: bool = False
    ) -> View:
        """The candidates at s, scored by the current critics: all of them, or the local one."""
        s = batch.observations
        local = learner.actor.network.forward(s)
        here = candidates(local.policy, batch.actions, broadcast.actor(s), keys.local, keys.global_policy)
        scored = here.actions[: LOCAL + 1] if only_local else here.actions
        return View(local, here, learner.critic.network.score(s, scored))

    def look_ahead(self, learner: Learner, broadcast: Broadcast, batch: Batch, keys: Keys) -> Candidates:
        """The candidates at s'."""
        next_s, (behaviour, _) = batch.next_observations, self.next_behaviour(batch)
        policies = learner.actor(next_s), behaviour, broadcast.actor(next_s)
        return candidates(*policies, keys.next_local, keys.next_global)

    def next_behaviour(self, batch: Batch) -> tuple[Float[Array, "batch action"], Float[Array, " batch"]]:
        """The behaviour candidate at s', and whether there is one."""
        if self.terminal_action == "none":
            return batch.next_actions, batch.has_next_action
        action = jnp.where(batch.terminals[:, None] > 0, -batch.actions, batch.next_actions)
        return action, jnp.maximum(batch.has_next_action, batch.terminals)

    def ballot(self, has_action: Float[Array, " batch"]) -> Float[Array, "3 batch"]:
        """Which candidates may win: the data's action where there is one. Without the vote, only the local one."""
        everyone = jnp.ones_like(has_action)
        return jnp.stack([everyone, has_action * self.vote, everyone * self.vote])

    def vote_here(self, q: Float[Array, "2 3 batch"]) -> Vote:
        """The vote at s."""
        return vote(q, self.ballot(jnp.ones(q.shape[-1])), self.vote_order)

    def next_value(self, batch: Batch, next_vote: Vote) -> Float[Array, " batch"]:
        """The value of s': that of the vote, with `data_returns` at least the return that follows in the data."""
        return jnp.maximum(next_vote.value, batch.next_returns) if self.data_returns else next_vote.value

    def with_data_returns(
        self, q: Float[Array, "2 candidates batch"], batch: Batch
    ) -> Float[Array, "2 candidates batch"]:
        """Q of the candidates at s, that of the data's action with `data_returns` at least its return."""
        if not self.data_returns:
            return q
        return q.at[:, BEHAVIOUR].max(self.target(batch, batch.next_returns))

    def vote_ahead(self, learner: Learner, batch: Batch, there: Candidates) -> Vote:
        """The vote at s' under the target critics, which score only candidates that can win."""
        entrants = slice(None) if self.vote else slice(LOCAL, LOCAL + 1)
        q = learner.target_critic(batch.next_observations, there.actions[entrants])
        return vote(q, self.ballot(self.next_behaviour(batch)[1])[entrants], self.vote_order)

    # --- The critics ---

    def update_critics(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, view: View, keys: Keys
    ) -> tuple[Model, Metrics]:
        """eq. (vcql): one step of both critics on the conservative objective."""
        (alpha, _, _), memory, scored = self.strengths, learner.extra.memory, view.scored
        next_vote = self.vote_ahead(learner, batch, self.look_ahead(learner, broadcast, batch, keys))
        y = self.target(batch, self.next_value(batch, next_vote))
        winner = self.vote_here(scored.q).winner
        soft = self.soft_sources(learner, broadcast, batch, view, self.keys_of(keys, CONSERVATIVE))

        def loss(critic: TwinCritic) -> tuple[Float[Array, ""], Float[Array, "2 batch"]]:
            if self.conservative == "logsumexp":
                q_data, q_pushed = soft.data_and_maximum(critic, self.soft_temperature)
            else:
                q_data, q_pushed = scored.for_critic(critic, [BEHAVIOUR, winner])
            gap = q_pushed - q_data
            objective = vcql_loss(q_data, y, gap, alpha, self.td_scale)
            if memory is not None:
                q_before = memory.rescale * memory.critic(batch.observations, batch.actions)
                objective += self.continual * memory.valid * memory_loss(q_data, q_before)
            return objective, gap

        critic, objective, gap = learner.critic.descend(loss, has_aux=True)
        q_data = scored.q[:, BEHAVIOUR]
        metrics = vote_shares(next_vote.winner) | {
            "q_data": q_data.mean(),
            "conservative_gap": gap.mean(),
            "td_error": jnp.abs(q_data - y).mean(),
            "critic_loss": objective,
        }
        return critic, metrics

    def soft_sources(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, view: View, keys: Keys
    ) -> SoftSources:
        """What the soft maximum is taken over: the winners at s and at s' and a uniform action, scored at s."""
        there = self.look_ahead(learner, broadcast, batch, keys)
        uniform = jax.random.uniform(keys.uniform, batch.actions.shape, minval=-1.0, maxval=1.0)
        others = learner.critic.network.score(batch.observations, jnp.concatenate([there.actions, uniform[None]]))
        if self.soft_vote == "q_minus_log_pi":
            winner = self.vote_here(view.scored.q - view.here.log_density).winner
            next_ballot = self.ballot(self.next_behaviour(batch)[1])
            next_winner = vote(others.q[:, :-1] - there.log_density, next_ballot, self.vote_order).winner
        else:
            winner = self.vote_here(view.scored.q).winner
            next_winner = self.vote_ahead(learner, batch, there).winner
        densities = view.here.log_density, there.log_density
        return soft_sources(view.scored, others, winner, next_winner, densities)

    # --- The actor ---

    def update_actor(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, view: View, keys: Keys
    ) -> tuple[Model, Temperature | None, Metrics]:
        """eq. (awr): one step of the actor on the weighted regression, and one of the temperature."""
        (_, lam, _), temperature = self.strengths, learner.extra.temperature
        imitated, w = batch.actions, jnp.ones_like(batch.rewards)
        if self.actor_votes:
            rivals, judged = self.judged(learner, broadcast, batch, view, keys)
            q = self.with_data_returns(judged.q, batch)
            w = self.imitation_weight(q)
            if self.imitate == "vote":
                imitated = voted(rivals.actions, self.vote_here(q[:, :3]).winner)[0]

        def loss(actor: GaussianActor) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
            policy = view.local.for_actor(actor)
            a_l, log_prob = policy.sample_with_log_prob(keys.local)  # the candidate again, now with its gradient
            q_local = view.scored.for_action(LOCAL, a_l).min(axis=0)
            moving = self.awr and self.weight_gradient
            weight = self.moving_weight(judged, q, policy, keys) if moving else w
            objective = awr_loss(policy.log_prob(imitated), weight, q_local, lam)
            if temperature is not None:
                objective += temperature.value * log_prob.mean()
            return objective, log_prob

        actor, objective, log_prob = learner.actor.descend(loss, has_aux=True)
        if temperature is not None:
            temperature = temperature.follow(log_prob, target=-batch.actions.shape[-1])
        return actor, temperature, {"weight": w.mean(), "entropy": -log_prob.mean(), "actor_loss": objective}

    def judged(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, view: View, keys: Keys
    ) -> tuple[Candidates, Scored]:
        """The candidates of V at s, and their Q. The global action whose Q is weighed comes last."""
        critic = learner.critic.network if self.advantage_from == "current" else learner.target_critic
        if not self.fresh_samples:
            same = self.advantage_from == "current"
            return view.here, view.scored if same else critic.score(batch.observations, view.here.actions)
        rivals = self.look(learner, broadcast, batch, self.keys_of(keys, WEIGHT)).here
        actions = jnp.concatenate([rivals.actions, view.here.actions[GLOBAL:]])
        return rivals, critic.score(batch.observations, actions)

    def imitation_weight(self, q: Float[Array, "2 candidates batch"]) -> Float[Array, " batch"]:
        """w(s) from the Q of the candidates: the vote at s is the value V(s)."""
        q_weighed = q[:, -1 if self.weigh == "global" else BEHAVIOUR].min(axis=0)
        return self.weight_of(q_weighed, self.vote_here(q[:, :3]).value)

    def weight_of(self, q: Float[Array, " batch"], v: Float[Array, " batch"]) -> Float[Array, " batch"]:
        """The weight of the imitation at states of value v, given the Q of the weighed actions."""
        beta = self.strengths[2]
        if not self.awr:
            return jnp.ones_like(q)
        return relative_weight(q, v, beta) if self.relative_weights else awr_weight(q, v, beta, self.weight_cap)

    def moving_weight(
        self, judged: Scored, q: Float[Array, "2 candidates batch"], policy: Squashed | Clipped, keys: Keys
    ) -> Float[Array, " batch"]:
        """w(s) with its gradient for the policy that proposed the local candidate of V."""
        a_l = policy.sample(self.keys_of(keys, WEIGHT).local)
        q_local = judged.for_action(LOCAL, a_l)
        return self.imitation_weight(jnp.concatenate([q_local[:, None], q[:, 1:]], axis=1))
