"""What is saved of fit, evaluate and predict, on each backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from hook_layer.keras import KerasHook, SaveConfig, SaveConfigMode, modes
from rule_runtime import create_trial
from tests.frameworks.keras.keras_training import (
    BATCH,
    CLASSES,
    EVERY_STEP,
    FEATURES,
    FEATURES_OF_ROWS,
    LABELS,
    compiled,
    fitted,
    new_model,
    same,
    saved,
)

BACKEND = keras.backend.backend()
COMPILATIONS = {
    "as it is": {},
    "eager": {"run_eagerly": True},
    **({} if BACKEND == "torch" else {"plain graph": {"jit_compile": False}}),
}
XLA_CHANGES_ROUNDING = BACKEND == "tensorflow"


@pytest.mark.parametrize("is_built", [True, False], ids=["built", "built by the first step"])
@pytest.mark.parametrize("compilation", COMPILATIONS.values(), ids=COMPILATIONS)
def test_the_training_is_the_same_bit_by_bit(
    tmp_path: Path, compilation: dict[str, Any], is_built: bool
) -> None:
    results, weights, predictions = [], [], []
    hook = KerasHook(tmp_path, save_config=SaveConfig(save_interval=3), save_all=True)
    for callback in (None, hook):
        model = new_model(is_built=is_built, **compilation)
        validation = (FEATURES_OF_ROWS, LABELS)
        results.append(fitted(model, callback, validation_data=validation))
        weights.append(model.get_weights())
        own = [] if callback is None else [callback]
        predictions.append(model.predict(FEATURES_OF_ROWS, verbose=0, callbacks=own))
    hook.close()
    assert not hook.report().errors
    assert results[0] == results[1]
    assert same(*weights)
    assert same([predictions[0]], [predictions[1]])
    trial = create_trial(str(tmp_path))
    steps = {mode: trial.steps(mode=mode) for mode in (modes.TRAIN, modes.EVAL, modes.PREDICT)}
    assert steps == {modes.TRAIN: [0, 3, 6], modes.EVAL: [0, 3, 6], modes.PREDICT: [0]}
    for name in ("hidden/weights/hidden/kernel:0", "gradients/head/biasGrad", "head/outputs"):
        assert trial.tensor(name).steps(mode=modes.TRAIN) == [0, 3, 6]


def test_names_and_collections(tmp_path: Path) -> None:
    trial = saved(tmp_path, new_model())
    collections = {name: c.tensor_names for name, c in trial.collections().items()}
    variables = {"hidden": ("kernel", "bias"), "head": ("kernel", "bias"), "normed": ("gamma",)}
    for layer, names in variables.items():
        for name in names:
            kind = "biases" if name == "bias" else "weights"
            assert f"{layer}/weights/{layer}/{name}:0" in collections[kind]
            assert f"gradients/{layer}/{name}Grad" in collections["gradients"]
    assert not collections["weights"] & collections["biases"]
    assert collections["losses"] == {"loss"}
    assert collections["metrics"] == {"accuracy", "batch"}
    assert collections["inputs"] == {"inputs"}
    assert collections["outputs"] == {"labels", "predictions"}
    layers = ("hidden", "dropout", "normed", "head")
    assert collections["layers"] == {
        f"{n}/{side}" for n in layers for side in ("inputs", "outputs")
    }
    assert {n for n in collections["optimizer_variables"] if "hidden_kernel" in n}
    assert not collections["optimizer_variables"] & collections["biases"]


def test_values(tmp_path: Path) -> None:
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(2)
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(CLASSES, name="head")])
    compiled(model, keras.optimizers.SGD(0.5))
    kernel, bias = model.get_weights()
    trial = saved(tmp_path, model)

    def value(name: str, step: int) -> Any:
        return trial.tensor(name).value(step, mode=modes.TRAIN)

    def kernel_before(step: int) -> Any:
        return value("head/weights/head/kernel:0", step)

    x, y = FEATURES_OF_ROWS[:BATCH], LABELS[:BATCH]
    scores = x @ kernel + bias
    odds = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    gradient = x.T @ (odds - np.eye(CLASSES)[y]) / BATCH
    assert np.array_equal(kernel_before(0), kernel)
    assert np.array_equal(value("inputs", 0), x)
    assert np.array_equal(value("labels", 0), y)
    assert np.array_equal(value("head/inputs", 0), x)
    np.testing.assert_allclose(value("predictions", 0), scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        value("gradients/head/kernelGrad", 0), gradient, rtol=1e-3, atol=1e-6
    )
    np.testing.assert_allclose(
        kernel_before(1), kernel - 0.5 * value("gradients/head/kernelGrad", 0), rtol=1e-4, atol=1e-6
    )
    assert value("loss", 0) == pytest.approx(-np.log(odds[np.arange(BATCH), y]).mean(), rel=1e-4)


def test_a_custom_train_step_with_two_optimisers(tmp_path: Path) -> None:
    if BACKEND == "jax":
        pytest.skip("two optimisers need another train_step with JAX")

    class Both(keras.Model):  # untyped
        def __init__(self) -> None:
            super().__init__()
            self.head = keras.layers.Dense(CLASSES, name="head")
            self.own_optimizer = keras.optimizers.SGD(0.1)

        def call(self, inputs: Any, training: bool = False) -> Any:
            del training
            return self.head(inputs)

        def train_step(self, data: Any) -> Any:
            logs = super().train_step(data)
            variables = self.trainable_variables
            self.own_optimizer.apply([keras.ops.ones_like(v) for v in variables], variables)
            return {**logs, "own_loss": logs["loss"] * 2}

    keras.backend.clear_session(free_memory=False)
    trial = saved(tmp_path, compiled(Both()))
    assert np.ptp(trial.tensor("gradients/head/kernelGrad_1").value(1)) == 0
    assert np.ptp(trial.tensor("gradients/head/kernelGrad_0").value(1)) > 0
    assert trial.collections()["losses"].tensor_names == {"loss", "own_loss"}


def test_several_inputs_and_outputs_and_a_model_within(tmp_path: Path) -> None:
    keras.backend.clear_session(free_memory=False)
    first, second = keras.Input((FEATURES,), name="a"), keras.Input((FEATURES,), name="b")
    inner = keras.Sequential([keras.layers.Dense(5, name="deep")], name="inner")
    joined = keras.layers.Add(name="sum")([inner(first), inner(second)])
    model = keras.Model([first, second], [keras.layers.Dense(1, name=n)(joined) for n in "pq"])
    model.compile("sgd", ["mse", "mae"])
    hook = KerasHook(tmp_path, save_config=EVERY_STEP, save_all=True)
    rows = FEATURES_OF_ROWS[:BATCH]
    targets = [rows[:, :1], rows[:, 1:2]]
    model.fit([rows, rows * 2], targets, batch_size=8, verbose=0, callbacks=[hook], shuffle=False)
    hook.close()
    trial = create_trial(str(tmp_path))
    names = set(trial.tensor_names(step=0))
    pairs = ("inputs", "labels", "predictions", "sum/inputs", "deep/outputs", "inner/outputs")
    assert {f"{name}_{i}" for name in pairs for i in (0, 1)} <= names
    assert np.array_equal(trial.tensor("inputs_1").value(0), rows[:8] * 2)
    assert {"deep/weights/deep/kernel:0", "gradients/deep/kernelGrad", "p_loss", "q_loss"} <= names
    assert {"p_loss", "q_loss"} <= trial.collections()["losses"].tensor_names


@pytest.mark.parametrize(
    ("policy", "dtype"), [("mixed_float16", np.float16), ("mixed_bfloat16", np.float32)]
)
def test_mixed_precision(tmp_path: Path, policy: str, dtype: type) -> None:
    """Gradients are unscaled, and bfloat16 is stored as float32."""
    optimizer = keras.optimizers.SGD(0.5)
    if policy == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1024)
    trial = saved(tmp_path, new_model(policy=policy, optimizer=optimizer))
    assert trial.tensor("head/outputs").value(0).dtype == dtype
    kernel = trial.tensor("head/weights/head/kernel:0")
    assert kernel.value(0).dtype == np.float32
    step = kernel.value(0) - 0.5 * trial.tensor("gradients/head/kernelGrad").value(0)
    np.testing.assert_allclose(kernel.value(1), step, rtol=1e-2, atol=1e-4)


def test_collections_of_types_of_layers(tmp_path: Path) -> None:
    keras.backend.clear_session(free_memory=False)
    layers = [
        keras.layers.Dense(4, activation="relu", name="one"),
        keras.layers.Activation("tanh", name="two"),
        keras.layers.ReLU(name="three"),
        keras.layers.Dense(CLASSES, name="head"),
    ]
    model = compiled(keras.Sequential([keras.Input((FEATURES,)), *layers]))
    included = ["relu_output", "relu_input", "tanh_input"]
    hook = KerasHook(tmp_path, save_config=EVERY_STEP, include_collections=included)
    hook.get_collection("mine").add_keras_layer(layers[3], inputs=True, outputs=False)
    hook.collection_manager.include.add("mine")
    fitted(model, hook, epochs=1)
    hook.close()
    collections = create_trial(str(tmp_path)).collections()
    assert collections["relu_output"].tensor_names == {"one/outputs", "three/outputs"}
    assert collections["relu_input"].tensor_names == {"three/inputs"}
    assert collections["tanh_input"].tensor_names == {"two/inputs"}
    assert collections["mine"].tensor_names == {"head/inputs"}


def test_a_step_in_which_nothing_within_is_due_is_keras_own(tmp_path: Path) -> None:
    """The very function of Keras computes it: nothing is traced, wrapped or copied."""
    model = new_model()
    calls: list[bool] = []
    config = SaveConfig({modes.TRAIN: SaveConfigMode(save_steps=[2], end_step=0)})
    hook = KerasHook(tmp_path, save_config=config, save_all=True)

    class Spy(keras.callbacks.Callback):  # untyped
        def on_train_begin(self, logs: Any = None) -> None:
            del logs
            plain = model.train_function

            def counted(*args: Any) -> Any:
                calls.append("call" in vars(model.layers[0]))
                return plain(*args)

            vars(model)["train_function"] = counted

    fitted(model, hook, epochs=1, callbacks=[Spy()])
    hook.close()
    is_looked_into_by_wrapping = BACKEND == "torch"
    assert calls == ([False, False, True, False] if is_looked_into_by_wrapping else [False] * 3)
    assert create_trial(str(tmp_path)).steps(mode=modes.TRAIN) == [2]


def test_an_exception_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = new_model()
    hook = KerasHook(tmp_path, save_config=EVERY_STEP, save_all=True)

    class Fails(keras.callbacks.Callback):  # untyped
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del logs
            if batch == 1:
                raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fitted(model, hook, callbacks=[Fails()])
    assert not any("call" in vars(layer) for layer in model.layers)
    assert "apply" not in vars(model.optimizer)
    assert "train_step" not in vars(model)
    fitted(model, hook, epochs=1)
    hook.close()
    fitted(model, epochs=1)
    assert create_trial(str(tmp_path)).steps(mode=modes.TRAIN) == list(range(6))


def test_validation_results_are_kept(tmp_path: Path) -> None:
    hook = KerasHook(tmp_path, save_config=EVERY_STEP)
    results = fitted(new_model(), hook, validation_data=(FEATURES_OF_ROWS, LABELS))
    hook.close()
    trial = create_trial(str(tmp_path))
    assert [v.item() for v in trial.tensor("val_loss").values().values()] == results["val_loss"]
    assert {"val_loss", "loss"} == trial.collections()["losses"].tensor_names
