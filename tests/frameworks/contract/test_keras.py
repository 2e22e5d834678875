"""The contract of hooks, kept by Keras's; on the backend that `KERAS_BACKEND` names."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import stepwatch.keras
from hook_layer.core.hook import BaseHook
from hook_layer.format.modes import ModeKeys
from hook_layer.keras import KerasHook
from hook_layer.testing.hook_contract import HookContract, OnStep, Trained, digest_of, nothing
from rule_runtime.testing.fact_contract import FactContract
from tests.frameworks.default_hooks import DefaultHookContract

ROWS = 4


class Script(keras.callbacks.Callback):  # untyped
    """What the training script does in a step; remembers the losses that Keras tells."""

    def __init__(self, on_step: OnStep) -> None:
        super().__init__()
        self.on_step = on_step
        self.losses: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append(logs["loss"])
        self.on_step(batch)


class TestKeras(HookContract):
    adapter = f"Keras ({keras.backend.backend()})"
    hook_type = KerasHook
    loss_name = "loss"
    names = {
        "losses": "loss",
        "metrics": "mae",
        "weights": "hidden/weights/hidden/kernel:0",
        "biases": "hidden/weights/hidden/bias:0",
        "gradients": "gradients/hidden/kernelGrad",
        "optimizer_variables": "adam/hidden_kernel_momentum:0",
        "inputs": "inputs",
        "outputs": "predictions",
        "layers": "hidden/outputs",
    }
    more_names = ()
    train_mode = ModeKeys.TRAIN
    stop_raises = False

    def train(
        self,
        hook: BaseHook | None,
        *,
        steps: int,
        evaluations: int = 0,
        on_step: OnStep = nothing,
    ) -> Trained:
        keras.backend.clear_session(free_memory=False)
        keras.utils.set_random_seed(3)
        inputs = keras.Input((3,))
        hidden = keras.layers.Dense(4, activation="relu", name="hidden")(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1, name="head")(hidden))
        model.compile(keras.optimizers.Adam(0.01, name="adam"), "mse", metrics=["mae"])
        random = np.random.default_rng(0)
        data = random.normal(size=(ROWS * steps, 3)).astype(np.float32)
        targets = data.sum(axis=1, keepdims=True)
        script = Script(on_step)
        callbacks = [script] if hook is None else [script, hook]
        options: Any = {"batch_size": ROWS, "verbose": 0, "callbacks": callbacks}
        model.fit(data, targets, shuffle=False, **options)
        if evaluations:
            rows = ROWS * evaluations
            model.evaluate(np.resize(data, (rows, 3)), np.resize(targets, (rows, 1)), **options)
        return Trained(digest_of(model.get_weights()), tuple(script.losses))


class TestFactsOfKeras(FactContract):
    """The facts that rules know of a classifier with sample weights."""

    adapter = TestKeras.adapter
    hook_type = KerasHook
    missing_facts = {
        "norms of gradients before and after clipping": "Keras clips within the optimizer",
        "optimizer steps": "Keras's own loop takes a step in each batch: there is nothing to count",
    }

    def train(
        self,
        hook: BaseHook | None,
        *,
        steps: int,
        evaluations: int = 0,
        on_step: OnStep = nothing,
    ) -> Trained:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "softmax")])
        model.compile("adam", "sparse_categorical_crossentropy")
        random = np.random.default_rng(0)
        data = random.normal(size=(ROWS * steps, 3)).astype(np.float32)
        labels, weights = random.integers(0, 4, len(data)), random.random(len(data))
        script = Script(on_step)
        options: Any = {"batch_size": ROWS, "verbose": 0, "callbacks": [script, hook]}
        rows = ROWS * evaluations
        validation = data[:rows], labels[:rows], weights[:rows]
        model.fit(data, labels, sample_weight=weights, validation_data=validation, **options)
        return Trained(digest_of(model.get_weights()), tuple(script.losses))


class TestDefaultHookOfKeras(DefaultHookContract):
    """What `stepwatch.keras.Hook` saves."""

    hook_type = KerasHook
    default_type = stepwatch.keras.Hook
    train = TestKeras.train
