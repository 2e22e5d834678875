"""VICReg (variance, invariance, covariance) on digits with cosine warm-up and an online classifier on detached features, in the manner of facebookresearch's vicreg and solo-learn."""

import math
import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

BATCH, EPOCHS, SIM, STD, COV = 128, 18, 25.0, 25.0, 1.0


def off_diagonal(x):
    n, _ = x.shape
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


def views(x):
    b = len(x)
    theta = torch.zeros(b, 2, 3)
    angle, scale = torch.empty(b).uniform_(-0.3, 0.3), torch.empty(b).uniform_(0.85, 1.15)
    theta[:, 0, 0] = theta[:, 1, 1] = torch.cos(angle) * scale
    theta[:, 0, 1], theta[:, 1, 0] = -torch.sin(angle) * scale, torch.sin(angle) * scale
    theta[:, :, 2] = torch.empty(b, 2).uniform_(-0.2, 0.2)
    x = F.grid_sample(
        x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False
    )
    return (x + 0.08 * torch.randn_like(x)).clamp(0, 1)


class VICReg(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(48),
            nn.ReLU(),
            nn.Conv2d(48, 48, 3, padding=1, bias=False),
            nn.BatchNorm2d(48),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.projector = nn.Sequential(
            nn.Linear(192, 128, bias=False),
            nn.BatchNorm1d(128),
            nn.ReLU(),
            nn.Linear(128, 64, bias=False),
        )

    def forward(self, x, y):
        x, y = self.projector(self.backbone(x)), self.projector(self.backbone(y))
        repr_loss = F.mse_loss(x, y)
        x, y = x - x.mean(dim=0), y - y.mean(dim=0)
        std_x, std_y = torch.sqrt(x.var(dim=0) + 1e-4), torch.sqrt(y.var(dim=0) + 1e-4)
        std_loss = torch.mean(F.relu(1 - std_x)) / 2 + torch.mean(F.relu(1 - std_y)) / 2
        cov_x, cov_y = (x.T @ x) / (len(x) - 1), (y.T @ y) / (len(y) - 1)
        cov_loss = off_diagonal(cov_x).pow(2).sum().div(64) + off_diagonal(cov_y).pow(2).sum().div(
            64
        )
        return SIM * repr_loss + STD * std_loss + COV * cov_loss, (repr_loss, std_loss, cov_loss)


images, labels = load_digits(return_X_y=True)
images, labels = (
    torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8),
    torch.tensor(labels),
)
order = torch.randperm(len(images))
tr, va = order[:1350], order[1350:]

model, online = VICReg(), nn.Linear(192, 10)
params = [
    {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 1e-4},
    {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(params, lr=3e-3)
online_optimizer = torch.optim.Adam(online.parameters(), lr=1e-2)
steps_per_epoch = len(tr) // BATCH
total, warmup, step = EPOCHS * steps_per_epoch, 2 * steps_per_epoch, 0

for epoch in range(EPOCHS):
    model.train()
    sums = torch.zeros(5)
    shuffled = tr[torch.randperm(len(tr))]
    for i in range(steps_per_epoch):
        lr = 3e-3 * (
            (step + 1) / warmup
            if step < warmup
            else 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
        )
        for group in optimizer.param_groups:
            group["lr"] = lr
        idx = shuffled[i * BATCH : (i + 1) * BATCH]
        v1, v2 = views(images[idx]), views(images[idx])
        loss, parts = model(v1, v2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        with torch.no_grad():
            features = model.backbone(v1)
        class_loss = F.cross_entropy(online(features.detach()), labels[idx])
        online_optimizer.zero_grad()
        class_loss.backward()
        online_optimizer.step()
        step += 1
        sums += (
            torch.tensor([loss.item(), *(p.item() for p in parts), class_loss.item()])
            / steps_per_epoch
        )
    model.eval()
    with torch.no_grad():
        acc = (online(model.backbone(images[va])).argmax(1) == labels[va]).float().mean().item()
    names = ("loss", "inv", "var", "cov", "online")
    print(
        f"epoch {epoch}",
        " ".join(f"{n} {s:.4f}" for n, s in zip(names, sums.tolist())),
        f"val acc {acc:.4f}",
    )
