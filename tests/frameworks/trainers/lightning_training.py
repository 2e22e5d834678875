"""Small trainings with Lightning."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.testing.written_trial import WrittenTrial

__all__ = ["Functional", "Lit", "Manual", "ask_to_stop", "batches", "digest", "trainer"]

warnings.filterwarnings("ignore", message=".*LeafSpec|.*num_workers|.*logging interval|.*val loop")


class Lit(LightningModule):
    """Has its loss as a module, and logs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        self.criterion = nn.CrossEntropyLoss()

    def loss(self, batch: Any) -> Any:
        return self.criterion(self.net(batch[0]), batch[1])

    def training_step(self, batch: Any, _: int) -> Any:
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, _: int) -> Any:
        loss = self.loss(batch)
        self.log("val_loss", loss)
        return {"loss": loss, "size": len(batch[0])}

    test_step = validation_step

    def predict_step(self, batch: Any, _: int) -> Any:
        return self.net(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 0.01)


class Functional(Lit):
    """Calls itself, and has no module for its loss."""

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.net(inputs)

    def loss(self, batch: Any) -> Any:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])


class Manual(LightningModule):
    """Steps two optimisers itself."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

    def training_step(self, batch: Any, _: int) -> None:
        for part, optimizer in zip((self.first, self.second), self.optimizers(), strict=True):
            loss = nn.functional.cross_entropy(part(batch[0]), batch[1])
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), 0.1) for part in (self.first, self.second)]


def batches(num: int, seed: int = 1) -> Any:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num * 5, 4, generator=generator)
    labels = torch.randint(3, (num * 5,), generator=generator)
    return DataLoader(TensorDataset(inputs, labels), 5)


def trainer(*callbacks: Any, **arguments: Any) -> Any:
    return Trainer(
        callbacks=list(callbacks),
        **{
            "max_epochs": 1,
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_model_summary": False,
            "enable_progress_bar": False,
            **arguments,
        },
    )


def digest(model: nn.Module) -> str:
    state = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return hashlib.sha256(state).hexdigest()


def ask_to_stop(hook: Any, trial: WrittenTrial) -> None:
    hook.flush()
    request = StopFile("the loss grows", "2026-01-01T00:00:00Z", trial.job().run_id)
    trial.store.put(STOP_FILE, request.encode())
    hook.session.trial.stop_signal.check()
