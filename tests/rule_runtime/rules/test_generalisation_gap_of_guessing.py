"""GeneralisationGap where validation rises, or was never better than one answer for all rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at


def of_passes(
    validation: Iterable[float],
    training: Iterable[float],
    *,
    name: str = "CrossEntropyLoss",
    inputs: Mapping[str, object] | None = None,
    noise: float = 0.0,
    length: int = 60,
) -> TrialBuilder:
    """Return a run with a saved training step in five and one step of each pass."""
    random = np.random.default_rng(1)
    trial = TrialBuilder()
    step = 0
    for number, (now, of_training) in enumerate(zip(validation, training, strict=True)):
        for at in range(0, length, 5):
            loss = of_training + noise * random.normal()
            mode_step = number * length + at
            tensors = {**(inputs or {}), f"{name}_output_0": np.float64(loss)}
            trial.step(step, tensors, mode=ModeKeys.TRAIN, mode_step=mode_step)
            step += 1
        tensors = {**(inputs or {}), f"{name}_output_0": np.float64(now)}
        trial.step(step, tensors, mode=ModeKeys.EVAL, mode_step=number)
        step += 1
    return trial


@pytest.mark.parametrize(
    ("validation", "training", "is_found"),
    [
        ([-31, -29, -27, -25], [-8, -28, -28, -28], True),
        ([-31, -30.9, -30.8, -30.7], [-8, -28, -28, -28], False),  # it hardly rises
        ([-25, -31, -29, -27], [-8, -28, -28, -28], False),  # not often enough in a row
        ([-31, -25, -31, -25], [-8, -28, -28, -28], False),
        ([-25, -27, -29, -31], [-8, -28, -28, -28], False),
    ],
)
def test_validation_that_rises_though_training_is_too_noisy_to_tell(
    validation: list[float], training: list[float], *, is_found: bool
) -> None:
    trial = of_passes(validation, training, name="PoissonNLLLoss", noise=6.0)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


def test_validation_and_training_that_rise_together_are_another_fault() -> None:
    trial = of_passes([0.5, 0.9, 1.3, 1.7], [0.5, 0.9, 1.3, 1.7])
    assert not found_at(GeneralisationGap(), trial)


TWENTY_SIX = {
    "CrossEntropyLoss_input_0": np.sin(np.arange(1664 * 26.0)).reshape(1664, 26),
    "CrossEntropyLoss_input_1": np.arange(1664) % 26,
}
NUMBERS = {"MSELoss_input_0": np.zeros(1800), "MSELoss_input_1": np.arange(1800.0) % 2}  # of 0.25


@pytest.mark.parametrize(
    ("name", "inputs", "validation", "training", "is_found"),
    [
        ("CrossEntropyLoss", TWENTY_SIX, [3.27, 3.29, 3.28, 3.30], 3.26, True),
        ("CrossEntropyLoss", TWENTY_SIX, [4.3, 4.05, 4.2, 4.3, 4.2, 4.2], 3.5, True),
        ("CrossEntropyLoss", TWENTY_SIX, [4.3, 3.76, 3.96, 3.91, 4.05, 4.14], 3.3, True),
        ("CrossEntropyLoss", TWENTY_SIX, [3.20, 3.20, 3.20, 3.20], 3.2, False),  # classes differ
        ("CrossEntropyLoss", TWENTY_SIX, [5.0, 4.5, 4.0, 3.6], 3.5, False),  # it still falls
        ("CrossEntropyLoss", {}, [3.27, 3.29, 3.28, 3.30], 3.26, False),
        ("MSELoss", NUMBERS, [0.25, 0.26, 0.26, 0.26], 0.24, True),
        ("MSELoss", NUMBERS, [0.24, 0.24, 0.24, 0.24], 0.24, False),
    ],
)
def test_validation_that_is_never_better_than_one_answer_for_all_rows(
    name: str,
    inputs: Mapping[str, object],
    validation: list[float],
    training: float,
    *,
    is_found: bool,
) -> None:
    first = 1.15 * training
    falling = [first, *[training] * (len(validation) - 1)]
    trial = of_passes(validation, falling, name=name, inputs=inputs)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found
    short = of_passes(validation, falling, name=name, inputs=inputs, length=15)
    assert not found_at(GeneralisationGap(), short)  # there was hardly time to learn


@pytest.mark.parametrize(
    ("training", "advice"), [(3.26, "check that labels belong to their inputs"), (2.5, "more data")]
)
def test_regularisation_is_no_advice_for_what_never_learned(training: float, advice: str) -> None:
    validation = [3.27, 3.29, 3.28, 3.30]
    trial = of_passes(validation, [3.4, *[training] * 3], inputs=TWENTY_SIX)
    outcomes = trial.outcomes(GeneralisationGap())
    remedies = [o.evidence.remedy for o in outcomes if isinstance(o, IssueFound)]
    assert remedies
    assert all(advice in remedy for remedy in remedies)


def test_a_sum_is_not_compared_with_one_answer() -> None:
    targets = np.sin(np.arange(128.0))
    for outputs, is_found in ((0.0 * targets, True), (0.99 * targets, False)):
        loss = float(((outputs - targets) ** 2).sum())
        inputs = {"MSELoss_input_0": outputs, "MSELoss_input_1": targets}
        training = [64.0, *[loss] * 4]  # it was learned ahead of the first pass, if at all
        of_one = [loss / 128] * 5
        as_sum = of_passes([loss] * 5, training, name="MSELoss", inputs=inputs)
        as_mean = of_passes(of_one, of_one, name="MSELoss", inputs=inputs)
        assert not found_at(GeneralisationGap(), as_sum)
        assert bool(found_at(GeneralisationGap(), as_mean)) is is_found


def test_what_only_looks_like_classes_must_begin_at_guessing() -> None:
    """A distance between embeddings of 32 numbers, with classes below 32 as targets."""
    inputs = {"CenterLoss_input_0": 9 * np.eye(40, 32), "CenterLoss_input_1": np.arange(40) % 9}
    for scale, is_found in ((1.0, True), (10.0, False)):
        validation = np.array([3.5, 3.52, 3.51, 3.53]) * scale
        training = np.array([3.6, 3.4, 3.4, 3.4]) * scale
        trial = of_passes(validation, training, name="CenterLoss", inputs=inputs)
        assert bool(found_at(GeneralisationGap(), trial)) is is_found


def test_a_sum_that_falls_fast_ahead_of_the_first_pass_is_a_sum() -> None:
    """Training is six times less than validation where that begins, on 40 times as many rows."""
    trial = TrialBuilder()
    step = 0
    for training, validation in ((5.0, 30.0), (0.3, 23.0), (0.3, 14.0), (0.3, 12.0), (0.3, 12.0)):
        for mode, loss, rows in ((ModeKeys.TRAIN, training, 8), (ModeKeys.EVAL, validation, 300)):
            targets = np.sin(np.arange(rows))[:, None]
            tensors = {
                "MSELoss_input_0": 0.9 * targets,
                "MSELoss_input_1": targets,
                "MSELoss_output_0": np.float64(loss),
            }
            for _ in range(5):
                trial.step(step, tensors, mode=mode, mode_step=step)
                step += 1
    assert not found_at(GeneralisationGap(), trial)


@pytest.mark.parametrize("name", ["HuberLoss", "DistanceLoss"])
@pytest.mark.parametrize(("share", "is_found"), [(1.0, True), (0.97, False)])
def test_what_one_number_gives_is_computed_of_values(
    name: str, share: float, *, is_found: bool
) -> None:
    random = np.random.default_rng(0)
    targets = random.normal(0, 1, (1800, 2))
    outputs = random.normal(0, 0.1, (1800, 2))
    sizes = np.abs(outputs - targets)
    now = float(np.where(sizes < 1, sizes**2 / 2, sizes - 0.5).mean())
    # By which the latest passes stand still a little above the best number, or below it.
    sizes = np.abs(targets - np.median(targets))
    best = float(np.where(sizes < 1, sizes**2 / 2, sizes - 0.5).mean())
    assert best < now < 1.02 * best
    trial, step = TrialBuilder(), itertools.count()
    for number in range(8):
        values = {f"{name}_input_0": outputs, f"{name}_input_1": targets} if not number else {}
        for at in range(0, 60, 5):
            tensors = {f"{name}_output_0": np.float64(best)}
            trial.step(next(step), tensors, mode=ModeKeys.TRAIN, mode_step=60 * number + at)
        loss = share * best if number else now
        tensors = {f"{name}_output_0": np.float64(loss), **values}
        trial.step(next(step), tensors, mode=ModeKeys.EVAL, mode_step=number)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize(
    ("validation", "is_found"),
    [
        ([1.3, 1.31, 1.3, 1.32], True),  # the variance of all targets together is 1.25
        ([1.0, 1.01, 1.0, 1.02], False),  # far above what one answer for each step gives
        ([1.9, 2.5, 1.95, 4.0, 2.2, 5.0], True),  # far above it, however it jumps
    ],
)
@pytest.mark.parametrize("has_all_targets", [True, False])
def test_the_targets_of_a_pass_are_looked_at_together(
    validation: list[float], *, is_found: bool, has_all_targets: bool
) -> None:
    """Two steps of a pass in the order of the targets: each has a variance of 0.25 by itself."""
    trial = TrialBuilder()
    step = 0
    for number, loss in enumerate(validation):
        for at in range(0, 60, 5):
            tensors = {"MSELoss_output_0": np.float64(1.25)}
            trial.step(step, tensors, mode=ModeKeys.TRAIN, mode_step=60 * number + at)
            step += 1
        for part in (-1, 1):
            targets = {"MSELoss_input_1": np.arange(40.0) % 2 - 0.5 + part}
            given = targets if part == 1 or has_all_targets else {}
            outputs = {"MSELoss_input_0": 4 * np.sin(np.arange(40.0))}
            tensors = {**given, **outputs, "MSELoss_output_0": np.float64(loss)}
            trial.step(step, tensors, mode=ModeKeys.EVAL, mode_step=2 * number + (part > 0))
            step += 1
    assert bool(found_at(GeneralisationGap(), trial)) is (is_found and has_all_targets)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("size", [1e155, 1e200, 1e308])
@pytest.mark.parametrize("name", ["MSELoss", "L1Loss", "HuberLoss", "Loss"])
def test_targets_whose_squares_are_no_numbers(name: str, size: float) -> None:
    targets = size * np.random.default_rng(0).uniform(-1, 1, 64)
    inputs = {f"{name}_input_0": -targets, f"{name}_input_1": targets}
    trial = of_passes([1.0] * 4, [1.0] * 4, name=name, inputs=inputs)
    assert not found_at(GeneralisationGap(), trial)


def of_two_classes(
    levels: Iterable[float],
    *,
    weight: float = 1.0,
    name: str = "CrossEntropyLoss",
    steps: int = 1,
    of_sums: tuple[ModeKeys, ...] = (),
) -> TrialBuilder:
    """Return a run with passes of 120 rows, of which 40 have class 1, in so many steps.

    Scores are what frequencies give, but for noise, and what a level takes from its loss.
    """
    random = np.random.default_rng(0)
    trial = TrialBuilder()
    step = 0

    def save(mode: ModeKeys, mode_step: int, labels: Any, level: float) -> None:
        nonlocal step
        scores = np.log([2 / 3, 1 / 3]) + 0.01 * random.normal(size=(len(labels), 2))
        scores[np.arange(len(labels)), labels] += level
        losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(len(labels)), labels]
        weights = np.where(labels == 1, weight, 1.0)
        tensors = {
            f"{name}_input_0": scores.astype(np.float32),
            f"{name}_input_1": labels,
            f"{name}_output_0": np.float64(
                (weights * losses).sum() / (1.0 if mode in of_sums else weights.sum())
            ),
        }
        trial.step(step, tensors, mode=mode, mode_step=mode_step)
        step += 1

    for number, level in enumerate(levels):
        for at in range(0, 60, 5):
            save(ModeKeys.TRAIN, 60 * number + at, random.permutation(np.arange(60) % 3 // 2), 0.0)
        of_pass = random.permutation(np.arange(120) % 3 // 2)
        for part, labels in enumerate(np.split(of_pass, steps)):
            save(ModeKeys.EVAL, number * steps + part, labels, level)
    return trial


@pytest.mark.parametrize("name", ["CrossEntropyLoss", "OwnLoss"])
@pytest.mark.parametrize(
    ("levels", "changes", "is_found"),
    [
        ([0.0] * 5, {}, True),
        ([0.05] * 5, {}, False),  # a little is learned
        ([0.0] * 5, {"weight": 1.2}, False),  # guessing would answer otherwise
        ([0.0] * 2, {}, False),
    ],
)
def test_guessing_of_two_classes_that_are_not_equally_frequent(
    name: str, levels: list[float], changes: dict[str, Any], *, is_found: bool
) -> None:
    """Frequencies give 0.637, far below ln 2."""
    trial = of_two_classes(levels, name=name, **changes)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


def test_a_sum_over_the_rows_of_validation_stands_beside_no_mean() -> None:
    """As of two modules, one of which has reduction='sum'."""
    trial = of_two_classes([1.0] * 5, of_sums=(ModeKeys.EVAL,))
    assert not found_at(GeneralisationGap(), trial)
    both = of_two_classes([0.0] * 5, of_sums=tuple(ModeKeys))
    assert not found_at(GeneralisationGap(), both)  # validation has twice the rows


@pytest.mark.parametrize(
    ("validation", "is_found"),
    [
        ([3.26, 3.20, 3.25, 3.24, 3.25, 3.25, 3.25], True),  # ln 26 is 3.258
        ([3.26, 3.12, 3.25, 3.24, 3.25, 3.25, 3.25], False),  # it can be better than that
        ([3.26, 3.18, 3.20, 3.19, 3.20, 3.20, 3.20], False),
        ([3.26, 3.25, 3.25, 3.24, 3.22, 3.21, 3.19], False),  # it still falls
        ([3.26, 3.18, 3.25, 3.24], False),
    ],
)
def test_validation_that_stays_where_guessing_is_but_for_some_luck(
    validation: list[float], *, is_found: bool
) -> None:
    training = np.linspace(3.26, 3.2, len(validation))
    trial = of_passes(validation, training, inputs=TWENTY_SIX, length=30)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize(
    ("validation", "length", "is_found"),
    [
        ([3.27, 3.29, 3.28], 50, True),  # ln 26 is 3.258
        ([3.27, 3.29, 3.28, 3.27], 50, True),
        ([3.20, 3.19, 3.20], 50, False),
        ([3.27, 3.28, 3.10], 50, False),  # it begins to learn
        ([3.40, 3.10, 3.28], 50, False),
        ([3.27, 3.29, 3.28], 40, False),
        ([3.27, 3.28], 80, False),
    ],
)
def test_short_trainings_that_end_where_guessing_is(
    validation: list[float], length: int, *, is_found: bool
) -> None:
    """What is seen from 90 steps on counts, and is told from 130 steps and 3 passes on."""
    training = np.linspace(3.26, 3.2, len(validation))
    trial = of_passes(validation, training, inputs=TWENTY_SIX, length=length)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize(
    ("validation", "rows", "is_found"),
    [
        ([1.10, 1.09, 1.09, 1.09, 1.10], 44, True),  # ln 3 is 1.099
        ([1.10, 1.07, 1.06, 1.07, 1.07], 450, False),  # so many have no such luck
        ([1.10, 1.07, 1.00, 1.09, 1.10], 44, False),
        ([1.13, 1.11, 1.09, 1.07, 1.05], 44, False),  # it falls
        ([1.04, 1.03, 1.04, 1.03, 1.04], 44, False),
    ],
)
def test_a_model_that_knows_nothing_may_be_lucky_with_few_rows(
    validation: list[float], rows: int, *, is_found: bool
) -> None:
    """Values are saved, but rows are too few to know from them how frequent classes are."""
    scores = np.sin(np.arange(3.0 * rows)).reshape(rows, 3)
    classes = np.arange(rows) % 3
    inputs = {"CrossEntropyLoss_input_0": scores, "CrossEntropyLoss_input_1": classes}
    training = np.linspace(1.08, 0.97, len(validation))
    trial = of_passes(validation, training, inputs=inputs, length=40)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize(("validation", "is_found"), [(0.18, False), (1.2, True)])
def test_training_that_goes_on_from_a_checkpoint_is_measured_by_guessing(
    validation: float, *, is_found: bool
) -> None:
    training = np.linspace(0.08, 0.05, 6)
    trial = of_passes([validation] * 6, training, inputs=TWENTY_SIX)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize("steps", [1])
@pytest.mark.parametrize(
    ("share", "is_apart", "is_found"),
    [(1.01, True, True), (0.9, True, False), (0.5, False, False)],
)
def test_each_column_of_targets_has_an_answer_of_its_own(
    steps: int, share: float, *, is_apart: bool, is_found: bool
) -> None:
    """Columns of variance 1, of all numbers 1 + 14 / 3: a mean image is no better than 1."""
    random = np.random.default_rng(0)
    columns = np.array([0.0, 2.0, 5.0]) if is_apart else np.zeros(3)
    targets = random.permuted(np.arange(600).reshape(200, 3) % 2 * 2.0 - 1, axis=0) + columns
    outputs = columns + 0.1 * random.normal(size=targets.shape)
    first = float(((outputs - targets) ** 2).mean())
    trial, step = TrialBuilder(), itertools.count()
    for number in range(5):
        for at in range(0, 60, 5):
            tensors = {"MSELoss_output_0": np.float64(share)}
            trial.step(next(step), tensors, mode=ModeKeys.TRAIN, mode_step=60 * number + at)
        for part in range(steps):
            of_step = {"MSELoss_input_0": outputs, "MSELoss_input_1": targets}
            loss = first if number == 0 else share * np.mean((outputs - targets) ** 2)
            tensors = {"MSELoss_output_0": np.float64(loss), **of_step}
            trial.step(next(step), tensors, mode=ModeKeys.EVAL, mode_step=steps * number + part)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


def test_between_passes_nothing_is_missing() -> None:
    trial = of_passes([2.0, 1.9, 1.8], [2.0, 1.9, 1.8])
    outcomes = trial.outcomes(GeneralisationGap())
    assert all(type(outcome) is NotEvaluated for outcome in outcomes[:12])
    assert not any(type(outcome) is NotEvaluated for outcome in outcomes[12:])
