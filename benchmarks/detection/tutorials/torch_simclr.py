"""Contrastive learning without labels (SimCLR) on digits, then a linear probe on the frozen features, in the manner of self-supervised learning courses."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


def augment(x):
    """Random small turn, zoom and shift, brightness and noise."""
    n = len(x)
    angle = (torch.rand(n) - 0.5) * 0.6
    zoom = 0.85 + 0.3 * torch.rand(n)
    cos, sin = torch.cos(angle) * zoom, torch.sin(angle) * zoom
    shift = (torch.rand(2, n) - 0.5) * 0.4
    theta = torch.stack(
        [torch.stack([cos, -sin, shift[0]], 1), torch.stack([sin, cos, shift[1]], 1)], 1
    )
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
    return x * (0.8 + 0.4 * torch.rand(n, 1, 1, 1)) + 0.1 * torch.randn_like(x)


class SimCLR(nn.Module):
    def __init__(self, hidden_dim=64, out_dim=32):
        super().__init__()
        self.convnet = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.projection = nn.Sequential(
            nn.Linear(256, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_dim)
        )

    def forward(self, x):
        return self.projection(self.convnet(x))


def info_nce_loss(feats, temperature=0.2):
    cos_sim = F.cosine_similarity(feats[:, None, :], feats[None, :, :], dim=-1)
    self_mask = torch.eye(len(feats), dtype=torch.bool)
    cos_sim = cos_sim.masked_fill(self_mask, -9e15) / temperature
    target = torch.arange(len(feats)).roll(len(feats) // 2)
    top1 = (cos_sim.argmax(1) == target).float().mean()
    return F.cross_entropy(cos_sim, target), top1.item()


digits = load_digits()
images = (torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16 - 0.3) / 0.38
labels = torch.tensor(digits.target)
order = torch.randperm(len(images))
images, labels = images[order], labels[order]
x_train, y_train, x_test, y_test = images[:1408], labels[:1408], images[1408:], labels[1408:]

model = SimCLR()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
epochs = 15
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs, eta_min=4e-5)
for epoch in range(epochs):
    model.train()
    losses = []
    for idx in torch.randperm(len(x_train)).split(128):
        batch = torch.cat([augment(x_train[idx]), augment(x_train[idx])])
        loss, acc = info_nce_loss(model(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()
    model.eval()
    with torch.no_grad():
        view = torch.cat([augment(x_test[:128]), augment(x_test[:128])])
        val_loss, val_top1 = info_nce_loss(model(view))
    print(
        f"epoch {epoch + 1} train {sum(losses) / len(losses):.3f} val {val_loss.item():.3f} val top1 {val_top1:.3f}"
    )

# logistic regression on frozen features of 200 labelled images
with torch.no_grad():
    train_feats, test_feats = model.convnet(x_train[:200]), model.convnet(x_test)
mean, std = train_feats.mean(0), train_feats.std(0) + 1e-3
train_feats, test_feats = (train_feats - mean) / std, (test_feats - mean) / std
probe = nn.Linear(256, 10)
optimizer = torch.optim.AdamW(probe.parameters(), lr=2e-3, weight_decay=0.1)
for epoch in range(50):
    for idx in torch.randperm(200).split(50):
        loss = F.cross_entropy(probe(train_feats[idx]), y_train[:200][idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
acc = (probe(test_feats).argmax(1) == y_test).float().mean().item()
print(f"linear probe with 200 labels: test accuracy {acc:.4f}")
