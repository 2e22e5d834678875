"""Predicts the 10, 50 and 90 % quantiles of a noisy sine with the pinball loss, in the manner of forecasting blog posts."""

import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

QUANTILES = torch.tensor([0.1, 0.5, 0.9])


def make_data(n):
    x = torch.rand(n, 1) * 4 - 2
    y = torch.sin(2 * x) + 0.3 * x + (0.1 + 0.2 * (x + 2) / 2) * torch.randn(n, 1)
    return x, y


def pinball_loss(pred, target):
    error = target - pred
    return torch.maximum(QUANTILES * error, (QUANTILES - 1) * error).sum(dim=1).mean()


class QuantileNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.median = nn.Linear(hidden, 1)
        self.gaps = nn.Linear(hidden, 2)

    def forward(self, x):
        h = self.body(x)
        median = self.median(h)
        gaps = nn.functional.softplus(self.gaps(h))  # quantiles can't cross
        return torch.cat([median - gaps[:, :1], median, median + gaps[:, 1:]], dim=1)


x_train, y_train = make_data(3000)
x_valid, y_valid = make_data(1000)
model = QuantileNet()
optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)

for epoch in range(30):
    model.train()
    total = 0.0
    for idx in torch.randperm(len(x_train)).split(64):
        loss = pinball_loss(model(x_train[idx]), y_train[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(idx)
    scheduler.step()
    model.eval()
    with torch.no_grad():
        pred = model(x_valid)
        valid = pinball_loss(pred, y_valid).item()
        below = (y_valid <= pred).float().mean(0).tolist()
    if epoch % 3 == 2:
        print(
            f"epoch {epoch + 1} train {total / len(x_train):.4f} valid {valid:.4f} below "
            + " ".join(f"{b:.3f}" for b in below)
        )
