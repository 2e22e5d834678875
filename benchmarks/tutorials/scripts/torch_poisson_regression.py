"""Poisson regression of made-up claim counts with exposure as an offset, in the manner of actuarial examples (a generalised linear model in PyTorch)."""

import sys

import numpy as np
import torch

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)
rng = np.random.default_rng(seed)

# made-up policies: age of driver, power of the car, log density of the region, new car or not
n = 10_000
age, power = rng.uniform(18, 85, n), rng.integers(4, 13, n)
density, new = rng.normal(6, 1.5, n), rng.random(n) < 0.15
exposure = rng.uniform(0.2, 1.0, n)
log_rate = -1.2 + 1.4 * np.exp(-(age - 18) / 8) + 0.05 * power + 0.15 * (density - 6) + 0.6 * new
claims = rng.poisson(exposure * np.exp(log_rate))

columns = np.stack(
    [age, ((age - 50) / 30) ** 2, np.exp(-(age - 18) / 10), power, density, new], axis=1
)
train, valid = slice(0, 8000), slice(8000, None)
columns = (columns - columns[train].mean(0)) / columns[train].std(0)
X = torch.tensor(columns, dtype=torch.float32)
Y = torch.tensor(claims, dtype=torch.float32)
offset = torch.tensor(np.log(exposure), dtype=torch.float32)

w = torch.zeros(X.shape[1], requires_grad=True)
b = torch.zeros((), requires_grad=True)
optimizer = torch.optim.SGD([w, b], lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
loss_fn = torch.nn.PoissonNLLLoss(log_input=True)


def deviance(log_mu, y):
    ratio = torch.where(y > 0, y * (torch.log(y.clamp(min=1)) - log_mu), torch.zeros_like(y))
    return 2 * (ratio - y + log_mu.exp()).mean().item()


base = torch.log(Y[train].sum() / offset[train].exp().sum())
print(f"deviance of one rate for all: {deviance(base + offset[valid], Y[valid]):.4f}")
for epoch in range(12):
    losses = []
    for idx in torch.randperm(8000).split(200):
        loss = loss_fn(X[idx] @ w + b + offset[idx], Y[idx]) + 1e-4 * w.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()
    with torch.no_grad():
        figure = deviance(X[valid] @ w + b + offset[valid], Y[valid])
    print(f"epoch {epoch}: loss {np.mean(losses):.4f} validation deviance {figure:.4f}")
