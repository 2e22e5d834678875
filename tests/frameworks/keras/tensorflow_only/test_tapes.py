"""Loops around a tape that ask for other gradients, and steps that only the script understands."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from hook_layer.keras import KerasHook
from hook_layer.keras.backends.tensorflow import rank_and_size
from rule_runtime import create_trial
from tests.frameworks.keras.keras_training import BATCH, EVERY_STEP, FEATURES, FEATURES_OF_ROWS

ROWS = FEATURES_OF_ROWS[:BATCH]


def linear(kind: Any = keras.Sequential) -> Any:
    keras.backend.clear_session(free_memory=False)
    return kind([keras.Input((FEATURES,)), keras.layers.Dense(1, name="head")])


def everything(folder: Path) -> KerasHook:
    return KerasHook(folder, save_config=EVERY_STEP, save_all=True)


@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "graph"])
def test_gradients_of_inputs_are_left_alone(tmp_path: Path, is_graph: bool) -> None:
    hook = everything(tmp_path)
    model = linear()
    hook.register_model(model)

    def step(x: Any) -> Any:
        with hook.wrap_tape(tf.GradientTape(persistent=True)) as tape:
            tape.watch(x)
            loss = tf.reduce_mean(model(x) ** 2)
        single, (within,) = tape.gradient(loss, x), tape.gradient(loss, [x])
        _, kernel, _ = tape.gradient(loss, [x, *model.trainable_variables])
        return single, within, kernel

    run = tf.function(step) if is_graph else step
    for _ in range(2):
        single, within, kernel = run(tf.constant(ROWS))
    hook.close()
    assert not hook.report().errors
    assert not hook.report().late_tensors
    assert single.numpy().tobytes() == within.numpy().tobytes()
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0, 1]
    saved = trial.tensor("gradients/head/kernelGrad").value(1)
    assert saved.tobytes() == kernel.numpy().tobytes()
    assert {"loss", "head/outputs"} <= set(trial.tensor_names(step=1))


def test_a_loop_goes_on_where_the_hook_fails(tmp_path: Path) -> None:
    class Odd(keras.Sequential):  # untyped
        hides_layers = False

        @property
        def layers(self) -> Any:
            if self.hides_layers:
                raise RuntimeError
            return super().layers

    hook = everything(tmp_path)
    model = linear(Odd)
    hook.register_model(model)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean(model(ROWS))
    model.hides_layers = True
    kernel, _ = tape.gradient(loss, model.trainable_variables)
    assert kernel.shape == (FEATURES, 1)
    hook.close()
    assert hook.report().errors == {"tapes": 1}


def test_a_step_of_data_that_only_the_script_knows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(keras.Sequential):  # untyped
        def train_step(self, data: Any) -> Any:
            x, _, y, _ = data
            return super().train_step((x, y))

        def _symbolic_build(self, *_: Any, **__: Any) -> None:
            """Keras itself would not know the data."""

    model = linear(Odd)
    model.compile("sgd", "mse", run_eagerly=True)
    hook = everything(tmp_path)
    four = (ROWS, ROWS, ROWS[:, :1], ROWS[:, :1])
    data = tf.data.Dataset.from_tensor_slices(four).batch(BATCH)
    with caplog.at_level(logging.WARNING, "stepwatch"):
        model.fit(data, verbose=0, callbacks=[hook])
    hook.close()
    assert "inputs and labels are not saved" in caplog.text
    names = create_trial(str(tmp_path)).tensor_names()
    assert "head/outputs" in names
    assert "labels" not in names


def test_the_worker_is_that_of_the_model_s_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks are called outside of the strategy's scope."""
    workers = {"worker": ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]}
    cluster = tf.train.ClusterSpec(workers)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="worker", task_id=1
    )
    model = linear()
    strategy = tf.distribute.get_strategy()
    assert rank_and_size(model) == (0, 1)

    class Distributed:
        cluster_resolver = resolver

    monkeypatch.setattr(type(model), "distribute_strategy", Distributed())
    assert tf.distribute.get_strategy() is strategy
    assert rank_and_size(model) == (1, 3)
