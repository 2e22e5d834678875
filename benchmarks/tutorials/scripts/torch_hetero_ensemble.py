"""Deep ensemble of networks that predict mean and variance (Gaussian NLL), trained one after the other, in the manner of Kendall and Gal and of Lakshminarayanan's deep ensembles."""

import sys

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)
rng = np.random.default_rng(seed)


def toy(n):
    x = rng.uniform(-3, 3, (n, 2))
    mean = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    sigma = 0.1 + 0.25 * (x[:, 1] > 0) * x[:, 1]
    y = mean + sigma * rng.normal(size=n)
    to = lambda a: torch.tensor(a, dtype=torch.float32)
    return to(x), to(y)[:, None], to(sigma)[:, None]


x_train, y_train, _ = toy(1500)
x_val, y_val, sigma_val = toy(500)


class GaussianMLP(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.mean, self.log_var = nn.Linear(hidden, 1), nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.body(x)
        return self.mean(h), self.log_var(h).clamp(-8, 4)


def nll(mean, log_var, y):
    return (0.5 * torch.exp(-log_var) * (y - mean) ** 2 + 0.5 * log_var).mean()


@torch.no_grad()
def ensemble_predict(models, x):
    means, variances = zip(*[(m, lv.exp()) for m, lv in (net.eval()(x) for net in models)])
    means, variances = torch.stack(means), torch.stack(variances)
    return means.mean(0), variances.mean(0) + means.var(0, unbiased=False)


loader = DataLoader(TensorDataset(x_train, y_train), batch_size=50, shuffle=True)
ensemble = []
for member in range(3):
    net = GaussianMLP()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    for epoch in range(20):
        net.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = nll(*net(x), y)
            loss.backward()
            nn.utils.clip_grad_value_(net.parameters(), 5.0)
            optimizer.step()
        scheduler.step()
        net.eval()
        with torch.no_grad():
            mean, log_var = net(x_val)
            val_nll, rmse = (
                nll(mean, log_var, y_val).item(),
                (mean - y_val).pow(2).mean().sqrt().item(),
            )
        if epoch % 4 == 3:
            print(
                f"member {member} epoch {epoch + 1} train nll {loss.item():.4f} val nll {val_nll:.4f} rmse {rmse:.4f}"
            )
    ensemble.append(net)

mean, var = ensemble_predict(ensemble, x_val)
corr = torch.corrcoef(torch.cat([var.sqrt(), sigma_val], 1).T)[0, 1].item()
print(
    f"ensemble val nll {nll(mean, var.log(), y_val).item():.4f}, correlation of sigma with the truth {corr:.3f}"
)
