"""Autoencoder for handwritten digits, in the manner of Lightning's "in 15 minutes" page, with a validation loop added."""

import sys
import tempfile

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn, optim, utils

torch.set_num_threads(1)
L.seed_everything(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

# define any number of nn.Modules (or use your current ones)
encoder = nn.Sequential(nn.Linear(8 * 8, 64), nn.ReLU(), nn.Linear(64, 8))
decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8 * 8))


# define the LightningModule
class LitAutoEncoder(L.LightningModule):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def training_step(self, batch, batch_idx):
        (x,) = batch
        x = x.view(x.size(0), -1)
        z = self.encoder(x)
        x_hat = self.decoder(z)
        loss = nn.functional.mse_loss(x_hat, x)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        x = x.view(x.size(0), -1)
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(x)), x))

    def configure_optimizers(self):
        return optim.Adam(self.parameters(), lr=1e-3)


autoencoder = LitAutoEncoder(encoder, decoder)

images = torch.tensor(load_digits().images, dtype=torch.float32) / 16
dataset = utils.data.TensorDataset(images)
train_set, valid_set = utils.data.random_split(dataset, [1500, 297])
train_loader = utils.data.DataLoader(train_set, batch_size=32, shuffle=True)
valid_loader = utils.data.DataLoader(valid_set, batch_size=100)

trainer = L.Trainer(
    max_epochs=20,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    default_root_dir=tempfile.gettempdir(),
)
trainer.fit(autoencoder, train_loader, valid_loader)

print("variance of pixels", float((images - images.mean(0)).pow(2).mean()))
print("val_loss", float(trainer.callback_metrics["val_loss"]))
