"""Rectified flow on two moons: regress the straight-line velocity, sample with Euler steps, in the manner of Meta's flow_matching examples."""

import sys

import torch
from sklearn.datasets import make_moons
from torch import Tensor, nn

torch.set_num_threads(1)


class Swish(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) * x


class Flow(nn.Module):
    def __init__(self, dim: int = 2, h: int = 96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim + 1, h),
            Swish(),
            nn.Linear(h, h),
            Swish(),
            nn.Linear(h, h),
            Swish(),
            nn.Linear(h, dim),
        )

    def forward(self, t: Tensor, x_t: Tensor) -> Tensor:
        return self.net(torch.cat((t, x_t), -1))

    def step(self, x_t: Tensor, t_start: float, t_end: float) -> Tensor:
        """One midpoint step of the sampler."""
        h = t_end - t_start
        ones = torch.ones(x_t.shape[0], 1)
        mid = x_t + self(ones * t_start, x_t) * h / 2
        return x_t + h * self(ones * (t_start + h / 2), mid)


@torch.no_grad()
def sample(flow: Flow, n: int, steps: int = 10) -> Tensor:
    x = torch.randn(n, 2)
    ts = torch.linspace(0, 1, steps + 1).tolist()
    for a, b in zip(ts[:-1], ts[1:]):
        x = flow.step(x, a, b)
    return x


def energy_distance(x: Tensor, y: Tensor) -> float:
    """0 where the two samples are of the same distribution."""
    return (
        2 * torch.cdist(x, y).mean() - torch.cdist(x, x).mean() - torch.cdist(y, y).mean()
    ).item()


def main(seed: int) -> None:
    torch.manual_seed(seed)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), 2e-3)
    ema = torch.optim.swa_utils.AveragedModel(
        flow, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2500)
    reference = torch.tensor(
        make_moons(1000, noise=0.05, random_state=seed + 10_000)[0], dtype=torch.float32
    )
    print("noise", energy_distance(torch.randn(1000, 2), reference))
    for i in range(2500):
        x_1 = torch.tensor(
            make_moons(256, noise=0.05, random_state=seed + i)[0], dtype=torch.float32
        )
        x_0 = torch.randn_like(x_1)
        t = torch.rand(len(x_1), 1)
        x_t = (1 - t) * x_0 + t * x_1
        dx_t = x_1 - x_0
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(flow(t, x_t), dx_t)
        loss.backward()
        optimizer.step()
        scheduler.step()
        ema.update_parameters(flow)
        if (i + 1) % 250 == 0:
            d = energy_distance(sample(ema.module, 1000), reference)
            print(f"| iter {i + 1:5d} | loss {loss.item():.3f} | energy distance {d:.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
