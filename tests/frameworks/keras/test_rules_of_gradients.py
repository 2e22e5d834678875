"""Rules find the gradient of each weight, whatever its layer is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from hook_layer.keras import KerasHook, SaveConfig
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.rule import Rule
from rule_runtime.facts.gradient_names import parameters_of
from rule_runtime.rules.dead_optimizer import DeadOptimizer
from rule_runtime.rules.missing_gradient import MissingGradient
from rule_runtime.rules.training_loop import TrainingLoop
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.rules.weight_update_ratio import UnchangedTensor
from tests.frameworks.stored_views import views_of

BATCH, FEATURES = 16, 8


def encoder(name: str) -> Any:
    """Return a part of a model, whose layers are called as those of its other parts."""
    layers = [
        keras.layers.Dense(FEATURES, name="dense"),
        keras.layers.BatchNormalization(name="normed"),
        keras.layers.Dense(4, activation="tanh", name="dense_1"),
    ]
    return keras.Sequential([keras.Input((FEATURES,)), *layers], name=name)


def train(
    folder: Path, optimizer: Any, *, num_steps: int, frozen: bool = False, interval: int = 10
) -> Path:
    """Train two encoders, of which one may be frozen, and a head."""
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    first, second = encoder("first"), encoder("second")
    first.trainable = not frozen
    rows = keras.Input((FEATURES,))
    both = keras.layers.Concatenate(name="both")([first(rows), second(rows)])
    model = keras.Model(rows, keras.layers.Dense(1, name="dense")(both))
    model.compile(optimizer, "mse")
    hook = KerasHook(
        folder,
        include_collections=["weights", "biases", "gradients"],
        save_config=SaveConfig(save_interval=interval),
    )
    random = np.random.default_rng(0)
    data = random.normal(size=(num_steps * BATCH, FEATURES)).astype(np.float32)
    labels = data[:, :1] * data[:, 1:2]
    model.fit(data, labels, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[hook])
    hook.close()
    assert not hook.report().errors
    return folder


def reported(path: Path, rule: Rule) -> str:
    """Return what a rule found in a run, empty if nothing, of at least one step that it judged."""
    evaluation = Evaluation.fresh(rule)
    for view in views_of(path):
        evaluation.feed(view)
    assert evaluation.counts.evaluated
    assert not evaluation.counts.failure
    return evaluation.evidence.sentence if evaluation.evidence else ""


def test_each_gradient_is_that_of_the_parameter_that_it_moves(tmp_path: Path) -> None:
    optimizer = keras.optimizers.SGD(0.5)
    folder = train(tmp_path / "run", optimizer, num_steps=2, frozen=True, interval=1)
    before, after = views_of(folder)
    gradients = before.tensors(collections=("gradients",))
    owners = parameters_of(before, gradients)
    of_second_and_head = {"dense_2", "normed_1", "dense_1_1", "dense_3"}
    assert {name.partition("/")[0] for name in owners} == of_second_and_head
    for name, gradient in zip(owners, gradients.names, strict=True):
        moved = after.value(name) - before.value(name)
        np.testing.assert_allclose(moved, -0.5 * before.value(gradient), rtol=1e-3, atol=1e-6)


def test_a_learning_rate_of_zero_is_the_optimiser_s(tmp_path: Path) -> None:
    folder = train(tmp_path / "run", keras.optimizers.SGD(0.0), num_steps=270)
    assert "has a gradient, of mean size" in reported(folder, DeadOptimizer())
    assert not reported(folder, MissingGradient())
    assert reported(folder, UnchangedTensor(tensor_regex=("kernel",)))


def test_a_frozen_part_is_no_issue(tmp_path: Path) -> None:
    folder = train(tmp_path / "run", keras.optimizers.SGD(0.01), num_steps=120, frozen=True)
    assert not reported(folder, DeadOptimizer())
    assert not reported(folder, UnchangedTensor(tensor_regex=("kernel",)))


def test_a_model_of_frozen_weights_alone_is_found(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.trainable = False
    saved = SaveConfig(save_interval=2)
    hook = KerasHook(
        tmp_path, include_collections=["weights", "optimizer_steps"], save_config=saved
    )
    data = np.zeros((10 * BATCH, FEATURES), np.float32)
    model.fit(data, data[:, :1], batch_size=BATCH, verbose=0, callbacks=[hook])
    hook.close()
    assert "all weights of the model are frozen" in reported(tmp_path, TrainingLoop())


def test_gradients_that_are_accumulated_beside_a_normalisation(tmp_path: Path) -> None:
    optimizer = keras.optimizers.SGD(0.01, gradient_accumulation_steps=64)
    folder = train(tmp_path / "run", optimizer, num_steps=150)
    assert not reported(folder, DeadOptimizer())
    assert not reported(folder, MissingGradient())


@pytest.mark.parametrize("units", [4, FEATURES])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_one_time_step_has_no_state_before_it(tmp_path: Path, kind: str, units: int) -> None:
    keras.utils.set_random_seed(0)
    layers = [getattr(keras.layers, kind)(units), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((1, FEATURES)), *layers])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    hook = KerasHook(
        tmp_path / "run",
        include_collections=["weights", "biases", "gradients", "layers"],
        save_config=SaveConfig(save_interval=1),
    )
    data = np.random.default_rng(0).normal(size=(12 * BATCH, 1, FEATURES)).astype(np.float32)
    model.fit(data, data[:, 0, :1], batch_size=BATCH, verbose=0, callbacks=[hook])
    hook.close()
    (first, *_) = views_of(tmp_path / "run")
    recurrent = [name for name in first.tensors().names if "recurrent_kernelGrad" in name]
    assert not np.any(first.value(recurrent[0]))
    assert not reported(tmp_path / "run", MissingGradient())
    assert not reported(tmp_path / "run", VanishingGradient())
