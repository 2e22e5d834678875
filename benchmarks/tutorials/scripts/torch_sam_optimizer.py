"""Trains a small convnet on digits with sharpness-aware minimisation (two passes a step), in the manner of davda54's sam."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        grad_norm = self._grad_norm()
        for group in self.param_groups:
            scale = group["rho"] / (grad_norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale)  # climb to the local maximum "w + e(w)"
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data = self.state[p]["old_p"]  # back to "w"
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    def step(self, closure=None):
        closure = torch.enable_grad()(closure)
        self.first_step(zero_grad=True)
        closure()
        self.second_step()

    def _grad_norm(self):
        norms = [
            p.grad.norm(p=2) for g in self.param_groups for p in g["params"] if p.grad is not None
        ]
        return torch.norm(torch.stack(norms), p=2)


def disable_running_stats(model):
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.backup_momentum, m.momentum = m.momentum, 0


def enable_running_stats(model):
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d) and hasattr(m, "backup_momentum"):
            m.momentum = m.backup_momentum


x, y = load_digits(return_X_y=True)
x_train, x_val, y_train, y_val = train_test_split(x, y, test_size=0.3, random_state=42, stratify=y)
mean, std = x_train.mean(), x_train.std()
x_train, x_val = (
    torch.tensor((z - mean) / std, dtype=torch.float32).view(-1, 1, 8, 8) for z in (x_train, x_val)
)
y_train, y_val = torch.tensor(y_train), torch.tensor(y_val)

model = nn.Sequential(
    nn.Conv2d(1, 24, 3, padding=1, bias=False),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.Conv2d(24, 24, 3, padding=1, bias=False),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Dropout(0.1),
    nn.Flatten(),
    nn.Linear(24 * 16, 10),
)
epochs, batch_size = 15, 64
optimizer = SAM(
    model.parameters(), torch.optim.SGD, rho=0.05, lr=0.03, momentum=0.9, weight_decay=5e-4
)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer.base_optimizer, epochs)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

for epoch in range(epochs):
    model.train()
    losses, right = [], 0
    for idx in torch.randperm(len(x_train)).split(batch_size):
        inputs, targets = x_train[idx], y_train[idx]

        enable_running_stats(model)
        predictions = model(inputs)
        loss = criterion(predictions, targets)
        loss.backward()
        optimizer.first_step(zero_grad=True)

        disable_running_stats(model)
        criterion(model(inputs), targets).backward()
        optimizer.second_step(zero_grad=True)

        losses.append(loss.item())
        right += (predictions.argmax(1) == targets).sum().item()
    scheduler.step()

    model.eval()
    with torch.no_grad():
        out = model(x_val)
        val_loss, val_acc = (
            F.cross_entropy(out, y_val).item(),
            (out.argmax(1) == y_val).float().mean().item(),
        )
    print(
        f"epoch {epoch + 1:2d} | train loss {sum(losses) / len(losses):.4f} acc {right / len(x_train):.4f} "
        f"| val loss {val_loss:.4f} acc {val_acc:.4f} | lr {scheduler.get_last_lr()[0]:.4f}"
    )
