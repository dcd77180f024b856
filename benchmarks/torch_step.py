"""FOVA's step in PyTorch: what one would write from the paper's equations, one client after another.

Run by `step_speed.py` in an interpreter that has torch; fova is not needed there. Every line on the standard
input asks for a turn of so many steps of every client; the answer is the seconds it took.

    python benchmarks/torch_step.py OBSERVATION ACTION WIDTH LAYERS BATCH CLIENTS [compiled]

`compiled` gives the targets and both losses, and with them their gradients, to `torch.compile`, and uses PyTorch's
fused Adam. Without it everything is eager. The equations are the same lines of code.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from turns import now

ALPHA, LAM, BETA, GAMMA, TAU = 5.0, 5.0, 5.0, 0.99, 0.005
ROWS = 5000


def mlp(inputs: int, width: int, layers: int, outputs: int, layer_norm: bool) -> nn.Sequential:
    parts: list[nn.Module] = []
    for i in range(layers):
        parts.append(nn.Linear(inputs if i == 0 else width, width))
        if layer_norm:
            parts.append(nn.LayerNorm(width))
        parts.append(nn.ReLU())
    return nn.Sequential(*parts, nn.Linear(width, outputs))


class Actor(nn.Module):
    def __init__(self, observation: int, action: int, width: int, layers: int) -> None:
        super().__init__()
        self.net = mlp(observation, width, layers, 2 * action, layer_norm=False)

    def forward(self, s: torch.Tensor) -> torch.distributions.Normal:
        mean, log_std = self.net(s).chunk(2, dim=-1)
        return torch.distributions.Normal(mean.tanh(), log_std.clamp(-5.0, 2.0).exp(), validate_args=False)


class Critics(nn.Module):
    def __init__(self, observation: int, action: int, width: int, layers: int) -> None:
        super().__init__()
        self.first = mlp(observation + action, width, layers, 1, layer_norm=True)
        self.second = mlp(observation + action, width, layers, 1, layer_norm=True)

    def forward(self, s: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([s, a], dim=-1)
        return torch.stack([self.first(rows), self.second(rows)]).squeeze(-1)


def sample(actor: Actor, s: torch.Tensor) -> torch.Tensor:
    return actor(s).sample().clamp(-1, 1)


# --- The equations ---


def targets(
    nets: tuple[Actor, Actor, Critics, Critics], s: torch.Tensor, a: torch.Tensor, r: torch.Tensor,
    terminal: torch.Tensor, next_s: torch.Tensor, next_a: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """The critics' target, the winner of the vote and the weight of imitation. No gradient."""
    actor, server_actor, critic, slow_critic = nets
    candidates = [sample(actor, next_s), next_a, sample(server_actor, next_s)]
    next_q = torch.stack([slow_critic(next_s, c).min(dim=0).values for c in candidates])
    y = r + GAMMA * (1 - terminal) * next_q.max(dim=0).values

    a_l, a_g = sample(actor, s), sample(server_actor, s)
    q = torch.stack([critic(s, c).min(dim=0).values for c in (a_l, a, a_g)])
    value, winner = q.max(dim=0)
    a_v = torch.stack([a_l, a, a_g])[winner, torch.arange(len(s))]
    return y, a_v, ((q[2] - value) / BETA).exp()


def critic_loss(
    critic: Critics, s: torch.Tensor, a: torch.Tensor, a_v: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    q_data, q_voted = critic(s, a), critic(s, a_v)
    return (0.5 * (q_data - y).square() + ALPHA * (q_voted - q_data)).mean(dim=1).sum()


def actor_loss(actor: Actor, critic: Critics, s: torch.Tensor, a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    policy = actor(s)
    likelihood = policy.log_prob(a).sum(dim=-1)
    q_local = critic(s, policy.rsample().clamp(-1, 1)).min(dim=0).values
    return -(LAM * (w * likelihood).mean() + q_local.mean())


class Client:
    def __init__(self, observation: int, action: int, width: int, layers: int, batch: int, fused: bool) -> None:
        sizes = (observation, action, width, layers)
        self.batch = batch
        self.actor, self.server_actor = Actor(*sizes), Actor(*sizes)
        self.critic, self.slow_critic = Critics(*sizes), Critics(*sizes)
        self.slow_critic.load_state_dict(self.critic.state_dict())
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters(), lr=1e-4, fused=fused)
        self.critic_optimiser = torch.optim.Adam(self.critic.parameters(), lr=3e-4, fused=fused)
        self.s, self.next_s = torch.randn(ROWS, observation), torch.randn(ROWS, observation)
        self.a, self.next_a = (torch.rand(ROWS, action) * 2 - 1 for _ in range(2))
        self.r, self.terminal = torch.randn(ROWS), torch.zeros(ROWS)

    def step(self, parts: "Parts") -> None:
        index = torch.randint(ROWS, (self.batch,))
        s, a = self.s[index], self.a[index]
        rest = (self.r[index], self.terminal[index], self.next_s[index], self.next_a[index])
        with torch.no_grad():
            nets = (self.actor, self.server_actor, self.critic, self.slow_critic)
            y, a_v, w = parts.targets(nets, s, a, *rest)

        self.critic_optimiser.zero_grad()
        parts.critic_loss(self.critic, s, a, a_v, y).backward()

        self.critic.requires_grad_(False)
        self.actor_optimiser.zero_grad()
        parts.actor_loss(self.actor, self.critic, s, a, w).backward()
        self.critic.requires_grad_(True)

        self.critic_optimiser.step()
        self.actor_optimiser.step()
        with torch.no_grad():
            slow, fast = (list(critic.parameters()) for critic in (self.slow_critic, self.critic))
            torch._foreach_lerp_(slow, fast, TAU)


class Parts(NamedTuple):
    """The functions that a step calls, as they are or compiled. All clients share them."""

    targets: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    critic_loss: Callable[..., torch.Tensor]
    actor_loss: Callable[..., torch.Tensor]

    def compiled(self) -> "Parts":
        return Parts(*(torch.compile(part) for part in self))


def main() -> None:
    observation, action, width, layers, batch, count = map(int, sys.argv[1:7])
    is_compiled = sys.argv[7:] == ["compiled"]
    torch.manual_seed(0)
    clients = [Client(observation, action, width, layers, batch, is_compiled) for _ in range(count)]
    parts = Parts(targets, critic_loss, actor_loss)
    if is_compiled:
        parts = parts.compiled()
    print(torch.__version__, flush=True)
    for line in sys.stdin:
        began = now()
        for client in clients:
            for _ in range(int(line)):
                client.step(parts)
        print(now() - began, flush=True)


if __name__ == "__main__":
    main()
