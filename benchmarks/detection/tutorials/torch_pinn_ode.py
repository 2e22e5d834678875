"""Physics-informed network for a damped oscillator: loss of the equation plus the initial conditions, in the manner of PINN introductions."""

import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

# u'' + 2 d u' + w0^2 u = 0, u(0) = 1, u'(0) = 0, for t from 0 to 2
d, w0 = 1.0, 5.0


def exact(t):
    w = math.sqrt(w0**2 - d**2)
    phi = math.atan(-d / w)
    return torch.exp(-d * t) * torch.cos(phi + w * t) / math.cos(phi)


class FCN(nn.Module):
    def __init__(self, n_hidden=32, n_layers=3):
        super().__init__()
        layers = [nn.Linear(1, n_hidden), nn.Tanh()]
        for _ in range(n_layers - 1):
            layers += [nn.Linear(n_hidden, n_hidden), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(n_hidden, 1))

    def forward(self, t):
        return self.net(t - 1.0)


pinn = FCN()
optimiser = torch.optim.Adam(pinn.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimiser, gamma=0.9993)
t_boundary = torch.zeros(1, 1, requires_grad=True)
t_test = torch.linspace(0, 2, 200).view(-1, 1)

for i in range(4001):
    optimiser.zero_grad()

    # loss of the initial conditions
    u = pinn(t_boundary)
    loss1 = (u - 1.0).square().squeeze()
    dudt = torch.autograd.grad(u, t_boundary, torch.ones_like(u), create_graph=True)[0]
    loss2 = dudt.square().squeeze()

    # loss of the equation at random points
    t_physics = (2 * torch.rand(64, 1)).requires_grad_(True)
    u = pinn(t_physics)
    dudt = torch.autograd.grad(u, t_physics, torch.ones_like(u), create_graph=True)[0]
    d2udt2 = torch.autograd.grad(dudt, t_physics, torch.ones_like(dudt), create_graph=True)[0]
    loss3 = torch.mean((d2udt2 + 2 * d * dudt + w0**2 * u) ** 2)

    loss = loss1 + 1e-1 * loss2 + 2e-3 * loss3
    loss.backward()
    optimiser.step()
    scheduler.step()
    if i % 500 == 0:
        with torch.no_grad():
            error = (pinn(t_test) - exact(t_test)).square().mean().sqrt()
        print(
            f"{i}: boundary {loss1.item():.2e} {loss2.item():.2e} physics {loss3.item():.2e} rms error {error.item():.4f}"
        )
