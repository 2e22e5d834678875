"""What each loss compared, and its value in the batch, on each backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stepwatch
from hook_layer.keras import KerasHook, modes
from rule_runtime import create_trial
from stepwatch.keras import KerasHook as DefaultHook
from tests.frameworks.keras.keras_training import (
    BATCH,
    CLASSES,
    EVERY_STEP,
    FEATURES,
    FEATURES_OF_ROWS,
    LABELS,
    ROWS,
    fitted,
    new_model,
)

NUMBERS = FEATURES_OF_ROWS[:, :1]


def saved(folder: Path, train: Any) -> Any:
    hook = KerasHook(folder, save_config=EVERY_STEP, include_collections=["loss_inputs"])
    train(hook)
    hook.close()
    assert not hook.report().errors
    return create_trial(str(folder))


def half_of_squares(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.square(y_true - y_pred) / 2


class Distance(keras.losses.Loss):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.ops.abs(y_true - y_pred)


def test_outputs_targets_and_the_value_of_the_loss_are_saved(tmp_path: Path) -> None:
    name = "SparseCategoricalCrossentropyWithLogitsLoss"
    validation = (FEATURES_OF_ROWS, LABELS)
    trial = saved(tmp_path, lambda hook: fitted(new_model(), hook, 1, validation_data=validation))
    for mode in (modes.TRAIN, modes.EVAL):
        steps = trial.tensor(f"{name}_output_0").steps(mode=mode)
        assert len(steps) == ROWS // BATCH
        for step in steps:
            scores = trial.tensor(f"{name}_input_0").value(step, mode=mode)
            labels = trial.tensor(f"{name}_input_1").value(step, mode=mode)
            assert scores.shape == (BATCH, CLASSES)
            shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            expected = -np.log(shares[np.arange(BATCH), labels.astype(int).ravel()]).mean()
            value = trial.tensor(f"{name}_output_0").value(step, mode=mode)
            assert value == pytest.approx(expected, rel=1e-5)
    collections = trial.collections()
    assert f"{name}_output_0" in collections["loss_inputs"].tensor_names
    assert collections["losses"].tensor_names == {"loss", "val_loss"}


def test_each_loss_of_several_outputs_has_its_name(tmp_path: Path) -> None:
    keras.backend.clear_session(free_memory=False)
    inputs = keras.Input((FEATURES,))
    outputs = [keras.layers.Dense(1)(inputs) for _ in range(4)]
    model = keras.Model(inputs, outputs)
    model.compile("sgd", ["mse", keras.losses.MeanSquaredError(), half_of_squares, Distance()])
    weights = [np.full(ROWS, 2.0)] * 4

    def train(hook: Any) -> None:
        model.fit(
            FEATURES_OF_ROWS,
            [NUMBERS] * 4,
            batch_size=BATCH,
            callbacks=[hook],
            sample_weight=weights,
            verbose=0,
        )

    trial = saved(tmp_path, train)
    for loss in ("MeanSquaredError", "MeanSquaredError2", "HalfOfSquares", "Distance"):
        tensors = trial.tensor_names(regex=f"^{loss}Loss_")
        sides = ["input_0", "input_1", "input_2", "output_0"]
        assert sorted(tensors) == [f"{loss}Loss_{side}" for side in sides]
    assert (trial.tensor("DistanceLoss_input_2").value(0) == 2).all()


def test_losses_are_not_watched_unless_a_collection_needs_them(tmp_path: Path) -> None:
    hook = KerasHook(tmp_path, save_config=EVERY_STEP)
    fitted(new_model(), hook, 1)
    hook.close()
    names = create_trial(str(tmp_path)).tensor_names()
    assert "loss" in names
    assert not [name for name in names if "Loss" in name]


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="others compute in a graph")
def test_the_inputs_of_a_loss_that_fails_are_saved(tmp_path: Path) -> None:
    def train(hook: KerasHook) -> None:
        model = keras.Sequential([keras.layers.Dense(1, "sigmoid")])
        model.compile("sgd", "binary_crossentropy")
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            fitted(model, hook, 1)

    labels = saved(tmp_path, train).tensor("BinaryCrossentropyLoss_input_1").value(0)
    assert labels.max() > 1


@pytest.mark.parametrize(
    ("loss", "targets", "words"),
    [
        ("categorical_crossentropy", LABELS, "outputs, [16, 3] from"),
        (
            "sparse_categorical_crossentropy",
            np.eye(CLASSES)[LABELS],
            "targets, [16, 3] from 0 to 1",
        ),
        ("binary_crossentropy", np.tile(NUMBERS > 0, 2), "targets, [16, 2] from"),
    ],
)
@pytest.mark.parametrize("run_eagerly", [False, True], ids=["graph", "eager"])
def test_a_loss_that_cannot_compare_its_inputs_is_found(
    loss: str, targets: Any, words: str, run_eagerly: bool, tmp_path: Path
) -> None:
    keras.backend.clear_session(free_memory=False)
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(CLASSES, "softmax")])
    model.compile("sgd", loss, run_eagerly=run_eagerly)
    before = model.get_weights()
    with DefaultHook(tmp_path) as hook, pytest.raises(ValueError, match=r"shape|rank"):
        model.fit(FEATURES_OF_ROWS, targets, batch_size=BATCH, callbacks=[hook], verbose=0)
    assert not hook.report().errors
    assert all(map(np.array_equal, model.get_weights(), before))
    found = stepwatch.evaluate(str(tmp_path), ["OutputContract"])
    assert "fails, because the shapes" in str(found)
    assert words in str(found)
