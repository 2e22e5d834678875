"""LightningModule with two validation loaders (clean and noisy digits), a scheduler on the clean loss and callbacks, in the manner of Lightning's documentation."""

import logging
import sys
import tempfile
import warnings

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
torch.set_num_threads(1)


class Digits(pl.LightningDataModule):
    names = ("clean", "noisy")

    def prepare_data(self):
        load_digits()

    def setup(self, stage):
        x, y = load_digits(return_X_y=True)
        x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
        x, y = x[order], y[order]
        self.train = TensorDataset(x[:1300], y[:1300])
        noise = torch.randn(497, 64, generator=torch.Generator().manual_seed(2)) * 0.2
        self.clean, self.noisy = (
            TensorDataset(x[1300:], y[1300:]),
            TensorDataset(x[1300:] + noise, y[1300:]),
        )

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=32, shuffle=True)

    def val_dataloader(self):
        return [DataLoader(self.clean, batch_size=128), DataLoader(self.noisy, batch_size=128)]


class Classifier(pl.LightningModule):
    def __init__(self, hidden: int = 128, dropout: float = 0.2, lr: float = 1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(64, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, 10),
        )
        self.loss = nn.CrossEntropyLoss()
        self.val_acc = nn.ModuleList(
            [MulticlassAccuracy(10, average="micro") for _ in Digits.names]
        )

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self(x), y)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        x, y = batch
        logits = self(x)
        name = Digits.names[dataloader_idx]
        self.val_acc[dataloader_idx](logits, y)
        self.log(f"{name}_loss", self.loss(logits, y), add_dataloader_idx=False)
        self.log(f"{name}_acc", self.val_acc[dataloader_idx], add_dataloader_idx=False)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=2)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "monitor": "clean_loss"},
        }


class PrintMetrics(pl.Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        row = " ".join(f"{k}={v:.4f}" for k, v in sorted(trainer.callback_metrics.items()))
        print(f"epoch {trainer.current_epoch}: {row}")


def main():
    pl.seed_everything(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = ModelCheckpoint(folder, monitor="clean_acc", mode="max", save_top_k=1)
        trainer = pl.Trainer(
            max_epochs=25,
            accelerator="cpu",
            gradient_clip_val=1.0,
            callbacks=[PrintMetrics(), EarlyStopping("clean_loss", patience=6), checkpoint],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        data = Digits()
        trainer.fit(Classifier(), datamodule=data)
        best = Classifier.load_from_checkpoint(checkpoint.best_model_path)
        print(trainer.validate(best, datamodule=data, verbose=False))


if __name__ == "__main__":
    main()
