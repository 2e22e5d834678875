"""Rules know the layers of Keras: their linear parts, activations inside, and the last one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.evaluator import Evaluation
from stepwatch.keras import KerasHook
from tests.frameworks.stored_views import views_of

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(320, 8)).astype(np.float32)
CLASSES = ROWS[:, :3].argmax(axis=1)
NUMBERS = (ROWS[:, :1] + ROWS[:, 1:2] ** 2).astype(np.float32)
Dense = keras.layers.Dense


def train(
    folder: Path,
    layers: Callable[[], Sequence[Any]],
    loss: Any,
    targets: Any,
    rate: float = 0.01,
    **fit: Any,
) -> Path:
    """Train with the default hook, at one step for each 16 rows."""
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), *layers()])
    model.compile(keras.optimizers.SGD(rate), loss)
    with KerasHook(folder) as hook:
        model.fit(
            ROWS,
            targets,
            **{"batch_size": 16, "epochs": 2, "callbacks": [hook], "verbose": 0, **fit},
        )
    assert not hook.report().errors
    return folder


def evaluated(folder: Path) -> dict[str, Evaluation]:
    """Evaluate the recommended rules on all steps of a run."""
    found = {n: Evaluation.fresh(rule) for n, rule in PACKS["recommended"].rules().items()}
    for view in views_of(folder):
        for evaluation in found.values():
            evaluation.feed(view)
    return found


def findings(evaluations: dict[str, Evaluation]) -> dict[str, str]:
    return {name: e.evidence.sentence for name, e in evaluations.items() if e.evidence}


def classifier() -> list[Any]:
    return [Dense(16, activation="relu"), Dense(16, activation="tanh"), Dense(3, "softmax")]


def regression() -> list[Any]:
    return [Dense(16), keras.layers.BatchNormalization(), keras.layers.ReLU(), Dense(1)]


@pytest.mark.parametrize(
    ("layers", "loss", "targets"),
    [
        (classifier, "sparse_categorical_crossentropy", CLASSES),
        (regression, "mse", NUMBERS),
    ],
)
def test_rules_of_layers_and_losses_decide_and_pass(
    layers: Any, loss: str, targets: Any, tmp_path: Path
) -> None:
    run = evaluated(train(tmp_path, layers, loss, targets, epochs=8))
    assert not findings(run)
    deciding = ("MissingActivation", "PoorWeightInitialization", "WorseThanGuessing")
    if layers is classifier:
        reason = run["SaturatedActivation"].counts.last_reason
        assert "only the output of the layer dense_1 was saved, which applies tanh inside" in reason
    undecided = [name for name in deciding if not run[name].counts.evaluated]
    assert not {name: run[name].counts.last_reason for name in undecided}


def test_layers_without_an_activation_between_are_found(tmp_path: Path) -> None:
    run = train(
        tmp_path, lambda: [Dense(16, name="a"), Dense(16, name="b"), Dense(1)], "mse", NUMBERS
    )
    assert "a/outputs: goes into b as it is" in findings(evaluated(run))["MissingActivation"]


def test_an_activation_inside_a_layer_is_known(tmp_path: Path) -> None:
    def layers() -> list[Any]:
        return [Dense(16, "relu"), Dense(16, keras.ops.relu), Dense(1)]

    run = train(tmp_path, layers, "mse", NUMBERS)
    assert "MissingActivation" not in findings(evaluated(run))


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
def test_first_weights_that_are_too_large_are_found(activation: str, tmp_path: Path) -> None:
    def layers() -> list[Any]:
        large = keras.initializers.RandomNormal(stddev=4)
        return [*(Dense(16, activation, kernel_initializer=large) for _ in range(2)), Dense(1)]

    run = train(tmp_path, layers, "mse", NUMBERS, 1e-6)
    assert "begins with a gain of" in findings(evaluated(run))["PoorWeightInitialization"]


def test_a_model_that_stays_worse_than_a_constant_is_found(tmp_path: Path) -> None:
    def layers() -> list[Any]:
        far = keras.initializers.Constant(100.0)
        return [Dense(16, "relu"), Dense(1, bias_initializer=far)]

    run = train(tmp_path, layers, "mse", NUMBERS, 1e-9, epochs=8)
    assert "MeanSquaredErrorLoss_output_0: is " in findings(evaluated(run))["WorseThanGuessing"]


def test_sample_weights_make_the_constant_predictor_unknown(tmp_path: Path) -> None:
    weights = RANDOM.uniform(1, 100, len(ROWS)).astype(np.float32)
    fit = {"epochs": 8, "sample_weight": weights}
    run = evaluated(train(tmp_path, regression, "mse", NUMBERS, 1e-4, **fit))
    assert "WorseThanGuessing" not in findings(run)
    assert "sample weights" in run["WorseThanGuessing"].counts.last_reason


@pytest.mark.parametrize(
    "last",
    [lambda: [Dense(1, "tanh")], lambda: [Dense(1), keras.layers.Activation("tanh")]],
    ids=["argument", "layer"],
)
def test_targets_out_of_reach_of_the_last_layer_are_found_at_once(
    last: Callable[[], list[Any]], tmp_path: Path
) -> None:
    targets = RANDOM.uniform(7, 12, (len(ROWS), 1)).astype(np.float32)
    run = train(tmp_path, lambda: [Dense(16, "relu"), *last()], "mse", targets)
    found = evaluated(run)["OutputContract"].evidence
    assert found is not None
    assert "gets outputs of tanh" in found.sentence
    assert "which cannot reach the targets, [16, 1] from 7" in found.sentence
    assert found.step == 0
