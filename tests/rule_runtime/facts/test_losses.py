"""What a step shows of its losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rule_runtime.facts.losses import Input, Losses, LossKind, with_constant_targets
from rule_runtime.testing import TrialBuilder

RNG = np.random.default_rng(0)
SCORES, CLASSES = RNG.normal(0, 1, (32, 10)), np.arange(32) % 10
SHARES = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
BITS, NUMBERS = CLASSES[:, None] % 2.0, RNG.normal(5, 1, (32, 1))


def losses_of(name: str, outputs: Any, targets: Any, value: float = 1.0) -> Losses:
    trial = TrialBuilder()
    inputs = {f"{name}_input_0": outputs, f"{name}_input_1": targets}
    trial.step(0, {**inputs, f"{name}_output_0": np.float64(value)})
    (view,) = trial.views()
    return view.fact(Losses)


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "kind", "zero"),
    [
        ("CrossEntropyLoss", SCORES, CLASSES, LossKind.CLASSES, math.log(10)),
        ("BCEWithLogitsLoss", SCORES[:, :1], BITS, LossKind.BINARY, math.log(2)),
        ("MSELoss", SCORES[:, :1], NUMBERS, LossKind.SQUARES, (NUMBERS**2).mean()),
        ("L1Loss", SCORES[:, :1], 0.01 * NUMBERS, LossKind.DISTANCES, 1.0),
        ("OwnLoss", SCORES, CLASSES, LossKind.LOOKS_LIKE_CLASSES, math.log(10)),
        ("OwnLoss", SCORES, SCORES, LossKind.UNKNOWN, math.nan),
    ],
)
def test_kinds_and_losses_of_zero_outputs(
    name: str, outputs: Any, targets: Any, kind: LossKind, zero: float
) -> None:
    (loss,) = losses_of(name, outputs, targets).losses
    assert (loss.kind, loss.owner, loss.value) == (kind, name, 1.0)
    assert loss.zero_output_loss == pytest.approx(zero, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "loss"),
    [
        (
            "CrossEntropyLoss",
            SCORES,
            CLASSES,
            np.log(np.exp(SCORES).sum(1)) - SCORES[np.arange(32), CLASSES],
        ),
        ("NLLLoss", np.log(SHARES), CLASSES, -np.log(SHARES[np.arange(32), CLASSES])),
        ("BCELoss", SHARES[:, :1], BITS, -np.log(np.where(BITS, SHARES[:, :1], 1 - SHARES[:, :1]))),
        (
            "BCEWithLogitsLoss",
            SCORES[:, :1],
            BITS,
            np.logaddexp(0, SCORES[:, :1]) - BITS * SCORES[:, :1],
        ),
        ("MSELoss", SCORES[:, :1], NUMBERS, (SCORES[:, :1] - NUMBERS) ** 2),
        ("L1Loss", SCORES[:, :1], NUMBERS, abs(SCORES[:, :1] - NUMBERS)),
    ],
)
def test_a_mean_is_within_its_bound_and_a_sum_is_not(
    name: str, outputs: Any, targets: Any, loss: Any
) -> None:
    (of,) = losses_of(name, outputs, targets).losses
    assert loss.mean() <= of.largest_mean < loss.sum()


def test_values_and_unknown_losses() -> None:
    losses = losses_of("MSELoss", SCORES, SCORES + 1)
    values = losses.values(losses.losses[0])
    assert values is not None
    assert np.array_equal(values[1], SCORES + 1)
    unknown = losses.find("train-rmse", "worker_0")
    assert (unknown.row, unknown.kind, unknown.targets) == (-1, LossKind.UNKNOWN, None)
    assert math.isnan(unknown.value)


@pytest.mark.parametrize(
    ("targets", "is_made_up"),
    [(np.ones(32), True), (np.full(32, 0.7), False), (np.ones(8), False), (BITS, False)],
)
def test_targets_that_a_script_makes_up(targets: Any, *, is_made_up: bool) -> None:
    trial = TrialBuilder()
    named = {"MSELoss_input_1": targets, "MSELoss_output_0": 1.0, "total_loss": 1.0}
    trial.step(0, {name: np.asarray(value) for name, value in named.items()})
    (view,) = trial.views()
    pairs = [("MSELoss_output_0", "worker_0"), ("total_loss", "worker_0")]
    assert with_constant_targets(view, pairs) == frozenset(pairs if is_made_up else [])
    of_keras = pairs[1:]  # its hook saves the mean apart from the loss with the targets
    assert with_constant_targets(view, of_keras) == frozenset(of_keras if is_made_up else [])


@pytest.mark.parametrize(
    ("name", "matches", "outputs", "kind"),
    [
        ("MSELoss", 2, SCORES, LossKind.SQUARES),
        ("MSELoss", 1, SCORES, LossKind.UNKNOWN),
        ("BCEWithLogitsLoss", 5, SCORES, LossKind.BINARY),
        ("BCELoss", 5, SCORES, LossKind.UNKNOWN),
        ("BCELoss", 5, BITS, LossKind.BINARY),
        ("CategoricalCrossentropyLoss", 5, SCORES, LossKind.UNKNOWN),
    ],
)
def test_the_formula_of_a_loss_is_that_of_the_usual_loss_that_it_equalled_twice(
    name: str, matches: int, outputs: Any, kind: LossKind
) -> None:
    trial = TrialBuilder()
    tensors = {"Loss_input_0": outputs, "Loss_input_1": SCORES, "Loss_output_0": 3.0}
    standard = {"L1Loss": 3.0, name: 3.0}
    tensors |= {f"Loss_standard/{of}": value for of, value in standard.items()}
    tensors |= {"Loss_matches/L1Loss": 0, f"Loss_matches/{name}": matches}
    trial.step(0, {of: np.asarray(value) for of, value in tensors.items()})
    (view,) = trial.views()
    (loss,) = view.fact(Losses).losses
    assert (loss.formula, loss.kind) == (name if kind is not LossKind.UNKNOWN else "", kind)
    assert loss.standard == standard


def described(values: np.ndarray[Any, Any]) -> Input:
    ends = float(values.min()), float(values.max())
    moments = float(values.mean()), float(values.std())
    return Input(values.shape, str(values.dtype), values.size, *ends, *moments)


def test_statistics_of_two_batches_are_those_of_all_elements() -> None:
    random = np.random.default_rng(0)
    first, second = random.normal(3, 2, (5, 2)), random.normal(-1, 1, (2, 2))
    both, expected = described(first).plus(described(second)), described(np.vstack([first, second]))
    assert both.shape == second.shape
    assert both[2:7] == pytest.approx(expected[2:7])
    assert both.range == max(np.ptp(first), np.ptp(second))


def test_single_elements_have_the_range_of_all() -> None:
    one, other, third = (described(np.array([number])) for number in (1.0, 4.0, 3.0))
    assert one.plus(other).plus(third).range == 3


@pytest.mark.parametrize(
    ("values", "has_fractions"),
    [
        (np.array([0, 1, 7]), False),
        (np.array([0.0, 1.0, 7.0], np.float32), False),
        (np.array([0.0, 1.5, 7.0]), True),
        (np.array([0.5, 1.5]), True),
        (np.array([0.0, 0.25, 0.75, 1.0]), True),  # only the sum of squares shows it
        (np.array([0.0, np.nan]), False),
        (np.random.default_rng(0).integers(0, 1000, 4096).astype(np.float32), False),
    ],
)
def test_fractions_among_whole_numbers(values: Any, *, has_fractions: bool) -> None:
    assert described(values).has_fractions is has_fractions
