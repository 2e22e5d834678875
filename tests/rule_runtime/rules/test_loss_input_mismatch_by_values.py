"""What only the values of outputs and targets tell of a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound, Passed
from rule_runtime.rules.loss_input_mismatch import LossInputMismatch
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

RANDOM = np.random.default_rng(0)
STEPS = (0, 100, 200, 300)


def softmax(scores: Any, axis: int) -> Any:
    powers = np.exp(scores - scores.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def run(name: str, outputs: Any, targets: Any) -> TrialBuilder:
    trial = TrialBuilder()
    for step in STEPS:
        tensors = {f"{name}_input_0": outputs(), f"{name}_input_1": targets()}
        trial.step(step, {**tensors, f"{name}_output_0": np.float64(1)}, mode_step=step)
    return trial


def scores(*shape: int) -> Any:
    return RANDOM.normal(0, 2, shape).astype(np.float32)


@pytest.mark.parametrize("name", ["NLLLoss", "KLDivLoss", "CrossEntropyLoss", "Loss"])
@pytest.mark.parametrize(
    ("shape", "axis", "is_found"),
    [
        ((32, 5), 1, False),
        ((32, 5), 0, True),
        ((8, 5, 6), 1, False),
        ((8, 5, 6), 2, True),
        ((8, 5, 6), 0, True),
        ((1, 5), 1, False),
        ((1, 5), 0, False),  # ones: of a single row nobody can tell
    ],
)
def test_a_softmax_over_another_axis_than_that_of_the_classes(
    name: str, shape: tuple[int, ...], axis: int, is_found: bool
) -> None:
    def outputs() -> Any:
        shares = softmax(scores(*shape), axis)
        return np.log(shares) if name in ("NLLLoss", "KLDivLoss") else shares

    trial = run(name, outputs, lambda: RANDOM.integers(0, 5, shape[0]))
    assert bool(found_at(LossInputMismatch(), trial)) is is_found
    outcome = trial.outcomes(LossInputMismatch())[-1]
    if is_found:
        assert isinstance(outcome, IssueFound)
        assert f"sum to 1 along dimension {axis}, and not to 1 along dimension 1" in (
            outcome.evidence.sentence
        )


@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_balanced_both_ways_is_right_one_way(axis: int) -> None:
    balanced = np.full((4, 4), 0.25, np.float32)
    trial = run("CrossEntropyLoss", lambda: softmax(balanced, axis), lambda: np.arange(4))
    assert not found_at(LossInputMismatch(), trial)


def test_scores_are_no_probabilities() -> None:
    trial = run("CrossEntropyLoss", lambda: scores(32, 5), lambda: RANDOM.integers(0, 5, 32))
    assert not found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize(
    ("targets", "is_found"),
    [
        (lambda: RANDOM.integers(0, 10, 64).astype(np.float32), True),
        (lambda: RANDOM.integers(1, 11, 64).astype(np.float32), False),  # from 1 on
        (lambda: RANDOM.integers(0, 2, 64).astype(np.float32), False),  # yes and no
        (lambda: RANDOM.poisson(2, 64).astype(np.float32), False),  # some are frequent
        (lambda: RANDOM.normal(5, 2, 64).astype(np.float32), False),
    ],
)
@pytest.mark.parametrize("name", ["MSELoss", "SmoothL1Loss"])
def test_targets_that_are_numbers_of_classes_are_no_amounts(
    name: str, targets: Any, is_found: bool
) -> None:
    trial = run(name, lambda: scores(64), targets)
    for step in range(310, 360, 10):
        given = {f"{name}_input_0": scores(64), f"{name}_input_1": targets()}
        trial.step(step, {**given, f"{name}_output_0": np.float64(1)}, mode_step=step)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


@pytest.mark.parametrize("name", ["NLLLoss", "CrossEntropyLoss", "Loss"])
def test_empty_batches_are_passed_over(name: str) -> None:
    trial = run(name, lambda: np.zeros((0, 5), np.float32), lambda: np.zeros(0, np.int64))
    assert not found_at(LossInputMismatch(), trial)


def run_of_text(read: Any, *, places: tuple[int, int] = (8, 5), columns: bool = False) -> Any:
    """Return a run whose model writes scores [B, T, 6] of tokens [B, T], read in some way."""
    trial = TrialBuilder()
    for step in STEPS:
        text = RANDOM.integers(0, 6, (places[0], places[1] + 1))
        written, targets = scores(*places, 6), text[:, 1:]
        if columns:
            targets = targets.T
        given = read(written)
        tensors = {
            "Writer_input_0": text[:, :-1],
            "Writer_output_0": written,
            "CrossEntropyLoss_input_0": np.ascontiguousarray(given),
            "CrossEntropyLoss_input_1": targets if given.ndim == 3 else targets.reshape(-1),
            "CrossEntropyLoss_output_0": np.float64(2),
        }
        trial.step(step, tensors, mode_step=step)
    return trial


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda written: written.transpose(0, 2, 1), None),
        (lambda written: written.reshape(-1, 6), None),
        (lambda written: written.transpose(0, 2, 1)[::-1], None),
        (lambda written: 2 * written.reshape(-1, 6, 5), None),
        (lambda written: written.reshape(8, 6, 5), "[8, 6, 5], which the model returns as"),
        (lambda written: written.transpose(0, 2, 1).reshape(-1, 6), "mixes classes and places"),
        (lambda written: written.transpose(1, 0, 2).reshape(-1, 6), "row by row and column by"),
    ],
)
def test_scores_that_are_read_in_another_order_than_they_were_written(
    read: Any, message: Any
) -> None:
    trial = run_of_text(read)
    assert found_at(LossInputMismatch(), trial) == ([] if message is None else [100, 200, 300])
    outcome = trial.outcomes(LossInputMismatch())[-1]
    if message is not None:
        assert isinstance(outcome, IssueFound)
        assert message in outcome.evidence.sentence


@pytest.mark.parametrize("places", [(8, 5), (5, 5)])
def test_scores_and_targets_of_one_order_are_right(places: tuple[int, int]) -> None:
    def by_columns(written: Any) -> Any:
        return written.transpose(1, 0, 2).reshape(-1, 6)

    assert not found_at(LossInputMismatch(), run_of_text(by_columns, places=places, columns=True))
    by_rows = run_of_text(lambda written: written.reshape(-1, 6), places=places, columns=True)
    assert found_at(LossInputMismatch(), by_rows)


@pytest.mark.parametrize(
    ("divided", "axis", "written"),
    [
        ((8, 5, 3, 6), 3, (8, 5, 18)),
        ((8, 5, 6, 4), 2, (8, 5, 24)),
        ((6, 5, 3, 6), 3, (6, 5, 18)),
    ],
)
def test_scores_of_several_tables_may_be_divided(divided: Any, axis: int, written: Any) -> None:
    trial = TrialBuilder()
    for step in STEPS:
        tables = scores(*divided)
        tensors = {
            "Writer_input_0": RANDOM.integers(0, 6, written[:2]),
            "Writer_output_0": tables.reshape(written),
            "CrossEntropyLoss_input_0": np.moveaxis(tables, axis, -1).reshape(-1, 6),
            "CrossEntropyLoss_input_1": RANDOM.integers(0, 6, tables.size // 6),
            "CrossEntropyLoss_output_0": np.float64(2),
        }
        trial.step(step, tensors, mode_step=step)
    assert all(isinstance(outcome, Passed) for outcome in trial.outcomes(LossInputMismatch()))


def test_a_model_that_says_one_thing_is_not_judged_by_the_order() -> None:
    trial = run_of_text(lambda written: np.zeros_like(written).reshape(8, 6, 5))
    assert not found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize(
    ("targets", "is_found"),
    [
        (lambda: RANDOM.uniform(0, 0.7, (32, 2)), True),  # places
        (lambda: RANDOM.normal(0, 1, (32, 3)), True),
        (lambda: softmax(scores(32, 3), 1), False),
        (lambda: 0.5 * softmax(scores(32, 3), 1), False),  # the loss is half as large
        (lambda: softmax(scores(32, 3), 1) * (RANDOM.uniform(0, 1, (32, 1)) > 0.5), False),
        (lambda: np.eye(3)[RANDOM.integers(0, 3, 32)] * RANDOM.uniform(0, 1, (32, 1)), False),
    ],
)
def test_targets_of_a_cross_entropy_that_are_no_probabilities(targets: Any, is_found: bool) -> None:
    def given() -> Any:
        return targets().astype(np.float32)

    trial = run("CrossEntropyLoss", lambda: scores(*given().shape), given)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


@pytest.mark.parametrize(("columns", "is_found"), [(1, True), (2, False), (4, False), (20, True)])
def test_places_are_no_numbers_of_classes(columns: int, is_found: bool) -> None:
    """Corners of boxes are whole numbers as well; the kinds of a sequence are many columns."""
    trial = run(
        "MSELoss",
        lambda: scores(512, columns),
        lambda: RANDOM.integers(0, 12, (512, columns)).astype(np.float32),
    )
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


def weighted(outputs: Any, targets: Any, *, yes: float = 1.0, no: float = 1.0) -> float:
    of_yes, of_no = targets * np.logaddexp(0, -outputs), (1 - targets) * np.logaddexp(0, outputs)
    return float((yes * of_yes + no * of_no).mean())


@pytest.mark.parametrize(
    ("weights", "share", "is_found"),
    [
        ({}, 0.5, False),
        ({"yes": 100.0}, 0.5, True),
        ({"yes": 0.01}, 0.5, True),
        ({"yes": 5.0}, 0.5, False),
        ({"yes": 19.0}, 0.05, False),
        ({"yes": 100.0}, 0.05, False),
        ({"yes": 400.0}, 0.05, True),
        ({"yes": 0.05}, 0.05, True),  # that of the other class
        ({"yes": 50.0, "no": 50.0}, 0.5, False),  # a factor
        ({}, 0.02, False),
    ],
)
def test_a_weight_of_yes_that_its_rarity_does_not_explain(
    weights: dict[str, float], share: float, is_found: bool
) -> None:
    trial = TrialBuilder()
    for step in STEPS:
        outputs = RANDOM.normal(step / 200, 1, 400)
        targets = (RANDOM.uniform(size=400) < share).astype(np.float32)
        tensors = {"BCEWithLogitsLoss_input_0": outputs, "BCEWithLogitsLoss_input_1": targets}
        loss = np.float64(weighted(outputs, targets, **weights))
        trial.step(step, {**tensors, "BCEWithLogitsLoss_output_0": loss}, mode_step=step)
    assert found_at(LossInputMismatch(), trial) == ([200, 300] if is_found else [])


def cross_entropy(outputs: Any, targets: Any, axis: int) -> float:
    shares = np.log(softmax(outputs.astype(np.float64), axis))
    return float(-(targets * shares).sum(axis).mean())


@pytest.mark.parametrize(
    ("shape", "axis", "targets", "is_found"),
    [
        ((8, 3, 4), 1, lambda: RANDOM.uniform(0, 1, (8, 3, 4)), True),  # colours
        ((8, 3, 4), 1, lambda: softmax(scores(8, 3, 4), 1), False),
        ((8, 3, 4), 2, lambda: RANDOM.uniform(0, 1, (8, 3, 4)), False),  # it is another loss
        ((32, 1), 0, lambda: RANDOM.integers(0, 2, (32, 1)), True),  # over the batch
        ((32, 1), 0, lambda: softmax(scores(32, 1), 0), False),
        ((32, 1), 1, lambda: RANDOM.integers(0, 2, (32, 1)), False),  # always 0
    ],
)
def test_a_loss_that_proves_to_be_a_cross_entropy(
    shape: tuple[int, ...], axis: int, targets: Any, is_found: bool
) -> None:
    trial = TrialBuilder()
    for step in STEPS:
        o, t = scores(*shape), targets().astype(np.float32)
        tensors = {"OwnLoss_input_0": o, "OwnLoss_input_1": t}
        loss = np.float64(cross_entropy(o, t, axis))
        trial.step(step, {**tensors, "OwnLoss_output_0": loss}, mode_step=step)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


@pytest.mark.parametrize("name", ["Loss", "MSELoss", "OwnLoss"])
@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize(("columns", "is_found"), [(5, True), (4, False)])
def test_every_score_against_the_number_of_the_class(
    name: str, spread: bool, columns: int, is_found: bool
) -> None:
    trial = TrialBuilder()
    for step in STEPS:
        outputs, classes = scores(32, columns), RANDOM.integers(0, 5, (32, 1)).astype(np.float32)
        loss = np.float64(np.square(outputs.astype(np.float64) - classes).mean())
        targets = np.repeat(classes, columns, axis=1) if spread else classes
        tensors = {f"{name}_input_0": outputs, f"{name}_input_1": targets}
        trial.step(step, {**tensors, f"{name}_output_0": loss}, mode_step=step)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


def test_a_cross_entropy_of_a_single_score_is_not_one_over_the_batch() -> None:
    trial = run("CrossEntropyLoss", lambda: scores(32, 1), lambda: np.ones((32, 1), np.float32))
    outcome = next(o for o in trial.outcomes(LossInputMismatch()) if isinstance(o, IssueFound))
    assert outcome.evidence.measure == "scores"
    assert not any(
        "over the 32 rows" in o.evidence.sentence
        for o in trial.outcomes(LossInputMismatch())
        if isinstance(o, IssueFound)
    )
