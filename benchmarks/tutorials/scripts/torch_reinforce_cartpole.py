"""Policy gradient (REINFORCE) on a hand-written cart-pole, in the manner of PyTorch's reinforcement learning examples."""

import math
import random
import sys
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

torch.set_num_threads(1)


class CartPole:
    """The classic control task; an episode ends after 200 steps."""

    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return self.state

    def step(self, action):
        x, x_dot, theta, theta_dot = self.state
        force = 10.0 if action == 1 else -10.0
        cos, sin = math.cos(theta), math.sin(theta)
        temp = (force + 0.05 * theta_dot**2 * sin) / 1.1
        theta_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        x_acc = temp - 0.05 * theta_acc * cos / 1.1
        self.state = [
            x + 0.02 * x_dot,
            x_dot + 0.02 * x_acc,
            theta + 0.02 * theta_dot,
            theta_dot + 0.02 * theta_acc,
        ]
        self.steps += 1
        done = (
            abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180 or self.steps >= 200
        )
        return self.state, 1.0, done


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 128)
        self.dropout = nn.Dropout(p=0.2)
        self.affine2 = nn.Linear(128, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.affine2(x), dim=1)


def select_action(policy, state):
    probs = policy(torch.tensor([state]))
    m = Categorical(probs, validate_args=False)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode(policy, optimizer, gamma=0.99):
    R = 0
    returns = deque()
    for r in policy.rewards[::-1]:
        R = r + gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    policy_loss = -(torch.cat(policy.saved_log_probs) * returns).sum()
    optimizer.zero_grad()
    policy_loss.backward()
    optimizer.step()
    policy.rewards.clear()
    policy.saved_log_probs.clear()


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    random.seed(seed)
    torch.manual_seed(seed)
    env = CartPole()
    policy = Policy()
    optimizer = optim.Adam(policy.parameters(), lr=5e-3)

    running_reward = 10
    for i_episode in range(1, 501):
        state, ep_reward, done = env.reset(), 0, False
        while not done:
            state, reward, done = env.step(select_action(policy, state))
            policy.rewards.append(reward)
            ep_reward += reward
        running_reward = 0.05 * ep_reward + (1 - 0.05) * running_reward
        finish_episode(policy, optimizer)
        if i_episode % 25 == 0:
            print(
                f"Episode {i_episode}\tLast reward: {ep_reward:.0f}\tAverage reward: {running_reward:.2f}"
            )
        if running_reward > 180:
            print("Solved!")
            break
    policy.eval()
    total = 0
    with torch.no_grad():
        for _ in range(10):
            state, done = env.reset(), False
            while not done:
                action = policy(torch.tensor([state])).argmax().item()
                state, reward, done = env.step(action)
                total += reward
    print(f"mean greedy return over 10 episodes: {total / 10:.1f}")


if __name__ == "__main__":
    main()
