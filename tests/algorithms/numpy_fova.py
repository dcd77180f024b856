"""FOVA's objectives in plain NumPy, written from the specification and sharing no code with the package.

Networks are dictionaries of arrays; loops run over clients, critics and rows, as one would write it on paper.
"""

import numpy as np


def mlp(net, row):
    x = np.asarray(row, np.float64)
    for i, (weight, bias) in enumerate(net["layers"]):
        x = x @ weight + bias
        if net["norms"]:
            scale, shift = net["norms"][i]
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * scale + shift
        x = np.maximum(x, 0.0)
    weight, bias = net["last"]
    return x @ weight + bias


def as_numpy(net, member=None):
    """An Equinox MLP as dictionaries; `member` picks one of a stack."""

    def take(leaf):
        leaf = np.asarray(leaf, np.float64)
        return leaf if member is None else leaf[member]

    return {
        "layers": [(take(layer.weight), take(layer.bias)) for layer in net.layers],
        "norms": [(take(norm.scale), take(norm.shift)) for norm in net.norms],
        "last": (take(net.last.weight), take(net.last.bias)),
    }


def log_density(kind, actor, s, a, offset=0.0):
    """log pi(a|s). `offset` is what some programs add to 1 - a^2 in the density of a squashed action.

    The actor may have a multiplier and an offset of its log-std, its least log-std, and a distance from the bounds.
    """
    out = mlp(actor, s)
    half = len(out) // 2
    multiplier, shift = actor.get("log_std", (1.0, 0.0))
    mean, log_std = out[:half], np.clip(multiplier * out[half:] + shift, actor.get("least", -5.0), 2.0)
    if kind == "clipped":
        x, mean, correction = a, np.tanh(mean), 0.0
    else:
        most = np.float64(np.float32(1 - actor.get("saturation", 1e-6)))
        inside = np.clip(a, -most, most)
        x, correction = np.arctanh(inside), np.sum(np.log(1 - (a if offset else inside) ** 2 + offset))
    normal = -0.5 * ((x - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    return normal.sum() - correction


def held_vote(q, entrants, order):
    """q[critic][candidate], entrants: candidates that may win. Returns a winner per critic and the value."""
    if order == "min_then_max":
        smaller = {c: min(q[0][c], q[1][c]) for c in entrants}
        winner = max(smaller, key=smaller.get)
        return (winner, winner), smaller[winner]
    winners = tuple(max(entrants, key=lambda c: q[i][c]) for i in range(2))
    return winners, min(q[i][winners[i]] for i in range(2))


def soft_maximum(config, kind, nets, row, drawn, i):
    """T log sum exp of (Q_i(s, a) - log-density) / T over a vote at s, one at s' and a uniform action."""
    s, next_s, next_behaviour, next_entrants, entrants, next_winner = row
    proposer = {0: nets["later_actor"], 2: nets["global_actor"]}

    def q(a, critic):
        return mlp(nets["critics"][critic], np.concatenate([s, a]))[0]

    def density(who, state, a):
        return 0.0 if who == 1 else log_density(kind, proposer[who], state, a, config.density_offset)

    chosen = []
    for state, actions, allowed, by_target in (
        (s, drawn["here"], entrants, None),
        (next_s, [drawn["there"][0], next_behaviour, drawn["there"][2]], next_entrants, next_winner),
    ):
        gains = [[q(a, c) - density(who, state, a) for who, a in enumerate(actions)] for c in range(2)]
        if config.soft_vote == "q_minus_log_pi":
            winner = held_vote(gains, allowed, config.vote_order)[0][i]
        elif by_target is None:
            winner = held_vote([[q(a, c) for a in actions] for c in range(2)], allowed, config.vote_order)[0][i]
        else:
            winner = by_target(actions)[i]
        chosen.append(gains[i][winner])
    chosen.append(q(drawn["uniform"], i) - len(drawn["uniform"]) * np.log(0.5))
    t = config.soft_temperature
    return t * np.log(np.sum(np.exp(np.array(chosen) / t)))


def imitation_weights(config, advantages):
    """The weight of every row, from the advantages of all."""
    if not config.awr:
        return np.ones_like(advantages)
    if not config.relative_weights:
        return np.minimum(np.exp(advantages / config.beta), config.weight_cap)
    w = np.exp(advantages / (config.beta * np.sqrt(np.mean((advantages - advantages.mean()) ** 2)) + 1e-3))
    return np.minimum(w / w.mean(), 20.0)


def losses(config, kind, nets, batch, actions, uniform):
    """Critic and actor objective of one client on one batch.

    nets: actor, later_actor (whose actions the critics see), global_actor, critics [2], target [2], previous [2] or
    None, log_temperature or None.
    actions: for each term that samples (acted, weight, target, soft) four arrays [batch, action]: local and global
    at s, local and global at s'.
    """

    def q(critics, s, a):
        return [mlp(critic, np.concatenate([s, a]))[0] for critic in critics]

    def density(actor, s, a):
        return log_density(kind, actor, s, a, config.density_offset)

    rows = len(batch["rewards"])
    critic_total, actor_total, imitations = np.zeros(2), 0.0, []
    details = {"w": [], "y": [], "q_data": [], "td_error": [], "gap": [], "log_local": [], "shares": np.zeros(3)}
    for n in range(rows):
        s, a, next_s = batch["observations"][n], batch["actions"][n], batch["next_observations"][n]
        drawn = {term: [values[n] for values in four] for term, four in actions.items()}
        a_next, has_next = batch["next_actions"][n], batch["has_next_action"][n]
        if config.terminal_action == "negated" and batch["terminals"][n]:
            a_next, has_next = -a, 1.0
        entrants = [0, 1, 2] if config.vote else [0]
        next_entrants = [c for c in entrants if c != 1 or has_next]

        def vote_ahead(there):
            q_next = np.transpose([q(nets["target"], next_s, c) for c in there])  # noqa: B023
            return held_vote(q_next, next_entrants, config.vote_order)  # noqa: B023

        next_winner, next_value = vote_ahead([drawn["target"][2], a_next, drawn["target"][3]])
        shown = batch["next_returns"][n]
        next_value = max(next_value, shown) if config.data_returns else next_value
        y = batch["rewards"][n] + config.discount * (1 - batch["terminals"][n]) * next_value
        for i in range(2):
            details["shares"][next_winner[i]] += 0.5 / rows

        here = [drawn["soft"][0], a, drawn["soft"][1]]
        q_here = np.transpose([q(nets["critics"], s, c) for c in here])
        winner, _ = held_vote(q_here, entrants, config.vote_order)
        sources = {"here": here, "there": [drawn["soft"][2], None, drawn["soft"][3]], "uniform": uniform[n]}
        for i in range(2):
            if config.conservative == "vote":
                pushed = q_here[i][winner[i]]
            else:
                row = (s, next_s, a_next, next_entrants, entrants, lambda there: vote_ahead(there)[0])
                pushed = soft_maximum(config, kind, nets, row, sources, i)
            critic_total[i] += config.td_scale * (q_here[i][1] - y) ** 2 + config.alpha * (pushed - q_here[i][1])
            if nets.get("previous"):
                q_before = nets["rescale"] * q(nets["previous"], s, a)[i]
                critic_total[i] += config.continual * (q_here[i][1] - q_before) ** 2
            details["q_data"].append(q_here[i][1])
            details["td_error"].append(abs(q_here[i][1] - y))
            details["gap"].append(pushed - q_here[i][1])

        judges = nets["critics"] if config.advantage_from == "current" else nets["target"]
        rivals = [drawn["weight"][0], a, drawn["weight"][1]]
        judged = np.transpose([q(judges, s, c) for c in rivals])
        earned = batch["rewards"][n] + config.discount * (1 - batch["terminals"][n]) * shown
        if config.data_returns:
            judged[:, 1] = np.maximum(judged[:, 1], earned)
        judged_winner, v = held_vote(judged, entrants, config.vote_order)
        weighed = min(q(judges, s, drawn["acted"][1])) if config.weigh == "global" else min(judged[:, 1])
        imitated = a if config.imitate == "data" else rivals[judged_winner[0]]
        a_l = drawn["acted"][0]
        imitations.append((weighed - v, density(nets["actor"], s, imitated)))
        objective = min(q(nets["critics"], s, a_l))
        log_local = density(nets["actor"], s, a_l)
        if nets.get("log_temperature") is not None:
            objective -= np.exp(nets["log_temperature"]) * log_local
        actor_total -= objective
        details["log_local"].append(log_local)
        details["y"].append(y)
    advantages, log_likelihoods = np.transpose(imitations)
    details["w"] = imitation_weights(config, advantages)
    actor_total -= config.lam * np.sum(details["w"] * log_likelihoods)
    return critic_total.sum() / rows, actor_total / rows, details
