"""Mixture density network for the inverse sine problem (several answers for one input), in the manner of Bishop's toy example."""

import math
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


def inverse_sine(n):
    t = torch.rand(n, 1) * 2 - 1
    x = t + 0.3 * torch.sin(2 * math.pi * t) + 0.05 * torch.randn(n, 1)
    return x * 2, t * 2


class MDN(nn.Module):
    def __init__(self, n_hidden=40, n_gaussians=5):
        super().__init__()
        self.z_h = nn.Sequential(
            nn.Linear(1, n_hidden), nn.Tanh(), nn.Linear(n_hidden, n_hidden), nn.Tanh()
        )
        self.z_pi = nn.Linear(n_hidden, n_gaussians)
        self.z_mu = nn.Linear(n_hidden, n_gaussians)
        self.z_sigma = nn.Linear(n_hidden, n_gaussians)

    def forward(self, x):
        z_h = self.z_h(x)
        log_pi = torch.log_softmax(self.z_pi(z_h), -1)
        return log_pi, self.z_mu(z_h), nn.functional.softplus(self.z_sigma(z_h)) + 0.01


def mdn_loss_fn(log_pi, mu, sigma, y):
    m = torch.distributions.Normal(loc=mu, scale=sigma)
    return -torch.logsumexp(m.log_prob(y.expand_as(mu)) + log_pi, dim=1).mean()


x, y = inverse_sine(2500)
x_train, y_train, x_valid, y_valid = x[:2000], y[:2000], x[2000:], y[2000:]
network = MDN()
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
for epoch in range(40):
    order = torch.randperm(2000)
    for idx in order.chunk(20):
        log_pi, mu, sigma = network(x_train[idx])
        loss = mdn_loss_fn(log_pi, mu, sigma, y_train[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    if epoch % 4 == 3:
        with torch.no_grad():
            train = mdn_loss_fn(*network(x_train), y_train).item()
            valid = mdn_loss_fn(*network(x_valid), y_valid).item()
        print(f"epoch {epoch + 1}: train nll {train:.4f} validation nll {valid:.4f}")
