"""Wasserstein GAN of fully connected layers with weight clipping on handwritten digits, in the manner of the many "PyTorch-GAN" repositories."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader

torch.set_num_threads(1)

parser = argparse.ArgumentParser()
parser.add_argument("seed", type=int, nargs="?", default=0)
parser.add_argument("--n_epochs", type=int, default=200)
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--latent_dim", type=int, default=16)
parser.add_argument(
    "--n_critic", type=int, default=3, help="updates of the critic for each one of the generator"
)
parser.add_argument(
    "--clip_value",
    type=float,
    default=0.04,
    help="lower and upper clip value for weights of the critic",
)
opt = parser.parse_args()
print(opt)
torch.manual_seed(opt.seed)

images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
images = images[torch.randperm(len(images))]
train_set, held_out = images[:1536], images[1536:]
dataloader = DataLoader(train_set, batch_size=opt.batch_size, shuffle=True)


def block(in_feat, out_feat, normalize=True):
    layers = [nn.Linear(in_feat, out_feat)]
    if normalize:
        layers.append(nn.BatchNorm1d(out_feat))
    layers.append(nn.LeakyReLU(0.2, inplace=True))
    return layers


generator = nn.Sequential(
    *block(opt.latent_dim, 64, normalize=False),
    *block(64, 128),
    nn.Linear(128, 64),
    nn.Tanh(),
)
discriminator = nn.Sequential(
    nn.Linear(64, 128),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Linear(128, 64),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Linear(64, 1),
)
optimizer_G = optim.RMSprop(generator.parameters(), lr=opt.lr)
optimizer_D = optim.RMSprop(discriminator.parameters(), lr=opt.lr)
fixed_z = torch.randn(500, opt.latent_dim)

batches_done = 0
for epoch in range(opt.n_epochs):
    for real_imgs in dataloader:
        optimizer_D.zero_grad()
        z = torch.randn(real_imgs.size(0), opt.latent_dim)
        fake_imgs = generator(z).detach()
        loss_D = -torch.mean(discriminator(real_imgs)) + torch.mean(discriminator(fake_imgs))
        loss_D.backward()
        optimizer_D.step()
        for p in discriminator.parameters():
            p.data.clamp_(-opt.clip_value, opt.clip_value)

        # Train the generator every n_critic iterations
        if batches_done % opt.n_critic == 0:
            optimizer_G.zero_grad()
            loss_G = -torch.mean(discriminator(generator(z)))
            loss_G.backward()
            optimizer_G.step()
        batches_done += 1

    if epoch % 10 == 9:
        generator.eval()
        with torch.no_grad():
            made = generator(fixed_z)
            distance = torch.cdist(held_out, made).min(dim=1).values.mean()
        generator.train()
        print(
            f"[Epoch {epoch + 1}/{opt.n_epochs}] [D loss: {loss_D.item():.4f}] [G loss: {loss_G.item():.4f}] "
            f"spread {made.std(0).mean():.3f} of {held_out.std(0).mean():.3f} distance {distance:.3f}"
        )
