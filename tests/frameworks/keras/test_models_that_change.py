"""Models that are compiled anew, loops that end early, and what is left of a model behind them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import keras
import pytest

from hook_layer.keras import KerasHook, del_hook, modes
from rule_runtime import create_trial
from tests.frameworks.keras.keras_training import EVERY_STEP, FEATURES, FEATURES_OF_ROWS, same

BACKEND = keras.backend.backend()
TARGETS = FEATURES_OF_ROWS.sum(axis=1, keepdims=True)
CHANGES: dict[str, dict[str, Any]] = {
    "another loss": {"loss": "mae"},
    "frozen": {},
    "eager": {"run_eagerly": True},
}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    del_hook()


def linear() -> Any:
    """Return a model of one layer, from the same seed each time."""
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1, name="head")])


def compiled(model: Any, optimizer: Any, **compilation: Any) -> None:
    options = {"loss": "mse", "jit_compile": False, **compilation}
    model.compile(optimizer, **options)


def fit(model: Any, *callbacks: Any) -> Any:
    history = model.fit(
        FEATURES_OF_ROWS, TARGETS, 32, shuffle=False, verbose=0, callbacks=list(callbacks)
    )
    return history.history


def everything(folder: Path) -> KerasHook:
    return KerasHook(folder, save_config=EVERY_STEP, save_all=True)


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_is_compiled_again_trains_as_it_is_told_then(
    tmp_path: Path, change: str
) -> None:
    results, weights = [], []
    hook = everything(tmp_path)
    for callbacks in ((), (hook,)):
        model = linear()
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)
        compiled(model, optimizer)
        fit(model, *callbacks)
        if change == "frozen":
            model.layers[0].kernel.trainable = False
            optimizer = keras.optimizers.SGD(0.05)
        compiled(model, optimizer, **CHANGES[change])
        results.append(fit(model, *callbacks))
        weights.append(model.get_weights())
    hook.close()
    assert not hook.report().errors
    assert results[0] == results[1]
    assert same(*weights)
    names = create_trial(str(tmp_path)).tensor_names(step=3)
    assert {"inputs", "labels", "head/outputs", "gradients/head/biasGrad"} <= set(names)
    assert ("gradients/head/kernelGrad" in names) == (change != "frozen")


def test_what_is_not_compiled_again_is_not_traced_again(tmp_path: Path) -> None:
    traced = []

    class Counting(keras.layers.Dense):  # untyped
        def call(self, inputs: Any, training: bool | None = None) -> Any:
            traced.append(training)
            return super().call(inputs, training)

    keras.backend.clear_session(free_memory=False)
    model = keras.Sequential([keras.Input((FEATURES,)), Counting(1)])
    compiled(model, "sgd", jit_compile="auto")
    hook = everything(tmp_path)
    fit(model, hook)
    before = len(traced)
    fit(model, hook)
    hook.close()
    num_computed = 0 if BACKEND != "torch" else 2
    assert len(traced) - before == num_computed


def test_a_closed_hook_keeps_no_model(tmp_path: Path) -> None:
    hook = everything(tmp_path)
    models = []
    for _ in range(2):
        model = linear()
        compiled(model, "sgd")
        fit(model, hook)
        models.append(ref(model))
        del model
    keras.backend.clear_session(free_memory=False)
    gc.collect()
    assert models[0]() is None, "only the last model is known to the open hook"
    hook.close()
    gc.collect()
    assert models[1]() is None


def test_a_hook_that_is_closed_within_a_loop_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = linear()
    compiled(model, "sgd")
    fit(model)
    plain = model.train_function
    hook = everything(tmp_path)

    class Closes(keras.callbacks.Callback):  # untyped
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del batch, logs
            hook.close()

    fit(model, hook, Closes())
    assert model.train_function is plain
    assert create_trial(str(tmp_path)).steps(mode=modes.TRAIN) == [0]


def test_a_step_without_the_hook_is_not_saved_behind_a_loop_that_ended_early(
    tmp_path: Path,
) -> None:
    model = linear()
    compiled(model, "sgd")
    hook = everything(tmp_path)

    class Fails(keras.callbacks.Callback):  # untyped
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            del logs
            if batch == 1:
                raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fit(model, hook, Fails())
    fit(model)
    hook.close()
    trial = create_trial(str(tmp_path))
    assert "head/outputs" in trial.tensor_names(step=0)
    assert "head/weights/head/bias:0" in trial.tensor_names(step=1), "as it began"
    assert "head/outputs" not in trial.tensor_names(step=1)
