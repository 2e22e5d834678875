"""Neural ODE on a damped spiral, with an RK4 solver of its own and back-propagation through it, in the manner of torchdiffeq's ode_demo.py."""

import argparse
import time

import torch
import torch.nn as nn
import torch.optim as optim

parser = argparse.ArgumentParser("ODE demo")
parser.add_argument("seed", type=int, nargs="?", default=0)
parser.add_argument("--data_size", type=int, default=400)
parser.add_argument("--batch_time", type=int, default=10)
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--niters", type=int, default=500)
parser.add_argument("--test_freq", type=int, default=50)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(args.seed)

true_y0 = torch.tensor([[2.0, 0.0]])
t = torch.linspace(0.0, 10.0, args.data_size)
true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])


def odeint(func, y0, t):
    """Classic Runge-Kutta of order 4 on the grid t; returns [time, ...]."""
    ys = [y0]
    for t0, t1 in zip(t[:-1], t[1:]):
        h, y = t1 - t0, ys[-1]
        k1 = func(t0, y)
        k2 = func(t0 + h / 2, y + h / 2 * k1)
        k3 = func(t0 + h / 2, y + h / 2 * k2)
        k4 = func(t1, y + h * k3)
        ys.append(y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
    return torch.stack(ys)


class Lambda(nn.Module):
    def forward(self, t, y):
        return torch.mm(y**3, true_A)


with torch.no_grad():
    true_y = odeint(Lambda(), true_y0, t)


def get_batch():
    s = torch.randperm(args.data_size - args.batch_time)[: args.batch_size]
    batch_y0 = true_y[s]  # (M, 1, D)
    batch_t = t[: args.batch_time]
    batch_y = torch.stack([true_y[s + i] for i in range(args.batch_time)], dim=0)
    return batch_y0[:, 0], batch_t, batch_y[:, :, 0]


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


class RunningAverageMeter:
    def __init__(self, momentum=0.97):
        self.momentum, self.avg = momentum, None

    def update(self, val):
        self.avg = val if self.avg is None else self.avg * self.momentum + val * (1 - self.momentum)


if __name__ == "__main__":
    func = ODEFunc()
    optimizer = optim.RMSprop(func.parameters(), lr=1e-3)
    end = time.time()
    loss_meter = RunningAverageMeter()
    for itr in range(1, args.niters + 1):
        optimizer.zero_grad()
        batch_y0, batch_t, batch_y = get_batch()
        pred_y = odeint(func, batch_y0, batch_t)
        loss = torch.mean(torch.abs(pred_y - batch_y))
        loss.backward()
        optimizer.step()
        loss_meter.update(loss.item())
        if itr % args.test_freq == 0:
            with torch.no_grad():
                pred_y = odeint(func, true_y0, t)
                total = torch.mean(torch.abs(pred_y - true_y))
            print(
                f"Iter {itr:04d} | Total Loss {total.item():.6f} | batch loss {loss_meter.avg:.6f} | {time.time() - end:.1f} s"
            )
