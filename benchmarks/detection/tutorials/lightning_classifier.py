"""Multi-layer perceptron on handwritten digits with a validation loop and checkpoints, in the manner of Lightning's starter examples."""

import sys
import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchmetrics.classification import MulticlassAccuracy

torch.set_num_threads(1)


class DigitsDataModule(L.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        x, y = load_digits(return_X_y=True)
        full = TensorDataset(torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y))
        self.train, self.val, self.test = random_split(full, [0.7, 0.15, 0.15])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=256)

    def test_dataloader(self):
        return DataLoader(self.test, batch_size=256)


class LitClassifier(L.LightningModule):
    def __init__(self, hidden_dim=128, learning_rate=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(64, hidden_dim), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(hidden_dim, hidden_dim), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(hidden_dim, 10),
        )  # fmt: skip
        self.val_acc = MulticlassAccuracy(10)
        self.test_acc = MulticlassAccuracy(10)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.val_acc(logits, y)
        self.log("val_loss", F.cross_entropy(logits, y), prog_bar=True)
        self.log("val_acc", self.val_acc, prog_bar=True)

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.test_acc(self(x), y)
        self.log("test_acc", self.test_acc)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.learning_rate)


def main():
    L.seed_everything(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=20,
            accelerator="cpu",
            logger=False,
            default_root_dir=folder,
            enable_progress_bar=False,
            callbacks=[
                EarlyStopping("val_loss", patience=5),
                ModelCheckpoint(dirpath=folder, monitor="val_acc", mode="max"),
            ],
        )
        dm = DigitsDataModule()
        model = LitClassifier()
        trainer.fit(model, dm)
        trainer.test(model, dm, ckpt_path="best")
        print("val_acc", float(trainer.callback_metrics["test_acc"]))


if __name__ == "__main__":
    main()
