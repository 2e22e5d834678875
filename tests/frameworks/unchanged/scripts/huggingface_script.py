"""Trains a small classifier with Hugging Face's Trainer; nothing of Stepwatch in it."""

import logging
import tempfile

import torch
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
from transformers import PrinterCallback, Trainer, TrainingArguments, set_seed

logging.getLogger("transformers").setLevel(logging.ERROR)
torch.set_num_threads(1)
set_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(NUM_FEATURES, NUM_HIDDEN)
        self.head = nn.Linear(NUM_HIDDEN, NUM_CLASSES)

    def forward(self, features, labels):
        logits = self.head(torch.relu(self.hidden(features)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


features, labels = map(torch.from_numpy, load())
data = [{"features": row, "labels": label} for row, label in zip(features, labels, strict=True)]
with tempfile.TemporaryDirectory() as folder, timed():
    arguments = TrainingArguments(
        folder,
        disable_tqdm=True,
        learning_rate=LEARNING_RATE,
        logging_strategy="no",
        num_train_epochs=NUM_EPOCHS,
        optim="sgd",
        per_device_train_batch_size=BATCH,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
    )
    trainer = Trainer(Classifier(), arguments, train_dataset=data)
    trainer.remove_callback(PrinterCallback)  # it prints how long the training took
    result = trainer.train()
print("final loss", result.training_loss)
