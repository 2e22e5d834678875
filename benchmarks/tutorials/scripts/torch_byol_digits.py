"""Self-supervised BYOL (EMA target network, predictor) on scikit-learn's digits with a linear probe, in the manner of lucidrains' byol-pytorch."""

import copy
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

torch.set_num_threads(1)


def mlp(dim, hidden, out):
    return nn.Sequential(
        nn.Linear(dim, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, out),
    )


class Encoder(nn.Module):
    def __init__(self, feat=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1, stride=2),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, feat, 3, padding=1),
            nn.BatchNorm2d(feat),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )

    def forward(self, x):
        return self.net(x)


class BYOL(nn.Module):
    def __init__(self, dim=256, proj=64, decay=0.98):
        super().__init__()
        self.encoder, self.projector = Encoder(), mlp(dim, 128, proj)
        self.predictor = mlp(proj, 128, proj)
        self.target = copy.deepcopy(nn.Sequential(self.encoder, self.projector))
        for p in self.target.parameters():
            p.requires_grad = False
        self.decay = decay

    @torch.no_grad()
    def update_moving_average(self, progress):
        decay = 1 - (1 - self.decay) * (math.cos(math.pi * progress) + 1) / 2
        online = list(self.encoder.parameters()) + list(self.projector.parameters())
        for p, t in zip(online, self.target.parameters()):
            t.lerp_(p, 1 - decay)

    def forward(self, v1, v2):
        p1 = self.predictor(self.projector(self.encoder(v1)))
        p2 = self.predictor(self.projector(self.encoder(v2)))
        with torch.no_grad():
            z1, z2 = self.target(v1), self.target(v2)
        loss = 2 - 2 * F.cosine_similarity(p1, z2.detach(), dim=-1)
        return (loss + 2 - 2 * F.cosine_similarity(p2, z1.detach(), dim=-1)).mean()


def augment(x):
    """Small random affine map, a contrast change and some noise."""
    b = len(x)
    angle = (torch.rand(b) - 0.5) * 0.6
    scale = 0.85 + 0.3 * torch.rand(b)
    cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
    shift = (torch.rand(b, 2) - 0.5) * 0.5
    theta = torch.stack([cos, -sin, shift[:, 0], sin, cos, shift[:, 1]], 1).view(b, 2, 3)
    x = F.grid_sample(
        x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False
    )
    return x * (0.7 + 0.6 * torch.rand(b, 1, 1, 1)) + 0.05 * torch.randn_like(x)


def linear_probe(model, xtr, ytr, xva, yva):
    model.eval()
    with torch.no_grad():
        ftr, fva = model.encoder(xtr).numpy(), model.encoder(xva).numpy()
    model.train()
    mean, std = ftr.mean(0), ftr.std(0) + 1e-5
    probe = LogisticRegression(C=0.1, max_iter=200).fit((ftr - mean) / std, ytr)
    return probe.score((fva - mean) / std, yva), (
        ftr / (1e-8 + (ftr**2).sum(1, keepdims=True) ** 0.5)
    ).std()


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    torch.manual_seed(seed)
    images, labels = load_digits(return_X_y=True)
    xtr, xva, ytr, yva = train_test_split(images, labels, test_size=0.25, random_state=0)
    xtr, xva = (torch.tensor(z, dtype=torch.float32).view(-1, 1, 8, 8) / 16 for z in (xtr, xva))

    model = BYOL()
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-3, weight_decay=1e-4)
    epochs, batch = 15, 128
    steps_per_epoch = len(xtr) // batch
    step = 0
    for epoch in range(epochs):
        total = 0.0
        order = torch.randperm(len(xtr))
        for i in range(steps_per_epoch):
            x = xtr[order[i * batch : (i + 1) * batch]]
            loss = model(augment(x), augment(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            model.update_moving_average(step / (epochs * steps_per_epoch))
            total += loss.item()
        acc, spread = linear_probe(model, xtr, ytr, xva, yva)
        print(
            f"epoch {epoch:2d} loss {total / steps_per_epoch:.4f} probe acc {acc:.4f} std {spread:.4f}"
        )


if __name__ == "__main__":
    main()
