"""PPO with separate actor and critic networks and optimisers and a Gaussian policy on a landing task, early stop on KL, in the manner of Spinning Up and nikhilbarhate99's PPO-PyTorch."""

import sys

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Normal
from torch.optim import Adam

torch.set_num_threads(1)


class Lander:
    """Come down from a height with thrust so that the touch-down is slow; two states, one action."""

    obs_dim, act_dim = 2, 1

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.h, self.v, self.t = self.rng.uniform(0.7, 1.3), self.rng.uniform(-0.3, 0.0), 0
        return np.array([self.h, self.v], dtype=np.float32)

    def step(self, action):
        thrust = float(np.clip(action[0], -1, 1)) + 1
        self.v += 0.05 * (1.2 * thrust - 1)
        self.h += 0.05 * self.v
        self.t += 1
        landed = self.h <= 0
        reward = -0.05 - 0.02 * thrust - 0.05 * max(self.h - 1.5, 0)
        if landed:
            reward += 2 - 4 * min(abs(self.v), 1.5)
        obs = np.array([self.h, self.v], dtype=np.float32)
        return obs, reward, landed, self.t >= 100


def mlp(sizes, activation=nn.Tanh):
    layers = []
    for j in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[j], sizes[j + 1]))
        if j < len(sizes) - 2:
            layers.append(activation())
    return nn.Sequential(*layers)


class MLPGaussianActor(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.log_std = nn.Parameter(-0.5 * torch.ones(act_dim))
        self.mu_net = mlp([obs_dim, 48, 48, act_dim])

    def forward(self, obs, act=None):
        pi = Normal(self.mu_net(obs), self.log_std.exp())
        return pi, None if act is None else pi.log_prob(act).sum(-1)


def discount_cumsum(x, discount):
    out, running = np.zeros_like(x), 0.0
    for i in reversed(range(len(x))):
        running = x[i] + discount * running
        out[i] = running
    return out


def ppo(
    seed,
    steps_per_epoch=1000,
    epochs=25,
    gamma=0.99,
    clip_ratio=0.2,
    lam=0.95,
    train_iters=30,
    target_kl=0.02,
):
    torch.manual_seed(seed)
    env = Lander(np.random.default_rng(seed))
    pi, v = MLPGaussianActor(env.obs_dim, env.act_dim), mlp([env.obs_dim, 48, 48, 1])
    pi_optimizer, vf_optimizer = Adam(pi.parameters(), lr=2e-3), Adam(v.parameters(), lr=3e-3)

    for epoch in range(epochs):
        obs_buf, act_buf, logp_buf, adv_buf, ret_buf = [], [], [], [], []
        ep_ret, landings = [], []
        o, rews, vals = env.reset(), [], []
        for t in range(steps_per_epoch):
            obs = torch.from_numpy(o)
            with torch.no_grad():
                dist, _ = pi(obs)
                a = dist.sample()
                logp_buf.append(dist.log_prob(a).sum(-1))
                vals.append(v(obs).item())
            obs_buf.append(obs)
            act_buf.append(a)
            o, r, terminal, timeout = env.step(a.numpy())
            rews.append(r)
            if terminal or timeout or t == steps_per_epoch - 1:
                with torch.no_grad():
                    last = 0.0 if terminal else v(torch.from_numpy(o)).item()
                rews_, vals_ = np.array(rews + [last]), np.array(vals + [last])
                deltas = rews_[:-1] + gamma * vals_[1:] - vals_[:-1]
                adv_buf.append(discount_cumsum(deltas, gamma * lam))
                ret_buf.append(discount_cumsum(rews_, gamma)[:-1])
                if terminal or timeout:
                    ep_ret.append(sum(rews))
                    landings.append(abs(env.v) if terminal else np.nan)
                o, rews, vals = env.reset(), [], []

        obs, act, logp_old = torch.stack(obs_buf), torch.stack(act_buf), torch.stack(logp_buf)
        adv = torch.tensor(np.concatenate(adv_buf), dtype=torch.float32)
        adv = (adv - adv.mean()) / adv.std()
        ret = torch.tensor(np.concatenate(ret_buf), dtype=torch.float32)

        for i in range(train_iters):
            pi_optimizer.zero_grad()
            dist, logp = pi(obs, act)
            ratio = torch.exp(logp - logp_old)
            clip_adv = torch.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio) * adv
            loss_pi = -torch.min(ratio * adv, clip_adv).mean()
            kl = (logp_old - logp).mean().item()
            if kl > 1.5 * target_kl:
                break
            loss_pi.backward()
            pi_optimizer.step()

        for _ in range(train_iters):
            vf_optimizer.zero_grad()
            loss_v = ((v(obs).squeeze(-1) - ret) ** 2).mean()
            loss_v.backward()
            vf_optimizer.step()

        print(
            f"epoch {epoch:2d} EpRet {np.mean(ep_ret):.3f} LossPi {loss_pi.item():.4f} LossV {loss_v.item():.4f} "
            f"KL {kl:.4f} StopIter {i} Entropy {dist.entropy().mean().item():.3f} touch-down speed {np.nanmean(landings):.3f}"
        )


if __name__ == "__main__":
    ppo(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
