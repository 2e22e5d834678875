from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import collections_key
from rule_runtime.engine.outcome import IssueFound, Missing, NotApplicable, NotEvaluated, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from rule_runtime.testing.rule_evaluations import memory_sizes
from tests.rule_runtime.outcomes import first_finding
from tests.rule_runtime.rules.runs import LOSS, found_at, trial_of

EVAL, TRAIN = ModeKeys.EVAL, ModeKeys.TRAIN
LETTERS = {
    "CrossEntropyLoss_input_0": np.sin(np.arange(1664 * 26.0)).reshape(1664, 26),
    "CrossEntropyLoss_input_1": np.arange(1664) % 26,
}
"""Inputs of a loss of 26 classes, whose best constant predictor has a loss of ln 26 = 3.258."""
NUMBERS = {"MSELoss_input_0": np.zeros(1800), "MSELoss_input_1": np.arange(1800.0) % 2}
"""Targets of variance 0.25."""


def passes(pairs: Iterable[tuple[float, float]]) -> list[SavedStep]:
    """Return a run in which losses of training and validation take turns, 5 steps each."""
    steps: list[SavedStep] = []
    for training, validation in [*pairs, (1.0, 1.0)]:
        for mode, loss in ((TRAIN, training), (EVAL, validation)):
            for _ in range(5):
                steps.append(SavedStep(len(steps), {LOSS: np.float64(loss)}, mode, len(steps)))
    return steps[:-9]


def run_of(
    validation: Iterable[float],
    training: Iterable[float],
    *,
    name: str = "CrossEntropyLoss",
    inputs: Mapping[str, object] | None = None,
    length: int = 60,
) -> TrialBuilder:
    """Return a run with a saved training step in five and one step of each pass."""
    trial = TrialBuilder()
    step = 0
    for number, (now, of_training) in enumerate(zip(validation, training, strict=True)):
        for at in range(0, length, 5):
            tensors = {**(inputs or {}), f"{name}_output_0": np.float64(of_training)}
            trial.step(step, tensors, mode=TRAIN, mode_step=number * length + at)
            step += 1
        tensors = {**(inputs or {}), f"{name}_output_0": np.float64(now)}
        trial.step(step, tensors, mode=EVAL, mode_step=number)
        step += 1
    return trial


class TestGeneralisationGapContract(RuleContract):
    def make_rule(self) -> Rule:
        return GeneralisationGap()

    def make_steps(self, worker: int) -> Iterable[SavedStep]:  # noqa: ARG002
        return passes([(2.0, 1.9), (1.0, 1.0), (0.5, 0.6), (0.1, 0.3), (0.01, 0.3)])

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:  # noqa: ARG002
        """The training loss falls within the first pass, and the validation loss never does."""
        steps = passes([(0.01, 1.2)] * 5)
        return [steps[0]._replace(tensors={LOSS: np.float64(2.0)}), *steps[1:]]


def test_a_gap_in_two_passes_in_a_row() -> None:
    trial = trial_of(passes([(2.0, 1.9), (0.3, 0.9), (0.1, 0.9), (0.1, 0.9)]))
    assert found_at(GeneralisationGap(), trial) == [29, 39]
    found = first_finding(GeneralisationGap(), trial)
    assert found.measure == "gap_percent"
    assert found.value == pytest.approx(100 * (0.9 - 0.1) / 2.0)
    assert "a gap of 40 % of the baseline 2, more than 25 %" in found.sentence


@pytest.mark.parametrize(
    ("training", "validation", "is_found"),
    [
        (0.1, 0.61, True),
        (0.1, 0.59, False),  # less than a quarter of 2, the loss at the beginning
        (0.9, 1.79, False),  # less than twice the training loss
        (0.9, 1.81, True),
        (2.1, 9.0, False),  # training has risen: it diverges
    ],
)
def test_when_a_gap_is_found(training: float, validation: float, *, is_found: bool) -> None:
    trial = trial_of(passes([(2.0, 1.9)] + [(training, validation)] * 4))
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize(
    ("name", "validation", "training", "is_found"),
    [
        ("MSELoss", 0.12, 0.0004, True),  # errors of 0.35 and 0.02, of 1.1 at the beginning
        ("MSELoss", 0.05, 0.0004, False),
        ("HuberLoss", 0.12, 0.0004, True),  # half of the square of a small error
        ("MSELoss", 0.30, 0.1, False),  # not twice the error
        ("CrossEntropyLoss", 0.12, 0.0004, False),
    ],
)
def test_roots_of_squared_errors_are_compared(
    name: str, validation: float, training: float, *, is_found: bool
) -> None:
    trial = run_of([1.2, *[validation] * 4], [1.21, *[training] * 4], name=name)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


@pytest.mark.parametrize(("validation", "is_found"), [(0.18, False), (1.2, True)])
def test_training_from_a_checkpoint_is_measured_by_the_constant_predictor(
    validation: float, *, is_found: bool
) -> None:
    trial = run_of([validation] * 6, np.linspace(0.08, 0.05, 6), inputs=LETTERS)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


def test_the_last_pass_of_a_run_is_judged() -> None:
    steps = passes([(2.0, 1.9), (0.3, 0.9), (0.1, 0.9)])[:-1]
    assert steps[-1].mode is EVAL
    assert found_at(GeneralisationGap(), trial_of(steps)) == [29]


def test_a_finding_at_a_training_step_without_that_loss_is_reported() -> None:
    trial = trial_of(passes([(2.0, 1.9), (0.3, 0.9)])[:-1])
    trial.step(20, {LOSS: np.float64(0.1)}, mode=TRAIN, mode_step=20)
    trial.step(21, {LOSS: np.float64(0.9)}, mode=EVAL, mode_step=21)
    trial.step(22, {"L1Loss_output_0": 1.0, LOSS: 0.1}, mode=TRAIN, mode_step=22)
    assert found_at(GeneralisationGap(), trial) == [22]


def test_the_scatter_of_small_batches_is_no_gap() -> None:
    rng = np.random.default_rng(0)
    steps: list[SavedStep] = []
    for _ in range(20):
        losses = [*rng.lognormal(0, 1.5, 10), 3.0]
        for at, loss in enumerate(losses):
            mode = EVAL if at == len(losses) - 1 else TRAIN
            steps.append(SavedStep(len(steps), {LOSS: np.float64(loss)}, mode, len(steps)))
    assert not found_at(GeneralisationGap(), trial_of(steps))


@pytest.mark.parametrize(
    ("name", "inputs", "validation", "training", "is_found"),
    [
        ("CrossEntropyLoss", LETTERS, [3.27, 3.29, 3.28, 3.30], 3.26, True),
        ("CrossEntropyLoss", LETTERS, [4.3, 3.76, 3.96, 3.91, 4.05, 4.14], 3.3, True),
        ("CrossEntropyLoss", LETTERS, [3.10, 3.10, 3.10, 3.10], 3.1, False),
        ("CrossEntropyLoss", LETTERS, [5.0, 4.5, 4.0, 3.6], 3.5, False),  # it still falls
        ("CrossEntropyLoss", {}, [3.27, 3.29, 3.28, 3.30], 3.26, False),
        ("MSELoss", NUMBERS, [0.25, 0.26, 0.26, 0.26], 0.248, True),
        ("MSELoss", NUMBERS, [0.24, 0.24, 0.24, 0.24], 0.24, False),
    ],
)
def test_validation_that_is_never_better_than_a_constant_predictor(
    name: str,
    inputs: Mapping[str, object],
    validation: list[float],
    training: float,
    *,
    is_found: bool,
) -> None:
    falling = [1.15 * training, *[training] * (len(validation) - 1)]
    trial = run_of(validation, falling, name=name, inputs=inputs)
    assert bool(found_at(GeneralisationGap(), trial)) is is_found
    short = run_of(validation, falling, name=name, inputs=inputs, length=15)
    assert not found_at(GeneralisationGap(), short)  # there was hardly time to learn


def test_validation_that_is_never_better_than_training_at_the_beginning() -> None:
    trial = run_of([2.31, 2.31, 2.32, 2.33], [2.31, 2.2, 2.1, 2.0])
    found = [o.evidence for o in trial.outcomes(GeneralisationGap()) if isinstance(o, IssueFound)]
    assert found[0].measure == "best_validation_percent"
    assert (found[0].value, found[0].threshold) == (pytest.approx(100), pytest.approx(98))
    assert "was never better than the baseline, 2.31" in found[0].sentence
    assert not found_at(GeneralisationGap(), run_of([2.2] * 4, [2.31, 2.2, 2.1, 2.0]))


def test_validation_after_each_of_the_first_steps_may_lag_behind() -> None:
    trial = TrialBuilder()
    for step in range(30):
        trial.step(2 * step, {"CrossEntropyLoss_output_0": [1.6 - 0.01 * step]})
        validation = {"CrossEntropyLoss_output_0": [1.61]}
        trial.step(2 * step + 1, validation, mode=ModeKeys.EVAL)
    assert not found_at(GeneralisationGap(), trial)


@pytest.mark.parametrize(("share", "is_found"), [(-0.1, True), (0.2, False)])
def test_boosted_trees_whose_validation_never_gets_better(share: float, *, is_found: bool) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("-logloss$",), average_shap=())
    for step in range(30):
        fall = 0.2 * step / 30
        losses = {"train-logloss": fall, "validation-logloss": share * fall}
        trial.step(step, {name: np.float64(0.69 - by) for name, by in losses.items()})
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


def test_shares_of_errors_and_growing_metrics_are_not_judged() -> None:
    for metric, of_training, of_validation in (("merror", 0.0, 0.3), ("aucpr", 0.1, 0.9)):
        trial = TrialBuilder()
        trial.collections(losses=(f"-{metric}$",))
        for step in range(20):
            losses = {f"train-{metric}": of_training if step else 0.5}
            trial.step(step, {**losses, f"validation-{metric}": of_validation})
        assert not found_at(GeneralisationGap(), trial)


def test_a_density_may_be_negative() -> None:
    training = -9 + 10 * np.exp(-np.arange(12) / 3)
    assert not found_at(GeneralisationGap(), run_of(training + 0.3, training))


@pytest.mark.parametrize("is_sum", [True, False])
def test_a_sum_over_more_rows_is_not_compared(*, is_sum: bool) -> None:
    trial = TrialBuilder()
    step = 0
    for at in range(6):
        for mode, size in ((TRAIN, 8), (EVAL, 64)):
            for _ in range(5):
                loss = 2.0 * 0.3**at if mode is TRAIN or not at else 1.5
                targets = np.arange(size) % 2
                inputs = {"BoundLoss_input_0": np.zeros((size, 9)), "BoundLoss_input_1": targets}
                tensors = {**inputs, "BoundLoss_output_0": loss * (size if is_sum else 1)}
                trial.step(step, tensors, mode=mode, mode_step=step)
                step += 1
    assert bool(found_at(GeneralisationGap(), trial)) is not is_sum


@pytest.mark.parametrize(("first", "is_found"), [(3.0, False), (1.5, True)])
def test_validation_that_is_higher_before_anything_is_learned_is_not_compared(
    first: float, *, is_found: bool
) -> None:
    trial = trial_of(passes([(1.0, first), *[(0.1, 0.9)] * 4]))
    assert bool(found_at(GeneralisationGap(), trial)) is is_found


def test_the_targets_of_a_pass_are_taken_together() -> None:
    """Two steps of a pass in the order of the targets: each has no variance by itself."""
    trial = TrialBuilder()
    for step in range(60):
        is_training = step % 6 < 4
        targets = np.arange(64) % 2 if is_training else np.full(64, step % 2)
        inputs = {"MSELoss_input_0": np.zeros(64), "MSELoss_input_1": targets.astype(float)}
        tensors = {**inputs, "MSELoss_output_0": np.float64(0.1 if is_training else 0.12)}
        trial.step(step, tensors, mode=TRAIN if is_training else EVAL, mode_step=10 * step)
    assert not found_at(GeneralisationGap(), trial)


_OF_KERAS = "batch_normalization/weights/batch_normalization/moving_mean:0"


@pytest.mark.parametrize(("weight", "first"), [(_OF_KERAS, 611), ("dense/weights/kernel:0", 101)])
def test_moving_averages_of_keras_must_settle(weight: str, first: int) -> None:
    trial = TrialBuilder()
    entries = {
        "losses": CollectionEntry("losses", ("_output_0$",)),
        "weights": CollectionEntry("weights", tensor_names=(weight,)),
    }
    trial.store.put(collections_key("worker_0"), CollectionsFile(entries, num_workers=1).encode())
    for at in range(14):
        for step in range(at * 50, (at + 1) * 50, 10):
            loss = {LOSS: np.float64(0.1 if step else 2.3)}
            trial.step(step + at, loss, mode=TRAIN, mode_step=step)
        trial.step((at + 1) * 50 + at, {LOSS: np.float64(2.3)}, mode=EVAL, mode_step=at)
    assert found_at(GeneralisationGap(), trial)[0] == first
    messages = [
        o.reason for o in trial.outcomes(GeneralisationGap()) if isinstance(o, NotEvaluated)
    ]
    assert any("moving averages" in message for message in messages) is (weight == _OF_KERAS)


def test_a_new_task_is_not_compared_with_the_training_of_the_task_before() -> None:
    learned = [(0.7, 0.6), (0.3, 0.25), (0.1, 0.1), *[(0.02, 0.03)] * 20]
    new = [(0.65, 0.6), (0.35, 0.3), (0.2, 0.15), (0.1, 0.1), (0.05, 0.05)]
    assert not found_at(GeneralisationGap(), trial_of(passes([*learned, *new, *learned])))


def test_between_passes_nothing_is_missing() -> None:
    outcomes = run_of([2.0, 1.9, 1.8], [2.0, 1.9, 1.8]).outcomes(GeneralisationGap())
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds[:13] == [NotEvaluated] * 13  # none has ended yet
    assert set(kinds[13:]) == {NotApplicable, Passed}


def test_a_new_name_of_the_loss_at_every_pass_needs_no_more_memory() -> None:
    numbers = np.random.default_rng(0)
    trial = TrialBuilder()
    trial.collections(losses=("_output_0$",))
    for step in range(400):
        name = f"MSELoss_{step // 2}"
        tensors: dict[str, Any] = {f"{name}_output_0": np.float64(1.0)}
        tensors[f"{name}_input_0"] = numbers.normal(size=(8, 1))
        tensors[f"{name}_input_1"] = numbers.normal(size=(8, 1)).astype(np.float32)
        trial.step(step, tensors, mode=TRAIN if step % 2 else EVAL, mode_step=step // 2)
    sizes = memory_sizes(trial.views(), GeneralisationGap())
    assert max(sizes) < 1.01 * max(sizes[:200])


@pytest.mark.parametrize(
    ("targets", "loss"),
    [
        (np.full(4, np.nan), 1.0),
        (np.array([1e200, -1e200, 0, 1]), 1.0),
        (np.array([np.inf, 1, 2, 3]), 1.0),
        (np.ones(4), 1.7e308),
        (np.ones(4), -1.7e308),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_memory_is_json(targets: Any, loss: float) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("_output_0$",))
    for step in range(24):
        tensors = {"MSELoss_input_0": np.zeros(4), "MSELoss_input_1": targets}
        mode = EVAL if step % 4 else TRAIN
        trial.step(step, {**tensors, "MSELoss_output_0": np.float64(loss)}, mode=mode)
    rule = GeneralisationGap()
    memory: dict[str, Any] = {}
    for view in trial.views():
        with contextlib.suppress(Missing):
            rule.check(view, memory)
        json.dumps(memory, allow_nan=False)
