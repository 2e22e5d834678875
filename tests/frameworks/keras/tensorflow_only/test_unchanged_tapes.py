"""Loops around a tape in scripts without a hook show the models that they call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.keras import del_hook, get_hook
from hook_layer.keras.unchanged import watch_unchanged
from rule_runtime import create_trial
from rule_runtime.embedded.hook_configuration import hook_configuration
from tests.frameworks.keras.keras_training import BATCH, FEATURES, FEATURES_OF_ROWS

ROWS = tf.constant(FEATURES_OF_ROWS[:BATCH])
TARGETS = ROWS[:, :1]
EXPECTED = {
    *("head/inputs", "head/outputs", "inputs", "labels", "predictions", "loss"),
    *("MeanSquaredErrorLoss_input_0", "MeanSquaredErrorLoss_input_1"),
    "MeanSquaredErrorLoss_output_0",
    *("head/weights/head/kernel:0", "gradients/head/kernelGrad"),
}


@pytest.fixture
def folder(tmp_path: Path, unpatched: None) -> Iterator[Path]:
    """A folder in which watched scripts save; nothing is watched after the test."""
    del unpatched
    del_hook()
    document = {**hook_configuration("recommended"), "LocalPath": str(tmp_path / "run")}
    (tmp_path / "hook.json").write_text(json.dumps(document))
    watch_unchanged(HookSource(config=str(tmp_path / "hook.json")))
    yield tmp_path / "run"
    del_hook()


def model(name: str = "head") -> Any:
    return keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1, name=name)])


def train(step: Any, *, is_graph: bool, steps: int = 3) -> None:
    run = tf.function(step) if is_graph else step
    for _ in range(steps):
        run(ROWS, TARGETS)
    hook = get_hook()
    hook.close()
    assert not hook.report().errors


both = pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "graph"])


@both
def test_a_step_has_layers_and_what_the_loss_compares(folder: Path, is_graph: bool) -> None:
    keras.utils.set_random_seed(0)
    inner = model()
    outer = keras.Sequential([keras.Input((FEATURES,)), inner])
    loss, optimizer = keras.losses.MeanSquaredError(), keras.optimizers.SGD(0.1)

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            value = loss(y, outer(x))
        gradients = tape.gradient(value, outer.trainable_variables)
        optimizer.apply_gradients(zip(gradients, outer.trainable_variables, strict=True))

    train(step, is_graph=is_graph)
    trial = create_trial(str(folder))
    assert trial.steps() == [0, 1, 2]
    for at in trial.steps():
        assert set(trial.tensor_names(step=at)) >= EXPECTED
    assert np.array_equal(trial.tensor("labels").value(0), TARGETS.numpy())
    assert "call" not in vars(outer)


@both
def test_all_models_in_the_block_are_seen(folder: Path, is_graph: bool) -> None:
    one, two = model("one"), model("two")
    loss = keras.losses.MeanSquaredError()

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            value = loss(y, one(x) + two(x))
        tape.gradient(value, [*one.trainable_variables, *two.trainable_variables])

    train(step, is_graph=is_graph)
    names = set(create_trial(str(folder)).tensor_names(step=0))
    assert {"one/outputs", "two/outputs", "MeanSquaredErrorLoss_input_0", "labels"} <= names
    assert {"one/weights/one/kernel:0", "gradients/two/kernelGrad"} <= names


@both
def test_a_tape_of_inputs_is_no_step(folder: Path, is_graph: bool) -> None:
    head = model()

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                outputs = head(x)
            slopes = inner.gradient(outputs, x)
            value = tf.reduce_mean(slopes**2) + tf.reduce_mean((outputs - y) ** 2)
        tape.gradient(value, head.trainable_variables)

    train(step, is_graph=is_graph)
    trial = create_trial(str(folder))
    assert trial.steps() == [0, 1, 2]
    assert "head/outputs" in trial.tensor_names(step=2)
