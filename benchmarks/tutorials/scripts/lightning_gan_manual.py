"""Trains a GAN on scikit-learn's digits with LightningModule and manual optimisation, in the manner of Lightning's basic GAN tutorial."""

import logging
import sys
import tempfile
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)
L.seed_everything(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


class DigitsDataModule(L.LightningDataModule):
    def __init__(self, batch_size=64):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        images, _ = load_digits(return_X_y=True)
        images = torch.tensor(images, dtype=torch.float32) / 8 - 1
        self.train, self.val = TensorDataset(images[:1500]), TensorDataset(images[1500:])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=297)


class Generator(nn.Module):
    def __init__(self, latent_dim):
        super().__init__()

        def block(i, o, normalize=True):
            layers = [nn.Linear(i, o)]
            if normalize:
                layers.append(nn.BatchNorm1d(o))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(
            *block(latent_dim, 64, normalize=False), *block(64, 128), nn.Linear(128, 64), nn.Tanh()
        )

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(64, 128),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Dropout(0.3),
            nn.Linear(128, 64),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Dropout(0.3),
            nn.Linear(64, 1),
        )

    def forward(self, img):
        return self.model(img)


class GAN(L.LightningModule):
    def __init__(self, latent_dim=32, lr=2e-4, b1=0.5, b2=0.999):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator, self.discriminator = Generator(latent_dim), Discriminator()

    def forward(self, z):
        return self.generator(z)

    def adversarial_loss(self, y_hat, y):
        return F.binary_cross_entropy_with_logits(y_hat, y)

    def training_step(self, batch):
        (imgs,) = batch
        optimizer_g, optimizer_d = self.optimizers()
        z = torch.randn(imgs.shape[0], self.hparams.latent_dim).type_as(imgs)
        valid = torch.ones(imgs.size(0), 1).type_as(imgs)
        fake = torch.zeros(imgs.size(0), 1).type_as(imgs)

        self.toggle_optimizer(optimizer_g)
        g_loss = self.adversarial_loss(self.discriminator(self(z)), valid)
        self.log("g_loss", g_loss, prog_bar=True)
        self.manual_backward(g_loss)
        optimizer_g.step()
        optimizer_g.zero_grad()
        self.untoggle_optimizer(optimizer_g)

        self.toggle_optimizer(optimizer_d)
        real_loss = self.adversarial_loss(self.discriminator(imgs), valid * 0.9)
        fake_loss = self.adversarial_loss(self.discriminator(self(z).detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        self.log("d_loss", d_loss, prog_bar=True)
        self.manual_backward(d_loss)
        optimizer_d.step()
        optimizer_d.zero_grad()
        self.untoggle_optimizer(optimizer_d)

    def validation_step(self, batch):
        """Mean distance of samples to their nearest real digit, and of real digits to samples."""
        (imgs,) = batch
        dist = torch.cdist(self(torch.randn(297, self.hparams.latent_dim)), imgs)
        self.log("precision_dist", dist.min(1).values.mean())
        self.log("recall_dist", dist.min(0).values.mean())

    def on_validation_epoch_end(self):
        m = self.trainer.callback_metrics
        if self.current_epoch % 5 == 4:
            print(self.current_epoch, {k: round(v.item(), 4) for k, v in m.items()})

    def configure_optimizers(self):
        b1, b2, lr = self.hparams.b1, self.hparams.b2, self.hparams.lr
        return (
            torch.optim.Adam(self.generator.parameters(), lr=lr, betas=(b1, b2)),
            torch.optim.Adam(self.discriminator.parameters(), lr=lr, betas=(b1, b2)),
        )


with tempfile.TemporaryDirectory() as folder:
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=60,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(GAN(), DigitsDataModule())
