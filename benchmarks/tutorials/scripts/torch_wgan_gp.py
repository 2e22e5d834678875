"""Trains a WGAN with gradient penalty on the eight Gaussians, in the manner of caogang's wgan-gp and PyTorch-GAN."""

import argparse
import math

import torch
import torch.autograd as autograd
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("seed", nargs="?", type=int, default=0)
parser.add_argument("--n_iters", type=int, default=500)
parser.add_argument("--n_critic", type=int, default=5)
parser.add_argument("--lambda_gp", type=float, default=0.1)
parser.add_argument("--lr", type=float, default=5e-4)
parser.add_argument("--batch_size", type=int, default=256)
parser.add_argument("--dim", type=int, default=128)
opt = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(opt.seed)

angles = torch.arange(8) * math.pi / 4
CENTRES = torch.stack([angles.cos(), angles.sin()], 1) * 2 / 1.414


def inf_train_gen():
    while True:
        centre = CENTRES[torch.randint(0, 8, (opt.batch_size,))]
        yield centre + 0.05 * torch.randn(opt.batch_size, 2)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(2, opt.dim),
            nn.ReLU(True),
            nn.Linear(opt.dim, opt.dim),
            nn.ReLU(True),
            nn.Linear(opt.dim, opt.dim),
            nn.ReLU(True),
            nn.Linear(opt.dim, 2),
        )

    def forward(self, noise):
        return self.main(noise)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(2, opt.dim),
            nn.ReLU(True),
            nn.Linear(opt.dim, opt.dim),
            nn.ReLU(True),
            nn.Linear(opt.dim, opt.dim),
            nn.ReLU(True),
            nn.Linear(opt.dim, 1),
        )

    def forward(self, x):
        return self.main(x).view(-1)


def calc_gradient_penalty(netD, real, fake):
    alpha = torch.rand(real.size(0), 1).expand_as(real)
    interpolates = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    out = netD(interpolates)
    gradients = autograd.grad(
        out, interpolates, grad_outputs=torch.ones_like(out), create_graph=True, retain_graph=True
    )[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean() * opt.lambda_gp


@torch.no_grad()
def quality(netG):
    """Share of samples near a centre, and how many centres have samples."""
    netG.eval()
    dist, nearest = torch.cdist(netG(torch.randn(2000, 2)), CENTRES).min(1)
    netG.train()
    counts = torch.bincount(nearest[dist < 0.3], minlength=8)
    return (dist < 0.3).float().mean().item(), (counts > 50).sum().item()


netG, netD = Generator(), Critic()
optimizerD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(0.5, 0.9))
optimizerG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(0.5, 0.9))
data = inf_train_gen()

for iteration in range(opt.n_iters):
    for p in netD.parameters():
        p.requires_grad = True
    for _ in range(opt.n_critic):
        real = next(data)
        with torch.no_grad():
            fake = netG(torch.randn(opt.batch_size, 2))
        optimizerD.zero_grad()
        penalty = calc_gradient_penalty(netD, real, fake)
        d_real, d_fake = netD(real).mean(), netD(fake).mean()
        d_cost = d_fake - d_real + penalty
        d_cost.backward()
        optimizerD.step()

    for p in netD.parameters():
        p.requires_grad = False  # to avoid computation
    optimizerG.zero_grad()
    g_cost = -netD(netG(torch.randn(opt.batch_size, 2))).mean()
    g_cost.backward()
    optimizerG.step()

    if iteration % 50 == 49:
        share, modes = quality(netG)
        print(
            f"iter {iteration + 1} wasserstein {(d_real - d_fake).item():.4f} gp {penalty.item():.4f} "
            f"good samples {share:.3f} modes {modes}"
        )
