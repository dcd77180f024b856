"""FOVA's step in plain PyTorch: what one would write from the paper's equations, one client after another.

Run by `step_speed.py` in an interpreter that has torch; fova is not needed there. Every line on the standard
input asks for a turn of so many steps of every client; the answer is the seconds it took.

    python benchmarks/torch_step.py OBSERVATION ACTION WIDTH LAYERS BATCH CLIENTS
"""

import sys

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
        return torch.distributions.Normal(mean.tanh(), log_std.clamp(-5.0, 2.0).exp())


class Critics(nn.Module):
    def __init__(self, observation: int, action: int, width: int, layers: int) -> None:
        super().__init__()
        self.first = mlp(observation + action, width, layers, 1, layer_norm=True)
        self.second = mlp(observation + action, width, layers, 1, layer_norm=True)

    def forward(self, s: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([s, a], dim=-1)
        return torch.stack([self.first(rows), self.second(rows)]).squeeze(-1)


class Client:
    def __init__(self, observation: int, action: int, width: int, layers: int, batch: int) -> None:
        sizes = (observation, action, width, layers)
        self.batch = batch
        self.actor, self.server_actor = Actor(*sizes), Actor(*sizes)
        self.critic, self.slow_critic = Critics(*sizes), Critics(*sizes)
        self.slow_critic.load_state_dict(self.critic.state_dict())
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters(), lr=1e-4)
        self.critic_optimiser = torch.optim.Adam(self.critic.parameters(), lr=3e-4)
        self.s, self.next_s = torch.randn(ROWS, observation), torch.randn(ROWS, observation)
        self.a, self.next_a = (torch.rand(ROWS, action) * 2 - 1 for _ in range(2))
        self.r, self.terminal = torch.randn(ROWS), torch.zeros(ROWS)

    def step(self) -> None:
        index = torch.randint(ROWS, (self.batch,))
        s, a, r, next_s, next_a = (
            self.s[index],
            self.a[index],
            self.r[index],
            self.next_s[index],
            self.next_a[index],
        )

        with torch.no_grad():  # the vote at s' and the target
            candidates = [self.sample(self.actor, next_s), next_a, self.sample(self.server_actor, next_s)]
            next_q = torch.stack([self.slow_critic(next_s, c).min(dim=0).values for c in candidates])
            y = r + GAMMA * (1 - self.terminal[index]) * next_q.max(dim=0).values

            # the vote at s
            a_l, a_g = self.sample(self.actor, s), self.sample(self.server_actor, s)
            q = torch.stack([self.critic(s, c).min(dim=0).values for c in (a_l, a, a_g)])
            value, winner = q.max(dim=0)
            a_v = torch.stack([a_l, a, a_g])[winner, torch.arange(self.batch)]
            w = ((q[2] - value) / BETA).exp()

        q_data, q_voted = self.critic(s, a), self.critic(s, a_v)
        critic_loss = (0.5 * (q_data - y).square() + ALPHA * (q_voted - q_data)).mean(dim=1).sum()
        self.critic_optimiser.zero_grad()
        critic_loss.backward()

        policy = self.actor(s)
        likelihood = policy.log_prob(a).sum(dim=-1)
        for parameter in self.critic.parameters():
            parameter.requires_grad_(False)
        q_local = self.critic(s, policy.rsample().clamp(-1, 1)).min(dim=0).values
        actor_loss = -(LAM * (w * likelihood).mean() + q_local.mean())
        self.actor_optimiser.zero_grad()
        actor_loss.backward()
        for parameter in self.critic.parameters():
            parameter.requires_grad_(True)

        self.critic_optimiser.step()
        self.actor_optimiser.step()
        with torch.no_grad():
            for slow, fast in zip(self.slow_critic.parameters(), self.critic.parameters()):
                slow.lerp_(fast, TAU)

    @staticmethod
    def sample(actor: Actor, s: torch.Tensor) -> torch.Tensor:
        return actor(s).sample().clamp(-1, 1)


def main() -> None:
    observation, action, width, layers, batch, count = map(int, sys.argv[1:])
    torch.manual_seed(0)
    clients = [Client(observation, action, width, layers, batch) for _ in range(count)]
    print(torch.__version__, flush=True)
    for line in sys.stdin:
        began = now()
        for client in clients:
            for _ in range(int(line)):
                client.step()
        print(now() - began, flush=True)


if __name__ == "__main__":
    main()
