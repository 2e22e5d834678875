"""Distributional C51 agent on CartPole written in numpy, in the manner of CleanRL's c51.py."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)
rng = np.random.default_rng(seed)


class CartPole:
    def __init__(self, limit=200):
        self.limit = limit

    def reset(self):
        self.s, self.t = rng.uniform(-0.05, 0.05, 4), 0
        return self.s.astype(np.float32)

    def step(self, action):
        x, x_dot, th, th_dot = self.s
        force = 10.0 if action == 1 else -10.0
        temp = (force + 0.05 * th_dot**2 * np.sin(th)) / 1.1
        th_acc = (9.8 * np.sin(th) - np.cos(th) * temp) / (
            0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1)
        )
        x_acc = temp - 0.05 * th_acc * np.cos(th) / 1.1
        self.s = np.array(
            [x + 0.02 * x_dot, x_dot + 0.02 * x_acc, th + 0.02 * th_dot, th_dot + 0.02 * th_acc]
        )
        self.t += 1
        fell = bool(abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.2095)
        return self.s.astype(np.float32), 1.0, fell, self.t >= self.limit


class QNetwork(nn.Module):
    def __init__(self, n_atoms=51, v_min=0.0, v_max=50.0):
        super().__init__()
        self.n_atoms = n_atoms
        self.register_buffer("atoms", torch.linspace(v_min, v_max, steps=n_atoms))
        self.network = nn.Sequential(
            nn.Linear(4, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 2 * n_atoms)
        )

    def get_action(self, x, action=None):
        logits = self.network(x)
        pmfs = torch.softmax(logits.view(len(x), 2, self.n_atoms), dim=2)
        if action is None:
            action = torch.argmax((pmfs * self.atoms).sum(2), 1)
        return action, pmfs[torch.arange(len(x)), action]


def evaluate(q_network, env, episodes=5):
    lengths = []
    for _ in range(episodes):
        obs, stop = env.reset(), False
        while not stop:
            with torch.no_grad():
                action = q_network.get_action(torch.from_numpy(obs)[None])[0].item()
            obs, _, fell, cut = env.step(action)
            stop = fell or cut
        lengths.append(env.t)
    return np.mean(lengths)


gamma, batch_size, total_timesteps = 0.98, 128, 7000
learning_starts, target_frequency = 500, 200
env, test_env = CartPole(), CartPole()
q_network, target_network = QNetwork(), QNetwork()
optimizer = optim.Adam(q_network.parameters(), lr=1e-3, eps=0.01 / batch_size)
target_network.load_state_dict(q_network.state_dict())
buffer = {k: np.zeros((total_timesteps, 4), np.float32) for k in ("obs", "next_obs")}
buffer["act"] = np.zeros(total_timesteps, np.int64)
buffer["done"] = np.zeros((total_timesteps, 1), np.float32)

obs = env.reset()
for global_step in range(total_timesteps):
    epsilon = max(0.05, 1.0 - global_step / 2500)
    if rng.random() < epsilon:
        action = int(rng.integers(2))
    else:
        with torch.no_grad():
            action = q_network.get_action(torch.from_numpy(obs)[None])[0].item()
    next_obs, reward, fell, cut = env.step(action)
    buffer["obs"][global_step], buffer["next_obs"][global_step] = obs, next_obs
    buffer["act"][global_step], buffer["done"][global_step] = action, float(fell)
    obs = env.reset() if fell or cut else next_obs

    if global_step > learning_starts and global_step % 2 == 0:
        idx = rng.integers(0, global_step + 1, batch_size)
        b_obs, b_next, b_act, b_done = (
            torch.from_numpy(buffer[k][idx]) for k in ("obs", "next_obs", "act", "done")
        )
        with torch.no_grad():
            _, next_pmfs = target_network.get_action(b_next)
            next_atoms = 1.0 + gamma * target_network.atoms * (1 - b_done)
            # projection
            v_min, v_max = target_network.atoms[0], target_network.atoms[-1]
            delta_z = target_network.atoms[1] - target_network.atoms[0]
            tz = next_atoms.clamp(v_min, v_max)
            b = (tz - v_min) / delta_z
            l, u = b.floor().clamp(0, 50), b.ceil().clamp(0, 50)
            d_m_l = (u + (l == u).float() - b) * next_pmfs
            d_m_u = (b - l) * next_pmfs
            target_pmfs = torch.zeros_like(next_pmfs)
            target_pmfs.scatter_add_(1, l.long(), d_m_l)
            target_pmfs.scatter_add_(1, u.long(), d_m_u)

        _, old_pmfs = q_network.get_action(b_obs, b_act)
        loss = (-(target_pmfs * old_pmfs.clamp(min=1e-5, max=1 - 1e-5).log()).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        if global_step % target_frequency == 0:
            target_network.load_state_dict(q_network.state_dict())
        if (global_step + 1) % 500 < 2:
            q = (old_pmfs.detach() * q_network.atoms).sum(1).mean().item()
            print(
                f"step {global_step} loss {loss.item():.4f} q {q:.2f} test length {evaluate(q_network, test_env):.1f}"
            )
