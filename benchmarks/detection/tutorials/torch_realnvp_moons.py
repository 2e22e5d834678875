"""RealNVP normalising flow on two moons, maximum likelihood, in the manner of short "normalising flows" notebooks."""

import sys

import numpy as np
import torch
from sklearn import datasets
from torch import distributions, nn

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)
np.random.seed(seed)


class RealNVP(nn.Module):
    def __init__(self, nets, nett, mask, prior):
        super().__init__()
        self.prior = prior
        self.register_buffer("mask", mask)
        self.t = nn.ModuleList([nett() for _ in range(len(mask))])
        self.s = nn.ModuleList([nets() for _ in range(len(mask))])

    def g(self, z):
        x = z
        for i in range(len(self.t)):
            x_ = x * self.mask[i]
            s = self.s[i](x_) * (1 - self.mask[i])
            t = self.t[i](x_) * (1 - self.mask[i])
            x = x_ + (1 - self.mask[i]) * (x * torch.exp(s) + t)
        return x

    def f(self, x):
        log_det_J, z = x.new_zeros(x.shape[0]), x
        for i in reversed(range(len(self.t))):
            z_ = self.mask[i] * z
            s = self.s[i](z_) * (1 - self.mask[i])
            t = self.t[i](z_) * (1 - self.mask[i])
            z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
            log_det_J -= s.sum(dim=1)
        return z, log_det_J

    def log_prob(self, x):
        z, logp = self.f(x)
        return self.prior.log_prob(z) + logp


def nets():
    return nn.Sequential(
        nn.Linear(2, 48),
        nn.LeakyReLU(),
        nn.Linear(48, 48),
        nn.LeakyReLU(),
        nn.Linear(48, 2),
        nn.Tanh(),
    )


def nett():
    return nn.Sequential(
        nn.Linear(2, 48), nn.LeakyReLU(), nn.Linear(48, 48), nn.LeakyReLU(), nn.Linear(48, 2)
    )


masks = torch.tensor([[0.0, 1.0], [1.0, 0.0]] * 3)
prior = distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
flow = RealNVP(nets, nett, masks, prior)
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
valid = torch.from_numpy(datasets.make_moons(n_samples=1000, noise=0.05)[0].astype(np.float32))
print(
    "Gaussian fit:",
    distributions.MultivariateNormal(valid.mean(0), valid.T.cov()).log_prob(valid).mean().item(),
)

for t in range(1051):
    # new samples for every step
    noisy_moons = datasets.make_moons(n_samples=100, noise=0.05)[0].astype(np.float32)
    loss = -flow.log_prob(torch.from_numpy(noisy_moons)).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
    optimizer.step()
    if t % 150 == 0:
        with torch.no_grad():
            print(
                f"iter {t}: loss = {loss.item():.3f}, valid log likelihood {flow.log_prob(valid).mean().item():.3f}"
            )
