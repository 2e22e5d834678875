"""Pretrains a convnet to tell clothes-like shapes, then fine-tunes the same network with a new head, a smaller rate for the body and gradual unfreezing, on digits; in the manner of fastai's and torchvision's fine-tuning recipes."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(SEED)


def shapes(n, rng):
    """Pictures of 16 x 16 with an ellipse, a box, a triangle, a line or a cross."""
    images, labels = [], rng.integers(0, 5, n)
    for label in labels:
        im = Image.new("L", (16, 16))
        d = ImageDraw.Draw(im)
        x, y = rng.integers(1, 6, 2).tolist()
        w, h = rng.integers(6, 10, 2).tolist()
        box = [x, y, x + w, y + h]
        if label == 0:
            d.ellipse(box, outline=255)
        elif label == 1:
            d.rectangle(box, outline=255)
        elif label == 2:
            d.polygon([(x, y + h), (x + w, y + h), (x + w // 2, y)], outline=255)
        elif label == 3:
            d.line([x, y, x + w, y + h], fill=255, width=1)
        else:
            d.line([x, y + h // 2, x + w, y + h // 2], fill=255)
            d.line([x + w // 2, y, x + w // 2, y + h], fill=255)
        images.append(np.asarray(im, dtype=np.float32) / 255 + rng.normal(0, 0.2, (16, 16)))
    return torch.tensor(np.stack(images), dtype=torch.float32)[:, None], torch.tensor(labels)


def conv(i, o, stride=1):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(inplace=True),
    )


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = conv(1, 16)
        self.layer1 = nn.Sequential(conv(16, 32, 2), conv(32, 32))
        self.layer2 = nn.Sequential(conv(32, 64, 2), conv(64, 64))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(x.mean((2, 3)))


def train_one_epoch(model, loader, optimizer, scheduler=None):
    model.train()
    total = 0.0
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        total += loss.item()
    return total / len(loader)


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    return right / len(loader.dataset)


rng = np.random.default_rng(SEED)
pre_train = DataLoader(TensorDataset(*shapes(1500, rng)), batch_size=64, shuffle=True)
pre_val = DataLoader(TensorDataset(*shapes(400, rng)), batch_size=200)

model = Net(classes=5)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
for epoch in range(5):
    loss = train_one_epoch(model, pre_train, optimizer)
    print(f"[pretrain] epoch {epoch} loss {loss:.4f} val acc {evaluate(model, pre_val):.4f}")

digits, labels = load_digits(return_X_y=True)
digits = torch.tensor(digits / 16, dtype=torch.float32).view(-1, 1, 8, 8)
digits = F.interpolate(digits, size=16, mode="bilinear", align_corners=False)
labels = torch.tensor(labels)
order = torch.randperm(len(labels))
tr, va = order[:1000], order[1000:]
fine_train = DataLoader(TensorDataset(digits[tr], labels[tr]), batch_size=50, shuffle=True)
fine_val = DataLoader(TensorDataset(digits[va], labels[va]), batch_size=400)

model.fc = nn.Linear(64, 10)

# first the head alone ...
for p in model.parameters():
    p.requires_grad_(False)
for p in model.fc.parameters():
    p.requires_grad_(True)
optimizer = torch.optim.AdamW(model.fc.parameters(), lr=1e-2)
for epoch in range(3):
    loss = train_one_epoch(model, fine_train, optimizer)
    print(f"[head]     epoch {epoch} loss {loss:.4f} val acc {evaluate(model, fine_val):.4f}")

# ... then everything, with smaller rates the deeper the layer
for p in model.parameters():
    p.requires_grad_(True)
base_lr = 2e-3
groups = [
    {"params": model.stem.parameters(), "lr": base_lr / 10},
    {"params": model.layer1.parameters(), "lr": base_lr / 5},
    {"params": model.layer2.parameters(), "lr": base_lr / 2},
    {"params": model.fc.parameters(), "lr": base_lr},
]
optimizer = torch.optim.AdamW(groups, weight_decay=1e-2)
epochs = 10
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=[g["lr"] for g in groups], total_steps=epochs * len(fine_train)
)
for epoch in range(epochs):
    loss = train_one_epoch(model, fine_train, optimizer, scheduler)
    acc = evaluate(model, fine_val)
    print(f"[finetune] epoch {epoch} loss {loss:.4f} val acc {acc:.4f}")
