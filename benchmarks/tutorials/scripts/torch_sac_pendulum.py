"""Trains SAC (twin critics, automatic temperature) on a pendulum swing-up written in numpy, in the manner of CleanRL and Spinning Up."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
np.random.seed(seed)
torch.manual_seed(seed)


class PendulumEnv:
    """The swing-up task: observation cos, sin, angular velocity; torque -2 to 2; 100 steps."""

    def reset(self):
        self.th, self.thdot = np.random.uniform(-np.pi, np.pi), np.random.uniform(-1, 1)
        self.t = 0
        return self._obs()

    def _obs(self):
        return np.array([np.cos(self.th), np.sin(self.th), self.thdot], dtype=np.float32)

    def step(self, u):
        u = float(np.clip(u, -2, 2))
        angle = (self.th + np.pi) % (2 * np.pi) - np.pi
        cost = angle**2 + 0.1 * self.thdot**2 + 0.001 * u**2
        self.thdot = np.clip(self.thdot + (15 * np.sin(self.th) + 3 * u) * 0.05, -8, 8)
        self.th = self.th + self.thdot * 0.05
        self.t += 1
        return self._obs(), -cost, self.t >= 100


class SoftQNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, 1)

    def forward(self, x, a):
        x = F.relu(self.fc1(torch.cat([x, a], 1)))
        return self.fc3(F.relu(self.fc2(x)))


LOG_STD_MAX, LOG_STD_MIN = 2, -5


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc_mean = nn.Linear(64, 1)
        self.fc_logstd = nn.Linear(64, 1)
        self.register_buffer("action_scale", torch.tensor(2.0))

    def forward(self, x):
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        log_std = torch.tanh(self.fc_logstd(x))
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)
        return self.fc_mean(x), log_std

    def get_action(self, x):
        mean, log_std = self(x)
        normal = torch.distributions.Normal(mean, log_std.exp())
        x_t = normal.rsample()
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t) - torch.log(self.action_scale * (1 - y_t.pow(2)) + 1e-6)
        return y_t * self.action_scale, log_prob.sum(1, keepdim=True), torch.tanh(mean) * 2


class ReplayBuffer:
    def __init__(self, size):
        self.size, self.n, self.pos = size, 0, 0
        self.s, self.s2 = np.zeros((size, 3), np.float32), np.zeros((size, 3), np.float32)
        self.a, self.r = np.zeros((size, 1), np.float32), np.zeros((size, 1), np.float32)

    def add(self, s, a, r, s2):
        self.s[self.pos], self.a[self.pos], self.r[self.pos], self.s2[self.pos] = s, a, r, s2
        self.pos = (self.pos + 1) % self.size
        self.n = min(self.n + 1, self.size)

    def sample(self, batch):
        i = np.random.randint(0, self.n, batch)
        return [torch.from_numpy(z[i]) for z in (self.s, self.a, self.r, self.s2)]


def evaluate(env, actor, episodes=5):
    total = 0.0
    for _ in range(episodes):
        s, done = env.reset(), False
        while not done:
            with torch.no_grad():
                _, _, mean = actor.get_action(torch.from_numpy(s)[None])
            s, r, done = env.step(mean.item())
            total += r
    return total / episodes


gamma, tau, batch_size, learning_starts, total = 0.97, 0.01, 128, 500, 4000
env, eval_env = PendulumEnv(), PendulumEnv()
actor, qf1, qf2 = Actor(), SoftQNetwork(), SoftQNetwork()
qf1_target, qf2_target = SoftQNetwork(), SoftQNetwork()
qf1_target.load_state_dict(qf1.state_dict())
qf2_target.load_state_dict(qf2.state_dict())
q_optimizer = optim.Adam(list(qf1.parameters()) + list(qf2.parameters()), lr=2e-3)
actor_optimizer = optim.Adam(actor.parameters(), lr=1e-3)

target_entropy = -1.0
log_alpha = torch.zeros(1, requires_grad=True)
alpha = log_alpha.exp().item()
a_optimizer = optim.Adam([log_alpha], lr=2e-3)

rb = ReplayBuffer(10_000)
obs = env.reset()
for global_step in range(1, total + 1):
    if global_step < learning_starts:
        action = np.random.uniform(-2, 2, 1)
    else:
        with torch.no_grad():
            action = actor.get_action(torch.from_numpy(obs)[None])[0][0].numpy()
    next_obs, reward, done = env.step(action[0])
    rb.add(obs, action, reward * 0.2, next_obs)  # episodes are only cut short, so never terminal
    obs = env.reset() if done else next_obs

    if global_step < learning_starts:
        continue
    s, a, r, s2 = rb.sample(batch_size)
    with torch.no_grad():
        next_a, next_logp, _ = actor.get_action(s2)
        min_q = torch.min(qf1_target(s2, next_a), qf2_target(s2, next_a)) - alpha * next_logp
        target = r + gamma * min_q
    qf_loss = F.mse_loss(qf1(s, a), target) + F.mse_loss(qf2(s, a), target)
    q_optimizer.zero_grad()
    qf_loss.backward()
    q_optimizer.step()

    pi, log_pi, _ = actor.get_action(s)
    actor_loss = (alpha * log_pi - torch.min(qf1(s, pi), qf2(s, pi))).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()

    alpha_loss = (-log_alpha.exp() * (log_pi.detach() + target_entropy)).mean()
    a_optimizer.zero_grad()
    alpha_loss.backward()
    a_optimizer.step()
    alpha = log_alpha.exp().item()

    for net, tgt in ((qf1, qf1_target), (qf2, qf2_target)):
        for p, tp in zip(net.parameters(), tgt.parameters()):
            tp.data.copy_(tau * p.data + (1 - tau) * tp.data)

    if global_step % 500 == 0:
        print(
            f"step {global_step} qf_loss {qf_loss.item():.4f} actor_loss {actor_loss.item():.3f} "
            f"alpha {alpha:.3f} eval_return {evaluate(eval_env, actor):.1f}"
        )
