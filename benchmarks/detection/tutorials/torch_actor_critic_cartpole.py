"""Advantage actor-critic with an entropy bonus on a hand-written, vectorised cart-pole, in the manner of A2C tutorials."""

import sys

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

torch.set_num_threads(1)
SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

N_ENVS, N_STEPS, UPDATES = 8, 16, 1000
GAMMA, LAMBDA, ENT_COEF, VF_COEF = 0.98, 0.95, 0.005, 0.5


class VecCartPole:
    def __init__(self, n):
        self.s = rng.uniform(-0.05, 0.05, (n, 4))
        self.t = np.zeros(n, dtype=int)

    def step(self, actions):
        x, v, th, w = self.s.T
        force = np.where(actions == 1, 10.0, -10.0)
        tmp = (force + 0.05 * w**2 * np.sin(th)) / 1.1
        acc = (9.8 * np.sin(th) - np.cos(th) * tmp) / (0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1))
        xacc = tmp - 0.05 * acc * np.cos(th) / 1.1
        self.s = np.stack([x + 0.02 * v, v + 0.02 * xacc, th + 0.02 * w, w + 0.02 * acc], axis=1)
        self.t += 1
        failed = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.2095)
        done = failed | (self.t >= 200)
        lengths = self.t[done].tolist()
        self.s[done] = rng.uniform(-0.05, 0.05, (done.sum(), 4))
        self.t[done] = 0
        return done, lengths

    def obs(self):
        return torch.tensor(self.s / np.array([2.4, 2.0, 0.2, 2.0]), dtype=torch.float32)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi = nn.Linear(64, 2)
        self.v = nn.Linear(64, 1)
        for layer, gain in (
            (self.body[0], 2**0.5),
            (self.body[2], 2**0.5),
            (self.pi, 0.01),
            (self.v, 1.0),
        ):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


env = VecCartPole(N_ENVS)
net = ActorCritic()
opt = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-5)
sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, UPDATES)
recent = []

for update in range(1, UPDATES + 1):
    obs, acts, dones, vals = [], [], [], []
    for _ in range(N_STEPS):
        o = env.obs()
        with torch.no_grad():
            logits, v = net(o)
        a = Categorical(logits=logits).sample()
        done, lengths = env.step(a.numpy())
        recent = (recent + lengths)[-40:]
        obs.append(o)
        acts.append(a)
        vals.append(v)
        dones.append(torch.tensor(done, dtype=torch.float32))
    with torch.no_grad():
        next_v = net(env.obs())[1]
    adv, gae = [], torch.zeros(N_ENVS)
    for t in reversed(range(N_STEPS)):
        alive = 1 - dones[t]
        delta = 0.1 + GAMMA * next_v * alive - vals[t]  # a reward of 0.1 for each step
        gae = delta + GAMMA * LAMBDA * alive * gae
        adv.append(gae)
        next_v = vals[t]
    adv = torch.stack(adv[::-1])
    returns = (adv + torch.stack(vals)).flatten()
    adv = adv.flatten()

    logits, values = net(torch.cat(obs))
    dist = Categorical(logits=logits)
    policy_loss = -(dist.log_prob(torch.cat(acts)) * (adv - adv.mean()) / (adv.std() + 1e-8)).mean()
    value_loss = (returns - values).pow(2).mean()
    loss = policy_loss + VF_COEF * value_loss - ENT_COEF * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()
    sched.step()
    if update % 100 == 0:
        print(
            f"update {update} policy {policy_loss:.3f} value {value_loss:.3f} entropy {dist.entropy().mean():.3f}"
        )
        print(f"mean length of the last {len(recent)} episodes: {np.mean(recent):.1f}")
