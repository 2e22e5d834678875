"""Batches that have one class each: rows that are sorted by class, and not shuffled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import IssueFound
from rule_runtime.rules.label_degenerate import LabelDegenerate
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.outcomes import make_run
from tests.rule_runtime.rules.runs import found_at

CLASSES = 10
ENTROPY = "CrossEntropyLoss"


def run(
    batches: Iterable[Any], *, loss: str = ENTROPY, mode: ModeKeys = ModeKeys.TRAIN
) -> TrialBuilder:
    """Return a run with these targets; of a tuple each is of another call of the loss."""
    trial = TrialBuilder()
    for step, batch in enumerate(batches):
        tensors: dict[str, Any] = {}
        for call, targets in enumerate(batch if isinstance(batch, tuple) else (batch,)):
            tensors[f"{loss}_output_{call}"] = np.float64(2.3)
            tensors[f"{loss}_input_{2 * call}"] = np.ones((len(targets), CLASSES))
            tensors[f"{loss}_input_{2 * call + 1}"] = targets
        trial.step(step, tensors, mode=mode)
    return trial


def of_one_class(*classes: int, size: int = 32) -> list[Any]:
    return [np.full(size, each) for each in classes]


def in_order(num: int, num_classes: int = CLASSES, *, size: int = 32) -> list[Any]:
    """Return batches of rows that are sorted by class, epoch after epoch, 4.7 of each class."""
    rows = np.repeat(np.arange(num_classes), 150)
    starts = [(10 * size * at) % len(rows) for at in range(num)]
    return [np.take(rows, np.arange(start, start + size), mode="clip") for start in starts]


def test_rows_that_are_sorted_by_class_are_reported() -> None:
    trial = run(in_order(20))
    assert found_at(LabelDegenerate(), trial) == list(range(9, 20))
    (found, *_) = (o for o in trial.outcomes(LabelDegenerate()) if isinstance(o, IssueFound))
    assert found.evidence.tensor == f"{ENTROPY}_input_1"
    assert "has one class only in " in found.evidence.sentence
    assert found.evidence.threshold == 0.5
    assert "shuffle" in found.evidence.remedy


@pytest.mark.parametrize("loss", ["NLLLoss", "labels", "FocalLoss"])
def test_of_other_losses_and_of_labels_too(loss: str) -> None:
    trial = run(in_order(20), loss=loss)
    if loss == "labels":
        trial = make_run(
            *({"labels": labels.astype(float)} for labels in in_order(20)),
            collections={"labels": ("^labels$",)},
        )
    assert found_at(LabelDegenerate(), trial)


def test_half_of_the_batches_and_three_classes_are_enough() -> None:
    random = np.random.default_rng(0)
    mixed = [random.integers(0, CLASSES, 32) for _ in range(20)]
    assert found_at(LabelDegenerate(), run([*mixed[:5], *of_one_class(2, 2, 5, 5, 7)])) == [9]
    assert not found_at(LabelDegenerate(), run([*mixed[:6], *of_one_class(2, 2, 5, 5, 7)]))
    assert not found_at(LabelDegenerate(), run([*mixed[:4], *of_one_class(2, 2, 5, 7, 7)]))
    assert not found_at(LabelDegenerate(), run([*mixed[:5], *of_one_class(2, 2, 5, 5, 5)]))


@pytest.mark.parametrize(("size", "is_found"), [(8, True), (7, False)])
def test_few_rows_may_be_of_one_class_by_chance(size: int, *, is_found: bool) -> None:
    trial = run(of_one_class(*[0, 1, 2, 3] * 5, size=size))
    assert bool(found_at(LabelDegenerate(), trial)) is is_found


def turns(*, whole: bool) -> list[Any]:
    """Return what an adversary gets, a step for true rows and one for made up ones."""
    return [np.full((64, 1), step % 2, int if whole else float) for step in range(200)]


HEALTHY: dict[str, tuple[str, list[Any]]] = {
    "shuffled": (ENTROPY, [np.random.default_rng(s).integers(0, 10, 32) for s in range(40)]),
    "true and made up in turn": ("BCEWithLogitsLoss", turns(whole=False)),
    "the same as whole numbers": (ENTROPY, turns(whole=True)),
    "true and made up, epoch after epoch": (
        "BCEWithLogitsLoss",
        [np.full((64, 1), float(step // 25 % 2)) for step in range(200)],
    ),
    "numbers, the same in a batch": (
        "MSELoss",
        [np.full((32, 1), float(step % 4)) for step in range(40)],
    ),
    "rows that are passed over": (ENTROPY, of_one_class(*[-100, 1, -100, 2] * 10)),
    "each call has a class": (ENTROPY, [tuple(of_one_class(0, 1, 2, 3))] * 40),
    "pixels": (ENTROPY, [np.full((8, 4, 4), step % 5) for step in range(40)]),
    "columns": (ENTROPY, [np.eye(CLASSES)[np.full(32, step % 5)] for step in range(40)]),
    "what a loss of its own gets": ("Criterion", of_one_class(*range(40))),
    "a rare class in one batch": (ENTROPY, of_one_class(1, *[0] * 40, 1, *[0] * 200)),
    "a common class": (
        ENTROPY,
        [(np.random.default_rng(s).random(8) > 0.99) * (1 + s % 3) for s in range(300)],
    ),
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_batches_of_one_class_that_say_nothing(kind: str) -> None:
    loss, batches = HEALTHY[kind]
    assert not found_at(LabelDegenerate(), run(batches, loss=loss))


def test_a_validation_may_be_sorted() -> None:
    assert not found_at(LabelDegenerate(), run(in_order(40), mode=ModeKeys.EVAL))


def test_its_memory_does_not_grow() -> None:
    evaluation, sizes = Evaluation.fresh(LabelDegenerate()), list[int]()
    for view in run(of_one_class(*range(300))).views():
        evaluation.feed(view)
        sizes.append(len(str(evaluation.memory)))
    assert max(sizes[100:]) - sizes[50] < 20
