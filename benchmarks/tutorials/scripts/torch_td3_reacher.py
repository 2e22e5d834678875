"""Trains TD3 (clipped double Q, delayed policy, target smoothing) on a point mass that must be brought to rest at a goal, in the manner of sfujim's TD3."""

import copy
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class PointMass:
    """State: place and speed in the plane; action: force, -1 to 1; 60 steps an episode."""

    max_steps = 60

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.x, self.v, self.t = self.rng.uniform(-1, 1, 2), np.zeros(2), 0
        return np.concatenate([self.x, self.v])

    def step(self, a):
        self.v = 0.9 * self.v + 0.1 * np.clip(a, -1, 1)
        self.x = np.clip(self.x + 0.3 * self.v, -1.5, 1.5)
        self.t += 1
        reward = -np.linalg.norm(self.x) - 0.05 * np.square(a).sum()
        return np.concatenate([self.x, self.v]), reward, self.t >= self.max_steps


class Actor(nn.Module):
    def __init__(self, state_dim, action_dim, max_action):
        super().__init__()
        self.l1 = nn.Linear(state_dim, 64)
        self.l2 = nn.Linear(64, 64)
        self.l3 = nn.Linear(64, action_dim)
        self.max_action = max_action

    def forward(self, state):
        a = F.relu(self.l1(state))
        a = F.relu(self.l2(a))
        return self.max_action * torch.tanh(self.l3(a))


class Critic(nn.Module):
    def __init__(self, state_dim, action_dim):
        super().__init__()
        self.l1, self.l2, self.l3 = (
            nn.Linear(state_dim + action_dim, 64),
            nn.Linear(64, 64),
            nn.Linear(64, 1),
        )
        self.l4, self.l5, self.l6 = (
            nn.Linear(state_dim + action_dim, 64),
            nn.Linear(64, 64),
            nn.Linear(64, 1),
        )

    def forward(self, state, action):
        sa = torch.cat([state, action], 1)
        q2 = self.l6(F.relu(self.l5(F.relu(self.l4(sa)))))
        return self.Q1(state, action), q2

    def Q1(self, state, action):
        sa = torch.cat([state, action], 1)
        return self.l3(F.relu(self.l2(F.relu(self.l1(sa)))))


class TD3:
    def __init__(
        self,
        state_dim,
        action_dim,
        max_action,
        discount=0.95,
        tau=0.01,
        policy_noise=0.2,
        noise_clip=0.5,
    ):
        self.actor = Actor(state_dim, action_dim, max_action)
        self.actor_target = copy.deepcopy(self.actor)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic = Critic(state_dim, action_dim)
        self.critic_target = copy.deepcopy(self.critic)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.max_action, self.discount, self.tau = max_action, discount, tau
        self.policy_noise, self.noise_clip, self.policy_freq, self.total_it = (
            policy_noise,
            noise_clip,
            2,
            0,
        )

    def select_action(self, state):
        with torch.no_grad():
            return self.actor(torch.tensor(state, dtype=torch.float32)[None])[0].numpy()

    def train(self, replay_buffer, batch_size=128):
        self.total_it += 1
        state, action, next_state, reward = replay_buffer.sample(batch_size)
        with torch.no_grad():
            noise = (torch.randn_like(action) * self.policy_noise).clamp(
                -self.noise_clip, self.noise_clip
            )
            next_action = (self.actor_target(next_state) + noise).clamp(
                -self.max_action, self.max_action
            )
            target_q = torch.min(*self.critic_target(next_state, next_action))
            target_q = reward + self.discount * target_q
        q1, q2 = self.critic(state, action)
        critic_loss = F.mse_loss(q1, target_q) + F.mse_loss(q2, target_q)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        if self.total_it % self.policy_freq == 0:
            actor_loss = -self.critic.Q1(state, self.actor(state)).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            for net, target in ((self.critic, self.critic_target), (self.actor, self.actor_target)):
                for param, target_param in zip(net.parameters(), target.parameters()):
                    target_param.data.copy_(
                        self.tau * param.data + (1 - self.tau) * target_param.data
                    )
        return critic_loss.item()


class ReplayBuffer:
    def __init__(self, max_size=20_000):
        self.rows, self.max_size = [], max_size

    def add(self, *row):
        self.rows.append(row)
        if len(self.rows) > self.max_size:
            self.rows.pop(0)

    def sample(self, n):
        picked = [self.rows[i] for i in np.random.randint(0, len(self.rows), n)]
        return [torch.tensor(np.array(z, dtype=np.float32)) for z in zip(*picked)]


def eval_policy(policy, seed, eval_episodes=10):
    env = PointMass(seed + 100)
    avg_reward = 0.0
    for _ in range(eval_episodes):
        state, done = env.reset(), False
        while not done:
            state, reward, done = env.step(policy.select_action(state))
            avg_reward += reward
    avg_reward /= eval_episodes
    print(f"Evaluation over {eval_episodes} episodes: {avg_reward:.3f}")
    return avg_reward


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    torch.manual_seed(seed)
    np.random.seed(seed)
    env = PointMass(seed)
    policy = TD3(4, 2, 1.0)
    replay_buffer = ReplayBuffer()
    evaluations = [eval_policy(policy, seed)]
    state, episode_reward, episode_num = env.reset(), 0.0, 0
    for t in range(5000):
        if t < 600:
            action = np.random.uniform(-1, 1, 2)
        else:
            action = (policy.select_action(state) + np.random.normal(0, 0.1, 2)).clip(-1, 1)
        next_state, reward, done = env.step(action)
        replay_buffer.add(state, action, next_state, [reward])
        state = next_state
        episode_reward += reward
        if t >= 600:
            policy.train(replay_buffer)
        if done:
            if episode_num % 10 == 0:
                print(
                    f"Total T: {t + 1} Episode Num: {episode_num + 1} Reward: {episode_reward:.3f}"
                )
            state, episode_reward = env.reset(), 0.0
            episode_num += 1
        if (t + 1) % 500 == 0:
            evaluations.append(eval_policy(policy, seed))
