"""Synchronous advantage actor-critic with sixteen environments at once (catch the falling ball), shared trunk and RMSprop, in the manner of ikostrikov's a2c-ppo-acktr."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

torch.set_num_threads(1)


class CatchVec:
    """A ball falls through a 7 x 5 board; the paddle in the last row moves left, stays or moves right."""

    rows, cols = 7, 5

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.row, self.ball = rng.integers(0, 3, n), rng.integers(0, self.cols, n)
        self.paddle = np.full(n, self.cols // 2)

    def observe(self):
        board = np.zeros((self.n, self.rows * self.cols), dtype=np.float32)
        i = np.arange(self.n)
        board[i, self.row * self.cols + self.ball] = 1.0
        board[i, (self.rows - 1) * self.cols + self.paddle] = 1.0
        return torch.from_numpy(board)

    def step(self, actions):
        self.paddle = np.clip(self.paddle + actions - 1, 0, self.cols - 1)
        self.row = self.row + 1
        done = self.row == self.rows - 1
        reward = np.where(done, np.where(self.ball == self.paddle, 1.0, -1.0), 0.0)
        k = done.sum()
        self.row[done], self.ball[done] = 0, self.rng.integers(0, self.cols, k)
        self.paddle[done] = self.cols // 2
        return (
            self.observe(),
            torch.tensor(reward, dtype=torch.float32),
            torch.tensor(done, dtype=torch.float32),
        )


class Policy(nn.Module):
    def __init__(self, num_inputs, num_actions, hidden_size=64):
        super().__init__()
        self.base = nn.Sequential(
            nn.Linear(num_inputs, hidden_size),
            nn.Tanh(),
            nn.Linear(hidden_size, hidden_size),
            nn.Tanh(),
        )
        self.critic_linear = nn.Linear(hidden_size, 1)
        self.dist = nn.Linear(hidden_size, num_actions)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.orthogonal_(m.weight, gain=0.01 if m is self.dist else 2**0.5)
                nn.init.zeros_(m.bias)

    def forward(self, x):
        h = self.base(x)
        return torch.distributions.Categorical(logits=self.dist(h)), self.critic_linear(h)[:, 0]


@torch.no_grad()
def evaluate(policy, rng, steps=60):
    envs = CatchVec(32, rng)
    obs, rewards = envs.observe(), []
    policy.eval()
    for _ in range(steps):
        obs, reward, done = envs.step(policy(obs)[0].probs.argmax(-1).numpy())
        rewards += reward[done.bool()].tolist()
    policy.train()
    return np.mean(rewards)


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    torch.manual_seed(seed)
    envs = CatchVec(16, np.random.default_rng(seed))
    policy = Policy(35, 3)
    lr, num_updates, num_steps, gamma = 2e-3, 800, 8, 0.98
    optimizer = optim.RMSprop(policy.parameters(), lr=lr, eps=1e-5, alpha=0.99)
    scheduler = optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=num_updates)
    obs = envs.observe()
    finished = []
    for update in range(1, num_updates + 1):
        log_probs, values, entropies, rewards, masks = [], [], [], [], []
        for _ in range(num_steps):
            dist, value = policy(obs)
            action = dist.sample()
            obs, reward, done = envs.step(action.numpy())
            log_probs.append(dist.log_prob(action))
            values.append(value)
            entropies.append(dist.entropy())
            rewards.append(reward)
            masks.append(1 - done)
            finished += reward[done.bool()].tolist()
        with torch.no_grad():
            ret = policy(obs)[1]
        returns = []
        for reward, mask in zip(reversed(rewards), reversed(masks)):
            ret = reward + gamma * ret * mask
            returns.insert(0, ret)
        returns, values = torch.stack(returns), torch.stack(values)
        advantages = returns - values
        value_loss = advantages.pow(2).mean()
        action_loss = -(advantages.detach() * torch.stack(log_probs)).mean()
        dist_entropy = torch.stack(entropies).mean()

        optimizer.zero_grad()
        (0.5 * value_loss + action_loss - 0.01 * dist_entropy).backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        if update % 80 == 0:
            print(
                f"Updates {update}, mean reward {np.mean(finished[-200:]):.2f}, value loss {value_loss.item():.4f}, "
                f"action loss {action_loss.item():.4f}, entropy {dist_entropy.item():.4f}, "
                f"greedy {evaluate(policy, np.random.default_rng(seed + 7)):.3f}"
            )


if __name__ == "__main__":
    main()
