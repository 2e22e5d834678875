"""Validation inputs of another scale than training's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.rules.input_statistics import InputStatistics
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

Array = npt.NDArray[Any]
Random = np.random.Generator
Make = Callable[[Random, int], Array]
Change = Callable[[Random, Array, Array], tuple[Array, Array]]
"""Changes inputs and targets of a batch."""


def table(random: Random, rows: int) -> Array:
    """Standardised columns."""
    return random.normal(size=(rows, 8)).astype(np.float32)


def columns(random: Random, rows: int) -> Array:
    """Columns as of a file, all positive."""
    means = np.array([5.8, 3.1, 3.8, 1.2, 60.0, 12.0, 7.0, 2.0])
    raw: Array = (means * (1 + 0.2 * random.normal(size=(rows, 8)))).astype(np.float32)
    return raw


def skewed(random: Random, rows: int) -> Array:
    """Amounts of which few are very large."""
    return random.lognormal(0, 2, (rows, 3)).astype(np.float32)


def images(random: Random, rows: int) -> Array:
    """Images from 0 to 1 with black and white pixels."""
    pixels = random.beta(0.4, 0.8, (rows, 1, 12, 12)).round(2)
    pixels[0, 0, 0, :2] = 0, 1
    return pixels.astype(np.float32)


def same(_: Random, inputs: Array, targets: Array) -> tuple[Array, Array]:
    return inputs, targets


def scaled(factor: float, offset: float = 0.0) -> Change:
    return lambda _, inputs, targets: (factor * inputs + offset, targets)


def noisy(size: float) -> Change:
    return lambda random, x, y: (x + size * random.normal(size=x.shape), y)


def of_one_class(random: Random, inputs: Array, targets: Array) -> tuple[Array, Array]:
    """Rows that are sorted: all of a class with little contrast."""
    return 0.25 * inputs + 0.5, np.full_like(targets, 3)


def later(_: Random, inputs: Array, targets: Array) -> tuple[Array, Array]:
    """A time series that has grown, and its next values."""
    return 0.7 * inputs + 3.5, targets + 5


def of_rows(num_rows: int) -> Change:
    return lambda _, inputs, targets: (inputs[:num_rows], targets[:num_rows])


def mixed(random: Random, inputs: Array, targets: Array) -> tuple[Array, Array]:
    share = random.beta(1, 1)
    return share * inputs + (1 - share) * inputs[::-1], targets


def run(
    make: Make,
    *,
    training: Change = same,
    validation: Change = same,
    rows: tuple[int, int] = (32, 64),
    with_targets: bool = True,
    passes: int = 6,
    name: str = "Net_input_0",
) -> TrialBuilder:
    """Return a run with 4 saved training steps before each validation pass of 2 steps."""
    random, trial = np.random.default_rng(0), TrialBuilder()
    for step in range(6 * passes):
        mode = ModeKeys.EVAL if step % 6 > 3 else ModeKeys.TRAIN
        change = validation if mode is ModeKeys.EVAL else training
        size = rows[mode is ModeKeys.EVAL]
        inputs, targets = change(random, make(random, size), random.integers(0, 10, size))
        tensors: dict[str, Any] = {"Net_fc.weight": np.eye(2), name: inputs, "fc_input_0": inputs}
        if with_targets:
            tensors["CrossEntropyLoss_input_0"] = random.normal(size=(len(targets), 10))
            tensors["CrossEntropyLoss_input_1"] = targets
        tensors["CrossEntropyLoss_output_0"] = np.float32(2.3)
        trial.step(step, tensors, mode=mode)
    return trial


def found(trial: TrialBuilder) -> list[IssueFound]:
    """Return the findings of validation steps."""
    outcomes = trial.outcomes(InputStatistics(max_rms=1e9))
    return [o for o in outcomes if isinstance(o, IssueFound) and o.evidence.mode == "EVAL"]


MUTATIONS: dict[str, dict[str, Any]] = {
    "raw": {"make": table, "validation": scaled(50, 100)},
    "standardised only in validation": {"make": columns, "validation": scaled(1 / 21, -0.6)},
    "of small spread, not centred": {"make": table, "validation": scaled(1, 5)},
    "0 to 255": {"make": images, "validation": scaled(255)},
    "0 to 255 in training": {"make": images, "training": scaled(255)},
    "0 to 255, without a loss": {
        "make": images,
        "validation": scaled(255),
        "with_targets": False,
    },
    "normalised in training": {"make": images, "training": scaled(1 / 0.31, -0.33 / 0.31)},
    "another normalisation": {"make": images, "training": scaled(2, -1)},
    "numbers of another data set": {
        "make": images,
        "training": scaled(4.4, -2),
        "validation": scaled(2, -1),
    },
    "constant": {"make": table, "validation": scaled(0, 0.2)},
    "small batches": {"make": table, "validation": scaled(50), "rows": (32, 2)},
    "batches of one row": {"make": table, "validation": scaled(50), "rows": (8, 1), "passes": 12},
    "skewed": {"make": skewed, "validation": scaled(1000)},
}


@pytest.mark.parametrize("options", MUTATIONS.values(), ids=MUTATIONS)
def test_another_scale_is_found(options: dict[str, Any]) -> None:
    issues = found(run(**options))
    assert issues
    evidence = issues[0].evidence
    assert evidence.tensor == "Net_input_0"
    assert "in validation its mean is" in evidence.sentence
    assert evidence.remedy.startswith("Prepare validation inputs")
    assert evidence.value != evidence.threshold


HEALTHY: dict[str, dict[str, Any]] = {
    "same": {"make": table},
    "columns as of a file": {"make": columns},
    "images": {"make": images},
    "raw in both": {"make": images, "training": scaled(255), "validation": scaled(255)},
    "skewed, small batches": {"make": skewed, "rows": (64, 4)},
    "skewed, large batches": {"make": skewed, "rows": (4, 256)},
    "noise in training": {"make": table, "training": noisy(1.0)},
    "noise in training images": {"make": images, "training": noisy(0.3)},
    "mixed rows in training": {"make": images, "training": mixed},
    "brighter in training": {"make": images, "training": scaled(1.2, -0.1)},
    "sorted validation": {"make": table, "validation": of_one_class},
    "a later time": {"make": table, "validation": later},
    "moderate drift": {"make": table, "validation": scaled(0.8, 1.5)},
    "one row in validation": {"make": table, "rows": (32, 1)},
    "few rows of another scale": {
        "make": table,
        "validation": scaled(50),
        "rows": (32, 1),
        "passes": 7,  # 14 rows
    },
    "ragged": {"make": table, "validation": of_rows(7)},
    "token ids": {"make": lambda r, n: r.integers(0, 30_000, (n, 16))},
    "token ids, others in validation": {
        "make": lambda r, n: r.integers(0, 30_000, (n, 16)),
        "validation": lambda _, x, y: (x % 7, y),
    },
    "bits": {"make": lambda r, n: (r.random((n, 8)) < 0.1).astype(np.float32)},
}


@pytest.mark.parametrize("options", HEALTHY.values(), ids=HEALTHY)
def test_the_same_scale_is_not_reported(options: dict[str, Any]) -> None:
    assert not found(run(**options))


@pytest.mark.parametrize(
    "bad",
    [
        np.array([["a", "b"]] * 32),
        np.full((32, 8), np.nan),
        np.full((32, 8), np.inf),
        np.full((32, 8), 1e300),
        np.empty((0, 8)),
        np.float32(3),
    ],
)
def test_bad_validation_inputs_are_no_finding_and_no_error(bad: Any) -> None:
    def broken(_: Random, inputs: Array, targets: Array) -> tuple[Array, Array]:
        return np.asarray(bad), targets

    assert not found(run(table, validation=broken))


def test_labels_that_are_texts_are_unknown_targets() -> None:
    def texts(_: Random, inputs: Array, targets: Array) -> tuple[Array, Array]:
        return inputs, np.array([f"class {number}" for number in targets])

    assert not found(run(table, training=texts, validation=texts))


def test_a_try_of_the_model_in_advance_is_no_validation() -> None:
    trial = TrialBuilder()
    weights = {"Net_fc.weight": np.eye(2)}
    random = np.random.default_rng(0)
    trial.step(0, {**weights, "Net_input_0": np.zeros((32, 8))}, mode=ModeKeys.EVAL)
    for step in range(1, 20):
        mode = ModeKeys.EVAL if step > 10 else ModeKeys.TRAIN
        trial.step(step, {**weights, "Net_input_0": table(random, 32)}, mode=mode)
    assert not found_at(InputStatistics(), trial)


def test_too_few_steps_to_compare_are_not_evaluated() -> None:
    trial = run(table, validation=scaled(50), passes=1)
    outcomes = trial.outcomes(InputStatistics())[-2:]
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)
    assert "too few" in str(outcomes[-1])


def test_other_inputs_are_compared_each_with_itself() -> None:
    """A second model with large inputs is no reason to report the first."""
    random, trial = np.random.default_rng(0), TrialBuilder()
    for step in range(30):
        mode = ModeKeys.EVAL if step % 6 > 3 else ModeKeys.TRAIN
        inputs = {"Net_input_0": table(random, 32), "Other_input_0": 50 * table(random, 32)}
        trial.step(
            step, {"Net_fc.weight": np.eye(2), "Other_fc.weight": np.eye(3), **inputs}, mode=mode
        )
    assert not found(trial)
