"""Denoising diffusion of points on two moons with EMA weights, in the manner of "tiny diffusion" notebooks."""

import copy
import sys

import torch
from sklearn.datasets import make_moons
from torch import nn

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)

T = 50
betas = torch.linspace(1e-4, 0.15, T)
alphas = 1.0 - betas
alpha_bars = torch.cumprod(alphas, dim=0)

points = torch.tensor(make_moons(4500, noise=0.05, random_state=seed)[0], dtype=torch.float32)
points = (points - points.mean(0)) / points.std(0)
train_points, valid_points = points[:4000], points[4000:]


class NoisePredictor(nn.Module):
    def __init__(self, hidden=128, emb=32):
        super().__init__()
        self.time = nn.Embedding(T, emb)
        self.inp = nn.Linear(2 + emb, hidden)
        self.blocks = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(3)])
        self.out = nn.Linear(hidden, 2)

    def forward(self, x, t):
        h = nn.functional.silu(self.inp(torch.cat([x, self.time(t)], dim=1)))
        for block in self.blocks:
            h = h + nn.functional.silu(block(h))
        return self.out(h)


def diffusion_loss(model, x0, t, noise):
    ab = alpha_bars[t].unsqueeze(1)
    return nn.functional.mse_loss(model(ab.sqrt() * x0 + (1 - ab).sqrt() * noise, t), noise)


@torch.no_grad()
def sample(model, n):
    x = torch.randn(n, 2)
    for t in reversed(range(T)):
        eps = model(x, torch.full((n,), t))
        x = (x - betas[t] / (1 - alpha_bars[t]).sqrt() * eps) / alphas[t].sqrt()
        if t > 0:
            x += betas[t].sqrt() * torch.randn(n, 2)
    return x


model = NoisePredictor()
ema = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=80, eta_min=1e-5)
generator = torch.Generator().manual_seed(1)
valid_t = torch.randint(T, (len(valid_points),), generator=generator)
valid_noise = torch.randn(valid_points.shape, generator=generator)

step = 0
for epoch in range(80):
    model.train()
    total = 0.0
    for batch in train_points[torch.randperm(len(train_points))].split(128):
        t = torch.randint(T, (len(batch),))
        loss = diffusion_loss(model, batch, t, torch.randn_like(batch))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        with torch.no_grad():
            for e, p in zip(ema.parameters(), model.parameters()):
                e.lerp_(p, 1 - min(0.995, step / (step + 10)))
        total += loss.item() * len(batch)
    scheduler.step()
    with torch.no_grad():
        valid = diffusion_loss(ema, valid_points, valid_t, valid_noise).item()
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1} train {total / len(train_points):.4f} valid {valid:.4f}")

made = sample(ema, 500)
nearest = torch.cdist(made, valid_points).min(dim=1).values
print(f"distance of new points to the nearest held-out point: mean {nearest.mean():.3f}")
