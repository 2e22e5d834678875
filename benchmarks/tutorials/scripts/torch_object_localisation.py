"""Class and bounding box of one shape in a noisy image, two heads and a weighted sum of losses, in the manner of multi-task detection tutorials."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def make_scene(n, size=24):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    yy, xx = yy.float().expand(n, -1, -1), xx.float().expand(n, -1, -1)
    kind = torch.randint(3, (n,))
    half = 3 + 3 * torch.rand(n, 1, 1)
    cx, cy = (half + (size - 1 - 2 * half) * torch.rand(n, 1, 1) for _ in range(2))
    dx, dy = (xx - cx).abs(), (yy - cy).abs()
    square = torch.maximum(dx, dy) <= half
    circle = dx**2 + dy**2 <= half**2
    cross = ((dx <= half / 3) | (dy <= half / 3)) & square
    mask = torch.stack([square, circle, cross])[kind, torch.arange(n)]
    image = mask.float() * (0.5 + 0.5 * torch.rand(n, 1, 1)) + 0.15 * torch.randn(n, size, size)
    box = torch.cat([cx - half, cy - half, cx + half, cy + half], dim=2).squeeze(1) / (size - 1)
    return image.unsqueeze(1), kind, box


def iou(a, b):
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    inter = (high - low).clamp(min=0).prod(1)
    area = [(x[:, 2:] - x[:, :2]).clamp(min=0).prod(1) for x in (a, b)]
    return inter / (area[0] + area[1] - inter)


class Localizer(nn.Module):
    def __init__(self):
        super().__init__()

        def stage(cin, cout):
            return nn.Sequential(
                nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2)
            )

        self.backbone = nn.Sequential(stage(1, 12), stage(12, 24), stage(24, 32), nn.Flatten())
        self.classifier = nn.Sequential(
            nn.Linear(32 * 9, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 3)
        )
        self.regressor = nn.Sequential(
            nn.Linear(32 * 9, 64), nn.ReLU(), nn.Linear(64, 4), nn.Sigmoid()
        )

    def forward(self, x):
        h = self.backbone(x)
        return self.classifier(h), self.regressor(h)


def run_epoch(model, loader, optimizer=None):
    model.train(optimizer is not None)
    sums = torch.zeros(4)
    with torch.set_grad_enabled(optimizer is not None):
        for x, y, box in loader:
            logits, pred = model(x)
            loss_cls = F.cross_entropy(logits, y)
            loss_box = F.smooth_l1_loss(pred, box, beta=0.1)
            loss = loss_cls + 10.0 * loss_box
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                right = (logits.argmax(1) == y).float().mean()
                sums += len(x) * torch.stack([loss_cls, loss_box, right, iou(pred, box).mean()])
    return (sums / len(loader.dataset)).tolist()


if __name__ == "__main__":
    torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    train_loader = DataLoader(TensorDataset(*make_scene(1600)), batch_size=32, shuffle=True)
    valid_loader = DataLoader(TensorDataset(*make_scene(400)), batch_size=100)
    model = Localizer()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [7, 9], gamma=0.3)
    for epoch in range(1, 11):
        train = run_epoch(model, train_loader, optimizer)
        valid = run_epoch(model, valid_loader)
        scheduler.step()
        text = "cls {:.4f} box {:.4f} accuracy {:.3f} iou {:.3f}"
        print(f"epoch {epoch} train {text.format(*train)} | valid {text.format(*valid)}")
