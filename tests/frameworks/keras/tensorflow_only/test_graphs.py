"""XLA, several steps in one execution, replicas, and branches of the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from hook_layer.keras import KerasHook, SaveConfig, modes
from rule_runtime import create_trial
from tests.frameworks.keras.keras_training import (
    BATCH,
    EVERY_STEP,
    FEATURES_OF_ROWS,
    LABELS,
    compiled,
    fitted,
    new_model,
    same,
    saved,
)


def test_xla_saves_everything_and_trains_the_same(tmp_path: Path) -> None:
    results, weights = [], []
    config = SaveConfig(save_interval=2)
    hook = KerasHook(tmp_path, save_config=config, include_collections=["gradients", "layers"])
    for callback in (None, hook):
        keras.backend.clear_session(free_memory=False)
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dropout(0.3, name="dropout"), keras.layers.Dense(3, name="head")]
        model = keras.Sequential([keras.Input((4,)), *layers])
        compiled(model, keras.optimizers.SGD(0.05), jit_compile=True)
        results.append(fitted(model, callback)["loss"])
        weights.append(model.get_weights())
    hook.close()
    assert results[0] == pytest.approx(results[1], rel=1e-5)
    for plain, hooked in zip(*weights, strict=True):
        np.testing.assert_allclose(plain, hooked, rtol=1e-3, atol=1e-5)
    trial = create_trial(str(tmp_path))
    for name in ("gradients/head/kernelGrad", "dropout/outputs"):
        assert trial.tensor(name).steps(mode=modes.TRAIN) == [0, 2, 4, 6]


def test_several_steps_in_one_execution(tmp_path: Path) -> None:
    hook = KerasHook(tmp_path, save_config=EVERY_STEP, save_all=True)
    weights = []
    for callback in (None, hook):
        model = new_model(steps_per_execution=3)
        fitted(model, callback)
        weights.append(model.get_weights())
    hook.close()
    assert same(*weights)
    trial = create_trial(str(tmp_path))
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2, 3]  # 4 batches an epoch: 3 and 1
    last = FEATURES_OF_ROWS[2 * BATCH : 3 * BATCH]
    assert np.array_equal(trial.tensor("inputs").value(0), last)


def test_two_replicas(tmp_path: Path) -> None:
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    assert len(devices) == 2
    weights = []
    hook = KerasHook(tmp_path, save_config=EVERY_STEP, save_all=True)
    for callback in (None, hook):
        keras.backend.clear_session(free_memory=False)
        with tf.distribute.MirroredStrategy(devices).scope():
            keras.utils.set_random_seed(1)
            layers = [keras.Input((4,)), keras.layers.Dense(3, name="head")]
            model = compiled(keras.Sequential(layers), keras.optimizers.SGD(0.5))
        fitted(model, callback, epochs=1)
        weights.append(model.get_weights())
    hook.close()
    assert not hook.report().errors
    assert same(*weights)
    trial = create_trial(str(tmp_path))
    kernel = trial.tensor("head/weights/head/kernel:0")
    step = kernel.value(0) - 0.5 * trial.tensor("gradients/head/kernelGrad").value(0)
    np.testing.assert_allclose(kernel.value(1), step, rtol=1e-4, atol=1e-6)
    assert trial.tensor("inputs").value(0).shape == (BATCH // 2, 4)


def test_a_scaled_loss(tmp_path: Path) -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=1024)
    layers = [keras.Input((4,)), keras.layers.Dense(3, name="head")]
    keras.utils.set_random_seed(1)
    trial = saved(tmp_path, compiled(keras.Sequential(layers), optimizer))
    kernel = trial.tensor("head/weights/head/kernel:0")
    step = kernel.value(0) - 0.5 * trial.tensor("gradients/head/kernelGrad").value(0)
    np.testing.assert_allclose(kernel.value(1), step, rtol=1e-4, atol=1e-6)


def test_random_numbers_of_a_graph_stay_what_they_are(tmp_path: Path) -> None:
    class Noisy(keras.layers.Layer):  # untyped
        def call(self, inputs: Any) -> Any:
            return inputs + tf.random.normal(tf.shape(inputs))

    hook = KerasHook(tmp_path, save_config=SaveConfig(save_interval=2), save_all=True)
    results = []
    for callback in (None, hook):
        keras.backend.clear_session(free_memory=False)
        keras.utils.set_random_seed(1)
        layers = [keras.Input((4,)), Noisy(), keras.layers.Dense(3, name="head")]
        results.append(fitted(compiled(keras.Sequential(layers)), callback))
    hook.close()
    assert results[0] == results[1]
    names = create_trial(str(tmp_path)).tensor_names()
    assert "head/weights/head/kernel:0" in names
    assert "head/outputs" not in names


def trained_by_a_loop(hook: KerasHook | None, *, is_graph: bool) -> tuple[list[float], list[Any]]:
    """Train with a loop around a tape, and return the losses and the weights."""
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="head")])
    optimizer = keras.optimizers.SGD(0.5)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if hook is not None:
        hook.register_model(model)

    def step(x: Any, y: Any) -> Any:
        plain = tf.GradientTape()
        with plain if hook is None else hook.wrap_tape(plain) as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    run = tf.function(step) if is_graph else step
    return [float(run(*batch_of(number))) for number in range(8)], model.get_weights()


def batch_of(number: int) -> tuple[Any, Any]:
    start = number % 4 * BATCH
    return FEATURES_OF_ROWS[start : start + BATCH], LABELS[start : start + BATCH]


@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "graph"])
def test_a_loop_around_a_tape(tmp_path: Path, is_graph: bool) -> None:
    hook = KerasHook(tmp_path, save_config=SaveConfig(save_interval=3), save_all=True)
    losses, weights = trained_by_a_loop(None, is_graph=is_graph)
    hooked_losses, hooked_weights = trained_by_a_loop(hook, is_graph=is_graph)
    hook.close()
    assert losses == hooked_losses
    assert same(weights, hooked_weights)
    trial = create_trial(str(tmp_path))
    assert trial.steps(mode=modes.TRAIN) == [0, 3, 6]
    assert [trial.tensor("loss").value(step).item() for step in (0, 3, 6)] == losses[::3]
    names = {"inputs", "predictions", "head/outputs", "head/weights/head/bias:0"}
    assert {*names, "gradients/head/biasGrad"} <= set(trial.tensor_names(step=3))
    assert np.array_equal(trial.tensor("inputs").value(3), batch_of(3)[0])
