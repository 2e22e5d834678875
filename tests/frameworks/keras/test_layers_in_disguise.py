"""Activations that Keras models have once too often, behind layers that change no values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from hook_layer.keras import KerasHook, SaveConfig
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.registry import create_rule

from .test_rules import views_of

ROWS = np.random.default_rng(0).normal(size=(480, 8)).astype(np.float32)
CLASSES = ROWS[:, :4].argmax(1)
BITS = (ROWS[:, :1] > 0).astype(np.float32)
TWICE = {"DoubleActivation", "OutputContract"}


class Subclassed(keras.Model):
    def __init__(self, own: list[Any]) -> None:
        super().__init__()
        self.own = own

    def call(self, x: Any) -> Any:
        for layer in self.own:
            x = layer(x)
        return x


def functional(own: list[Any]) -> Any:
    given = x = keras.Input((8,))
    for layer in own:
        x = layer(x)
    return keras.Model(given, x)


STYLES: dict[str, Callable[[list[Any]], Any]] = {
    "sequential": lambda own: keras.Sequential([keras.Input((8,)), *own]),
    "functional": functional,
    "subclassed": Subclassed,
}


def found(folder: Path, style: str, own: list[Any], loss: Any, labels: Any = CLASSES) -> set[str]:
    """Train a model; return the names of the rules that find something."""
    keras.utils.set_random_seed(0)
    model = STYLES[style](own)
    model.compile(keras.optimizers.SGD(0.05), loss)
    hook = KerasHook(
        folder / "run",
        save_config=SaveConfig(save_interval=1),
        include_collections=["weights", "losses", "loss_inputs", "layers"],
    )
    model.fit(ROWS, labels, batch_size=32, epochs=2, verbose=0, callbacks=[hook])
    hook.close()
    rules = {name: Evaluation.fresh(create_rule(name, {})) for name in TWICE}
    for view in views_of(folder / "run"):
        for evaluation in rules.values():
            evaluation.feed(view)
    return {name for name, evaluation in rules.items() if evaluation.evidence}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("from_logits", [True, False])
def test_a_softmax_counts_with_the_loss(style: str, from_logits: bool, tmp_path: Path) -> None:
    own = [layers.Dense(16, "relu"), layers.Dropout(0.2), layers.Dense(4), layers.Softmax()]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
    own.append(layers.Reshape((4,)))
    assert bool(found(tmp_path, style, own, loss)) is from_logits


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("from_logits", [True, False])
def test_a_sigmoid_counts_with_the_loss(style: str, from_logits: bool, tmp_path: Path) -> None:
    own = [layers.Dense(16, "relu"), layers.Dropout(0.1), layers.Dense(1)]
    own += [layers.BatchNormalization(), layers.Activation("sigmoid")]
    loss = keras.losses.BinaryCrossentropy(from_logits=from_logits)
    assert found(tmp_path, style, own, loss, BITS) == (TWICE if from_logits else set())


def test_healthy_logits(tmp_path: Path) -> None:
    own = [layers.Dense(16), layers.BatchNormalization(), layers.Dropout(0.2), layers.ReLU()]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert not found(tmp_path, "sequential", [*own, layers.Dense(4)], loss)
