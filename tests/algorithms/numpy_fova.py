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


def log_density(kind, actor, s, a):
    out = mlp(actor, s)
    half = len(out) // 2
    mean, log_std = out[:half], np.clip(out[half:], -5.0, 2.0)
    if kind == "clipped":
        x, mean, correction = a, np.tanh(mean), 0.0
    else:
        a = np.clip(a, -(1 - 1e-6), 1 - 1e-6)
        x, correction = np.arctanh(a), np.sum(np.log(1 - a**2))
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


def losses(config, kind, nets, batch, actions, uniform):
    """Critic and actor objective of one client on one batch.

    nets: actor, global_actor, critics [2], target [2], previous [2] or None, log_temperature or None.
    actions: local, global (at s), next_local, next_global (at s'), all [batch, action].
    """

    def q(critics, s, a):
        return [mlp(critic, np.concatenate([s, a]))[0] for critic in critics]

    rows = len(batch["rewards"])
    critic_total, actor_total = np.zeros(2), 0.0
    details = {"w": [], "y": [], "q_data": [], "td_error": [], "gap": [], "log_local": [], "shares": np.zeros(3)}
    for n in range(rows):
        s, a, next_s = batch["observations"][n], batch["actions"][n], batch["next_observations"][n]
        here = [actions["local"][n], a, actions["global"][n]]
        there = [actions["next_local"][n], batch["next_actions"][n], actions["next_global"][n]]
        entrants = [0, 1, 2] if config.vote else [0]
        next_entrants = [c for c in entrants if c != 1 or batch["has_next_action"][n]]

        q_next = np.transpose([q(nets["target"], next_s, c) for c in there])
        next_winner, next_value = held_vote(q_next, next_entrants, config.vote_order)
        y = batch["rewards"][n] + config.discount * (1 - batch["terminals"][n]) * next_value
        for i in range(2):
            details["shares"][next_winner[i]] += 0.5 / rows

        q_here = np.transpose([q(nets["critics"], s, c) for c in here])
        winner, _ = held_vote(q_here, entrants, config.vote_order)
        for i in range(2):
            if config.conservative == "vote":
                pushed = q_here[i][winner[i]]
            else:
                proposer = {0: nets["actor"], 2: nets["global_actor"]}

                def density(who, state, action):
                    return 0.0 if who == 1 else log_density(kind, proposer[who], state, action)  # noqa: B023

                a_next = there[next_winner[i]]
                sources = [
                    q_here[i][winner[i]] - density(winner[i], s, here[winner[i]]),
                    q(nets["critics"], s, a_next)[i] - density(next_winner[i], next_s, a_next),
                    q(nets["critics"], s, uniform[n])[i] - len(a) * np.log(0.5),
                ]
                pushed = np.log(np.sum(np.exp(sources)))
            critic_total[i] += config.td_scale * (q_here[i][1] - y) ** 2 + config.alpha * (pushed - q_here[i][1])
            if nets.get("previous"):
                q_before = nets["rescale"] * q(nets["previous"], s, a)[i]
                critic_total[i] += config.continual * (q_here[i][1] - q_before) ** 2
            details["q_data"].append(q_here[i][1])
            details["td_error"].append(abs(q_here[i][1] - y))
            details["gap"].append(pushed - q_here[i][1])

        judges = nets["critics"] if config.advantage_from == "current" else nets["target"]
        judged = np.transpose([q(judges, s, c) for c in here])
        judged_winner, v = held_vote(judged, entrants, config.vote_order)
        weighed = 2 if config.weigh == "global" else 1
        w = (
            min(np.exp((min(judged[0][weighed], judged[1][weighed]) - v) / config.beta), 100.0)
            if config.awr
            else 1.0
        )
        imitated = a if config.imitate == "data" else here[judged_winner[0]]
        objective = config.lam * w * log_density(kind, nets["actor"], s, imitated) + min(q_here[0][0], q_here[1][0])
        if nets.get("log_temperature") is not None:
            objective -= np.exp(nets["log_temperature"]) * log_density(kind, nets["actor"], s, here[0])
        actor_total -= objective
        details["log_local"].append(log_density(kind, nets["actor"], s, here[0]))
        details["w"].append(w)
        details["y"].append(y)
    return critic_total.sum() / rows, actor_total / rows, details
