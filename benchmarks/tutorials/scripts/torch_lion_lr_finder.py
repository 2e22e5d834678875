"""Learning-rate range test, then training with a hand-written Lion at a tenth of the rate found, on the Friedman regression, in the manner of lucidrains' lion-pytorch and fastai's lr_find."""

import copy
import sys

import numpy as np
import torch
from sklearn.datasets import make_friedman1
from torch import nn

torch.set_num_threads(1)
SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(SEED)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                exp_avg = state["exp_avg"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = (exp_avg * beta1 + p.grad * (1 - beta1)).sign_()
                p.add_(update, alpha=-group["lr"])
                exp_avg.mul_(beta2).add_(p.grad, alpha=1 - beta2)
        return loss


X, y = make_friedman1(2500, n_features=10, noise=0.5, random_state=SEED)
X = torch.tensor((X - 0.5) / 0.29, dtype=torch.float32)
y = torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32)[:, None]
X_train, y_train, X_val, y_val = X[:2000], y[:2000], X[2000:], y[2000:]
model = nn.Sequential(
    nn.Linear(10, 64), nn.SiLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
)
loss_fn = nn.MSELoss()


def lr_find(model, start=1e-6, end=0.3, steps=100, batch=64):
    """Raises the rate exponentially on a copy and returns the rate of the steepest descent."""
    net = copy.deepcopy(model)
    opt = Lion(net.parameters(), lr=start)
    lrs, losses, smooth = np.geomspace(start, end, steps), [], 0.0
    for i, lr in enumerate(lrs):
        opt.param_groups[0]["lr"] = lr
        idx = torch.randint(0, len(X_train), (batch,))
        opt.zero_grad()
        loss = loss_fn(net(X_train[idx]), y_train[idx])
        smooth = 0.9 * smooth + 0.1 * loss.item()
        losses.append(smooth / (1 - 0.9 ** (i + 1)))
        if losses[-1] > 4 * min(losses):
            break
        loss.backward()
        opt.step()
    slope = np.gradient(np.array(losses))
    best = int(np.argmin(slope[10:])) + 10
    print(
        f"lr finder: {len(losses)} steps, steepest at {lrs[best]:.2e}, lowest at {lrs[int(np.argmin(losses))]:.2e}"
    )
    return float(lrs[int(np.argmin(losses))]) / 10


lr = min(lr_find(model), 3e-3)
optimizer = Lion(model.parameters(), lr=lr, weight_decay=0.05)
epochs, batch_size = 20, 64
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
    optimizer, epochs * -(-len(X_train) // batch_size)
)
for epoch in range(epochs):
    model.train()
    for idx in torch.randperm(len(X_train)).split(batch_size):
        optimizer.zero_grad()
        loss = loss_fn(model(X_train[idx]), y_train[idx])
        loss.backward()
        optimizer.step()
        scheduler.step()
    model.eval()
    with torch.no_grad():
        train_mse, val_mse = (
            loss_fn(model(X_train), y_train).item(),
            loss_fn(model(X_val), y_val).item(),
        )
    print(
        f"epoch {epoch:2d} train mse {train_mse:.4f} val mse {val_mse:.4f} r2 {1 - val_mse / y_val.var().item():.4f}"
    )
