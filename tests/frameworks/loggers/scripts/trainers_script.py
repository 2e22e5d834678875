"""Trains with Lightning, Hugging Face's Trainer and Keras; prints what their loggers stored."""

import json
from pathlib import Path

import keras
import lightning
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

torch.manual_seed(0)
INPUTS = torch.randn(32, 4)
TARGETS = INPUTS.sum(1, keepdim=True)


class Rows(Dataset):
    def __len__(self):
        return len(INPUTS)

    def __getitem__(self, at):
        return {"x": INPUTS[at], "labels": TARGETS[at]}


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch, _):
        loss = nn.functional.mse_loss(self.layer(batch["x"]), batch["labels"])
        self.log("of_lightning", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x, labels):
        outputs = self.layer(x)
        return {"loss": nn.functional.mse_loss(outputs, labels), "outputs": outputs}


def scalars_in(folder):
    (file,) = Path(folder).rglob("events*")
    files = EventAccumulator(str(file)).Reload()
    speed = ("runtime", "per_second")
    tags = [tag for tag in sorted(files.Tags()["scalars"]) if not tag.endswith(speed)]
    return {tag: [(event.step, event.value) for event in files.Scalars(tag)] for tag in tags}


def with_lightning():
    loggers = [TensorBoardLogger("board"), CSVLogger("csv")]
    trainer = lightning.Trainer(
        max_epochs=1, log_every_n_steps=2, logger=loggers, accelerator="cpu",
        enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(Rows(), 4))
    (table,) = Path("csv").rglob("metrics.csv")
    return [scalars_in("board"), table.read_text()]


def with_trainer():
    arguments = TrainingArguments(
        "hf", logging_steps=2, max_steps=8, report_to=["tensorboard"], save_strategy="no",
        disable_tqdm=True, per_device_train_batch_size=4, use_cpu=True, seed=0,
    )  # fmt: skip
    trainer = Trainer(Model(), arguments, train_dataset=Rows())
    trainer.train()
    return scalars_in("hf")


def with_keras():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model.fit(INPUTS.numpy(), TARGETS.numpy(), epochs=3, verbose=0).history


stored = {"lightning": with_lightning(), "trainer": with_trainer(), "keras": with_keras()}
Path("stored.json").write_text(json.dumps(stored, indent=1))
