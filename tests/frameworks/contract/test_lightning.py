"""The contract of hooks, kept by the callback for Lightning."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import stepwatch.lightning
from hook_layer.core.hook import BaseHook
from hook_layer.lightning import StepwatchCallback
from hook_layer.pytorch import Hook
from hook_layer.testing.hook_contract import (
    HookContract,
    OnStep,
    Trained,
    TrainingUnderTest,
    digest_of,
    nothing,
)
from rule_runtime.testing.fact_contract import FactContract
from tests.frameworks.default_hooks import DefaultHookContract

torch.set_num_threads(1)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", message=".*many workers|.*num_workers|.*logging interval")


class Net(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 8)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(8, 3)
        self.criterion = nn.CrossEntropyLoss()
        self.losses: list[float] = []

    def loss(self, batch: Any) -> Any:
        inputs, labels = batch
        return self.criterion(self.head(self.dropout(torch.relu(self.hidden(inputs)))), labels)

    def training_step(self, batch: Any, _: int) -> Any:
        loss = self.loss(batch)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: Any, _: int) -> Any:
        return self.loss(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 0.05)


class Script(Callback):
    def __init__(self, on_step: OnStep) -> None:
        self.on_step = on_step

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.on_step(trainer.global_step - 1)


class LightningTraining(TrainingUnderTest):
    adapter = "Lightning"
    hook_type = Hook
    loss_name = "Loss_output_0"
    names = {
        "losses": "CrossEntropyLoss_output_0",
        "weights": "Net_hidden.weight",
        "biases": "Net_hidden.bias",
        "gradients": "gradient/Net_head.weight",
    }
    spread_ddof = 1
    more_names = ("hidden_input_0", "hidden_output_0", "CrossEntropyLoss_input_1")
    stop_raises = False

    def make_hook(self, out_dir: str, **arguments: Any) -> BaseHook:
        return StepwatchCallback(out_dir, **arguments).hook

    def train(
        self,
        hook: BaseHook | None,
        *,
        steps: int,
        evaluations: int = 0,
        on_step: OnStep = nothing,
    ) -> Trained:
        torch.manual_seed(0)
        model = Net()
        data = TensorDataset(torch.randn(5 * steps, 6), torch.randint(3, (5 * steps,)))
        callbacks: list[Any] = [Script(on_step)]
        if hook is not None:
            assert isinstance(hook, Hook)
            callbacks.append(StepwatchCallback(hook=hook))
        trainer = Trainer(
            max_epochs=1,
            callbacks=callbacks,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
        trainer.fit(model, DataLoader(data, 5))
        if evaluations:
            trainer.validate(
                model, DataLoader(TensorDataset(*data[: 5 * evaluations]), 5), verbose=False
            )
        return Trained(digest_of(p.detach() for p in model.parameters()), tuple(model.losses))


class TestLightning(LightningTraining, HookContract):
    """The contract of hooks."""


class TestFactsOfLightning(LightningTraining, FactContract):
    """The facts that rules know."""

    missing_facts = {
        "norms of gradients before and after clipping": (
            "Lightning computes and clips gradients within the optimizer's step"
        ),
        "sample weights": "PyTorch's losses take none; scripts multiply by them",
    }


class TestDefaultCallbackOfLightning(LightningTraining, DefaultHookContract):
    """What `stepwatch.lightning.StepwatchCallback` saves."""

    default_type = stepwatch.lightning.StepwatchCallback
