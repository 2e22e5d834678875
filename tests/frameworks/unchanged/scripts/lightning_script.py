"""Trains a small classifier with PyTorch Lightning; nothing of Stepwatch in it."""

import logging
import warnings

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from small_task import (
    BATCH,
    LEARNING_RATE,
    NUM_CLASSES,
    NUM_EPOCHS,
    NUM_FEATURES,
    NUM_HIDDEN,
    load,
    timed,
)
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)
seed_everything(0, verbose=False)


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(NUM_FEATURES, NUM_HIDDEN)
        self.head = nn.Linear(NUM_HIDDEN, NUM_CLASSES)

    def training_step(self, batch):
        features, labels = batch
        outputs = self.head(torch.relu(self.hidden(features)))
        self.last_loss = nn.functional.cross_entropy(outputs, labels)
        return self.last_loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), LEARNING_RATE)


features, labels = map(torch.from_numpy, load())
model = Classifier()
trainer = Trainer(
    accelerator="cpu",
    enable_checkpointing=False,
    enable_model_summary=False,
    enable_progress_bar=False,
    logger=False,
    max_epochs=NUM_EPOCHS,
)
with timed():
    trainer.fit(model, DataLoader(TensorDataset(features, labels), BATCH))
print("final loss", model.last_loss.item())
