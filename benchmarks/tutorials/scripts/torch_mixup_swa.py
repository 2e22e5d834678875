"""Trains a small residual network on digits with mixup and CutMix, then averages the weights of the last epochs (SWA), in the manner of PyTorch's SWA tutorial and timm."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
np.random.seed(seed)
torch.manual_seed(seed)


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2 = (
            nn.Conv2d(c, c, 3, padding=1, bias=False),
            nn.Conv2d(c, c, 3, padding=1, bias=False),
        )
        self.bn1, self.bn2 = nn.BatchNorm2d(c), nn.BatchNorm2d(c)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(x + self.bn2(self.conv2(y)), inplace=True)


def build():
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        ResBlock(24),
        nn.MaxPool2d(2),
        ResBlock(24),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 10),
    )


def rand_bbox(size, lam):
    w, h = size[3], size[2]
    cut = np.sqrt(1.0 - lam)
    cw, ch = int(w * cut), int(h * cut)
    cx, cy = np.random.randint(w), np.random.randint(h)
    return max(cx - cw // 2, 0), max(cy - ch // 2, 0), min(cx + cw // 2, w), min(cy + ch // 2, h)


def mix(x, y, alpha=0.4):
    """Returns mixed pictures, both labels and the share of the first."""
    index = torch.randperm(len(x))
    if np.random.rand() < 0.5:
        lam = np.random.beta(alpha, alpha)
        return lam * x + (1 - lam) * x[index], y, y[index], lam
    x = x.clone()
    x1, y1, x2, y2 = rand_bbox(x.shape, np.random.beta(1.0, 1.0))
    x[:, :, y1:y2, x1:x2] = x[index, :, y1:y2, x1:x2]
    return x, y, y[index], 1 - (x2 - x1) * (y2 - y1) / 64


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = right = n = 0
    for x, y in loader:
        out = model(x)
        loss += F.cross_entropy(out, y, reduction="sum").item()
        right += (out.argmax(1) == y).sum().item()
        n += len(y)
    return loss / n, right / n


images, labels = load_digits(return_X_y=True)
x = torch.tensor(images / 8 - 1, dtype=torch.float32).view(-1, 1, 8, 8)
y = torch.tensor(labels)
order = torch.randperm(len(x))
train_loader = DataLoader(TensorDataset(x[order[:1300]], y[order[:1300]]), 50, shuffle=True)
val_loader = DataLoader(TensorDataset(x[order[1300:]], y[order[1300:]]), 250)

model = build()
swa_model = AveragedModel(model)
optimizer = torch.optim.SGD(
    model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4
)
epochs, swa_start = 18, 13
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
swa_scheduler = SWALR(optimizer, swa_lr=0.01, anneal_epochs=2)

for epoch in range(epochs):
    model.train()
    total = 0.0
    for inputs, targets in train_loader:
        inputs, ta, tb, lam = mix(inputs, targets)
        outputs = model(inputs)
        loss = lam * F.cross_entropy(outputs, ta) + (1 - lam) * F.cross_entropy(outputs, tb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    if epoch >= swa_start:
        swa_model.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    val_loss, val_acc = evaluate(model, val_loader)
    print(
        f"epoch {epoch:2d} lr {optimizer.param_groups[0]['lr']:.4f} mixed loss {total / len(train_loader):.4f} "
        f"val loss {val_loss:.4f} val acc {val_acc:.4f}"
    )

update_bn(train_loader, swa_model)
print("SWA val loss %.4f acc %.4f" % evaluate(swa_model, val_loader))
