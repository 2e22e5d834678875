"""The contract of hooks, kept by the callback for Hugging Face's Trainer."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import stepwatch.huggingface
from hook_layer.core.hook import BaseHook
from hook_layer.huggingface import StepwatchCallback
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
logging.getLogger("transformers").setLevel(logging.ERROR)

TINY = BertConfig(
    vocab_size=30,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=8,
    max_position_embeddings=8,
)
MODEL = "BertForSequenceClassification"


class Script(TrainerCallback):
    def __init__(self, on_step: OnStep) -> None:
        self.on_step = on_step

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        self.on_step(state.global_step - 1)


class KeptLosses(Trainer):
    def training_step(self, *args: Any, **keywords: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*args, **keywords)
        self.losses = [*getattr(self, "losses", ()), loss.item()]
        return loss


class HuggingFaceTraining(TrainingUnderTest):
    adapter = "Hugging Face"
    hook_type = Hook
    loss_name = "Loss_output_0"
    names = {
        "losses": f"{MODEL}_loss_output_0",
        "weights": f"{MODEL}_classifier.weight",
        "biases": f"{MODEL}_classifier.bias",
        "gradients": f"gradient/{MODEL}_bert.pooler.dense.weight",
    }
    spread_ddof = 1
    more_names = ("classifier_input_0", "bert.pooler.dense_output_0")
    stop_raises = False

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

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
        model = BertForSequenceClassification(TINY)
        data = [
            {"input_ids": torch.randint(0, 30, (6,)), "labels": torch.tensor(i % 2)}
            for i in range(4 * steps)
        ]
        callbacks: list[Any] = [Script(on_step)]
        if hook is not None:
            assert isinstance(hook, Hook)
            callbacks.append(StepwatchCallback(hook=hook))
        arguments = TrainingArguments(
            str(self.folder / "output"),
            max_steps=steps,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            learning_rate=0.01,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = KeptLosses(model, arguments, train_dataset=data, callbacks=callbacks)
        trainer.train()
        if evaluations:
            trainer.evaluate(data[: 4 * evaluations])
        return Trained(digest_of(p.detach() for p in model.parameters()), tuple(trainer.losses))


class TestHuggingFace(HuggingFaceTraining, HookContract):
    """The contract of hooks."""


class TestFactsOfHuggingFace(HuggingFaceTraining, FactContract):
    """The facts that rules know."""

    missing_facts = {"sample weights": "PyTorch's losses take none; scripts multiply by them"}


class TestDefaultCallbackOfHuggingFace(HuggingFaceTraining, DefaultHookContract):
    """What `stepwatch.huggingface.StepwatchCallback` saves."""

    default_type = stepwatch.huggingface.StepwatchCallback
