from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.loss_input_mismatch import LossInputMismatch
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep, Tensors, healthy_tensors
from tests.rule_runtime.rules.runs import found_at

ROWS = 45
OUTPUTS = np.random.default_rng(0).normal(0, 1, ROWS)


class TestLossInputMismatchContract(RuleContract):
    def make_rule(self) -> Rule:
        return LossInputMismatch()

    def make_tensors(self, step: int, worker: int) -> Tensors:
        inputs = {"MSELoss_input_0": OUTPUTS, "MSELoss_input_1": OUTPUTS + 1}
        return {**healthy_tensors(step, worker), **inputs, "MSELoss_output_0": 1.0}

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        for step in range(0, 200, 5):
            tensors = {**self.make_tensors(step, worker), "MSELoss_input_0": OUTPUTS[:, None]}
            yield SavedStep(step, tensors, time=1.5e9 + step)


def run(name: str, outputs: Any, targets: Any, *, labels: Any = None) -> TrialBuilder:
    trial = TrialBuilder()
    for step in range(0, 100, 10):
        tensors = {f"{name}_input_0": outputs, f"{name}_output_0": np.float64(1)}
        tensors |= {} if targets is None else {f"{name}_input_1": targets}
        tensors |= {} if labels is None else {"labels": labels}
        trial.step(step, tensors, mode_step=step)
    return trial


@pytest.mark.parametrize("name", ["MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"])
def test_outputs_and_targets_that_are_spread_over_each_other(name: str) -> None:
    trial = run(name, OUTPUTS[:, None], OUTPUTS)
    assert found_at(LossInputMismatch(), trial)[:2] == [20, 30]
    outcome = trial.outcomes(LossInputMismatch())[-1]
    assert isinstance(outcome, IssueFound)
    assert "shapes [45, 1] and [45]: 2025 pairs, not 45" in outcome.evidence.sentence
    assert "squeeze" in outcome.evidence.remedy


@pytest.mark.parametrize(
    ("name", "outputs", "targets"),
    [
        ("MSELoss", OUTPUTS, OUTPUTS),
        ("MSELoss", OUTPUTS[:1, None], OUTPUTS[:1]),  # a batch of one
        ("MSELoss", OUTPUTS.reshape(15, 3), OUTPUTS[:3]),  # the same targets for every row
        ("MSELoss", OUTPUTS, np.float64(1)),
        ("SmoothL1Loss", OUTPUTS[:, None], OUTPUTS[None, :]),  # every pair is meant
        ("MSELoss", OUTPUTS, None),
        ("CrossEntropyLoss", OUTPUTS.reshape(15, 3), np.arange(15) % 3),
        ("PairwiseLoss", OUTPUTS[:, None], OUTPUTS),
        ("NLLLoss", -np.abs(OUTPUTS).reshape(15, 3), np.arange(15) % 3),
        ("KLDivLoss", -np.abs(OUTPUTS), np.abs(OUTPUTS)),
    ],
)
def test_inputs_that_fit(name: str, outputs: Any, targets: Any) -> None:
    assert not found_at(LossInputMismatch(), run(name, outputs, targets))


@pytest.mark.parametrize("name", ["NLLLoss", "KLDivLoss"])
def test_logarithms_of_probabilities_are_not_above_0(name: str) -> None:
    outcome = run(name, OUTPUTS, None).outcomes(LossInputMismatch())[-1]
    assert isinstance(outcome, IssueFound)
    assert "LogSoftmax" in outcome.evidence.remedy


@pytest.mark.parametrize("name", ["MSELoss", "DistanceLoss"])
@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1)])
def test_numbers_of_classes_are_no_amounts(name: str, shape: tuple[int, ...]) -> None:
    labels = np.arange(ROWS) % 5
    trial = run(name, OUTPUTS.reshape(shape), labels.reshape(shape) * 1.0, labels=labels)
    outcome = trial.outcomes(LossInputMismatch())[-1]
    assert isinstance(outcome, IssueFound)
    assert "numbers of 5 classes" in outcome.evidence.sentence


@pytest.mark.parametrize(
    ("name", "labels_of"),
    [
        ("MSELoss", lambda at: 1 + at % 5),  # grades
        ("MSELoss", lambda at: at % 2),  # yes and no
        ("MSELoss", lambda at: np.minimum(at % 12, 5) % 5),  # counts: one is more frequent
        ("MSELoss", lambda at: at * 7.5),
        ("MSELoss", lambda at: at - 10),
        ("MSELoss", lambda at: at * 3 % 50),
        ("PoissonNLLLoss", lambda at: at % 5),
    ],
)
def test_amounts_may_be_learned(name: str, labels_of: Callable[[Any], Any]) -> None:
    labels = labels_of(np.arange(ROWS))
    assert not found_at(LossInputMismatch(), run(name, OUTPUTS, labels * 1.0, labels=labels))


def test_targets_that_are_not_the_labels_may_be_amounts() -> None:
    labels = np.arange(ROWS) % 5
    assert not found_at(LossInputMismatch(), run("MSELoss", OUTPUTS, OUTPUTS, labels=labels))
    scores = run("MSELoss", np.zeros((ROWS, 5)), np.eye(5)[labels], labels=labels)
    assert not found_at(LossInputMismatch(), scores)


@pytest.mark.parametrize(("metric", "is_found"), [("train-rmse", True), ("train-mlogloss", False)])
def test_boosted_trees_learn_classes_with_a_loss_of_classes(metric: str, *, is_found: bool) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("^train-",))
    for step in range(10):
        tensors = {"labels": np.arange(ROWS) % 3 * 1.0, metric: np.float64(1)}
        trial.step(step, tensors, mode=ModeKeys.GLOBAL)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


def test_the_same_few_labels_in_each_round_are_few() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("^train-",))
    labels = np.repeat([0.0, 1.0, 2.0, 3.0], [6, 7, 5, 3])
    for step in range(10):
        trial.step(step, {"labels": labels, "train-rmse": [1.0]}, mode=ModeKeys.GLOBAL)
    assert not found_at(LossInputMismatch(), trial)


def test_what_cannot_be_judged() -> None:
    trial = TrialBuilder()
    trial.step(0, {"MSELoss_output_0": [77.0]})
    trial.step(1, {"MSELoss_input_0": [77.0], "MSELoss_output_0": [1.0]}, mode=ModeKeys.EVAL)
    trial.step(2, {"labels": [1.0]})
    outcomes = trial.outcomes(LossInputMismatch())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


def test_shapes_that_do_not_fit_at_all_are_left_to_the_loss() -> None:
    # A loss of one's own may be called so, and cut its inputs to size.
    assert not found_at(LossInputMismatch(), run("MSELoss", OUTPUTS, OUTPUTS[:7]))


def test_steps_without_labels_do_not_change_what_they_look_like() -> None:
    trial = TrialBuilder()
    for step in range(12):
        labels = np.arange(ROWS) % 5 if step % 2 else np.zeros(0)
        beside = {"MSELoss_input_0": OUTPUTS, "MSELoss_input_1": labels * 1.0}
        trial.step(step, {**beside, "labels": labels, "MSELoss_output_0": np.float64(1)})
    judged = LossInputMismatch(patience=1)
    assert found_at(judged, trial) == [1, 3, 5, 7, 9, 11]


def test_of_many_tensors_of_labels_the_first_are_judged() -> None:
    labels = np.arange(ROWS) % 5
    for place, is_found in ((3, True), (4, False)):
        trial = TrialBuilder()
        for step in range(10):
            of = {f"{at}/labels": labels if at == place else OUTPUTS for at in range(6)}
            beside = {"MSELoss_input_0": OUTPUTS, "MSELoss_input_1": labels * 1.0}
            trial.step(step, {**of, **beside, "MSELoss_output_0": np.float64(1)})
        judged = LossInputMismatch(labels_regex=("/labels$",))
        assert bool(found_at(judged, trial)) is is_found


def run_of_loss(name: str, loss: float, *inputs: Any, **beside: Any) -> TrialBuilder:
    trial = TrialBuilder()
    for step in range(0, 50, 10):
        tensors = {f"{name}_input_{at}": given for at, given in enumerate(inputs)}
        trial.step(step, {**tensors, **beside, f"{name}_output_0": np.float64(loss)})
    return trial


BITS = (np.arange(ROWS) % 2).astype(np.float64)


@pytest.mark.parametrize(
    ("name", "targets", "is_found"),
    [
        ("BCEWithLogitsLoss", BITS, False),
        ("BCEWithLogitsLoss", 0.05 + 0.9 * BITS, False),  # smoothed
        ("BCEWithLogitsLoss", 2 * BITS - 1, True),
        ("BCELoss", 255 * BITS, True),
        ("SoftMarginLoss", BITS, True),
        ("SoftMarginLoss", 2 * BITS - 1, False),
        ("HingeEmbeddingLoss", BITS, True),
        ("HingeEmbeddingLoss", np.ones(ROWS), False),
        ("MSELoss", 255 * BITS, False),
    ],
)
def test_targets_that_a_loss_is_made_for(name: str, targets: Any, *, is_found: bool) -> None:
    trial = run_of_loss(name, 1.0, OUTPUTS, targets)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


SCORES, OF_CLASSES = np.zeros((ROWS, 6)), np.arange(ROWS) % 6


@pytest.mark.parametrize(
    ("loss", "inputs", "is_found"),
    [
        (-20.0, (SCORES, OF_CLASSES), True),  # a likelihood without its minus
        (-1.0, (SCORES, OF_CLASSES), False),  # as minus a cosine
        (20.0, (SCORES, OF_CLASSES), False),
        (-20.0, (SCORES, OF_CLASSES, OUTPUTS), False),  # actions and what they were worth
        (-((29 * OUTPUTS) ** 2).mean(), (30 * OUTPUTS, OUTPUTS), True),  # minus a mean square
        (-np.abs(29 * OUTPUTS).mean(), (30 * OUTPUTS, OUTPUTS), True),  # minus a mean distance
        (30.0**2, (30 * OUTPUTS, OUTPUTS), False),
        (-1.0, (2 * OUTPUTS, OUTPUTS), False),
        (-(30.0**3), (30 * OUTPUTS, OUTPUTS), False),  # something else
    ],
)
def test_a_loss_of_ones_own_with_the_wrong_sign(
    loss: float, inputs: tuple[Any, ...], *, is_found: bool
) -> None:
    trial = run_of_loss("OwnLoss", loss, *inputs)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found
    if is_found:
        outcome = trial.outcomes(LossInputMismatch())[-1]
        assert isinstance(outcome, IssueFound)
        assert "sign" in outcome.evidence.sentence + outcome.evidence.remedy


def poisson(*, takes_logarithms: bool, is_exponential: bool) -> TrialBuilder:
    """Return a run with a loss of counts, and a module ahead of it."""
    ahead = 0.3 * np.tanh(OUTPUTS)
    outputs = np.exp(ahead) if is_exponential else ahead
    counts = np.arange(ROWS) % 20
    losses = np.exp(outputs) - counts * outputs
    if not takes_logarithms:
        losses = outputs - counts * np.log(outputs)
    beside = {"5_input_0": ahead, "5_output_0": outputs}
    return run_of_loss("PoissonNLLLoss", float(losses.mean()), outputs, counts, **beside)


def test_an_exponential_ahead_of_a_loss_that_has_one() -> None:
    trial = poisson(takes_logarithms=True, is_exponential=True)
    outcome = trial.outcomes(LossInputMismatch())[-1]
    assert isinstance(outcome, IssueFound)
    assert "gets the exponentials that 5 returns" in outcome.evidence.sentence
    assert not found_at(LossInputMismatch(), poisson(takes_logarithms=False, is_exponential=True))
    assert not found_at(LossInputMismatch(), poisson(takes_logarithms=True, is_exponential=False))


@pytest.mark.parametrize(("loss", "fires"), [(-20.0, True), (-4.0, False), (0.1, False)])
def test_a_loss_of_classes_that_is_no_module_must_not_fall_below_zero(
    loss: float, fires: bool
) -> None:
    """What NLLLoss as a function gives of scores without log_softmax."""
    trial = TrialBuilder()
    for step in range(3):
        scores = np.random.default_rng(step).normal(20, 1, (64, 10))
        tensors = {"Net_output_0": scores, "labels": np.arange(64) % 10}
        trial.step(step, {**tensors, "Loss_output_0": np.float64(loss)})
    last = trial.outcomes(LossInputMismatch())[-1]
    assert isinstance(last, IssueFound) is fires


@pytest.mark.parametrize(
    ("targets", "is_found"),
    [
        ([[1, 1, 0], [0, 1, 1], [1, 0, 0]], True),  # several labels may hold together
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], False),
        ([[0.9, 0.05, 0.05], [0.4, 0.6, 0], [0.1, 0.1, 0.8]], False),
        ([[1, 0, 0], [0, 0, 0], [0, 0, 0]], False),  # rows may be left out
        ([[1.5, -0.5, 1], [1, 1, 0], [0, 1, 1]], False),  # no shares at all
    ],
)
def test_shares_of_classes_sum_to_one(targets: list[list[float]], *, is_found: bool) -> None:
    trial = run("CrossEntropyLoss", OUTPUTS[:9].reshape(3, 3), np.array(targets, np.float32))
    outcome = trial.outcomes(LossInputMismatch())[-1]
    assert isinstance(outcome, IssueFound) is is_found
    if isinstance(outcome, IssueFound):
        assert "rows that sum to 1.67 in the mean" in outcome.evidence.sentence
        assert "BCEWithLogitsLoss" in outcome.evidence.remedy


def _regression(shape: tuple[int, ...], *, is_learned: bool, scale: float = 1.0) -> TrialBuilder:
    """Train with a loss of one's own, given [B, 1] and targets of a shape; some learn from it."""
    random = np.random.default_rng(1)
    trial = TrialBuilder()
    for step in range(0, 100, 10):
        targets = random.normal(2, 1, ROWS).astype(np.float32)
        guess = random.normal(0, scale, ROWS) + (0.01 * step * targets if is_learned else 0)
        outputs = guess.astype(np.float32)[:, None]
        tensors = {
            "OwnLoss_input_0": outputs,
            "OwnLoss_input_1": targets[:, None],
            "OwnLoss_output_0": np.square(outputs - targets.reshape(shape)).mean(),
        }
        trial.step(step, tensors, mode_step=step)
    return trial


@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0])
def test_a_loss_of_every_output_and_every_target(scale: float) -> None:
    trial = _regression((ROWS,), is_learned=False, scale=scale)
    assert found_at(LossInputMismatch(), trial)[0] == 20
    outcome = trial.outcomes(LossInputMismatch())[-1]
    assert isinstance(outcome, IssueFound)
    assert "all 2025 differences of an output and a target" in outcome.evidence.sentence
    assert "squeeze" in outcome.evidence.remedy


@pytest.mark.parametrize("is_learned", [True, False])
@pytest.mark.parametrize("scale", [1e-9, 0.05, 1.0, 20.0])
def test_a_loss_of_each_output_and_its_target(scale: float, *, is_learned: bool) -> None:
    trial = _regression((ROWS, 1), is_learned=is_learned, scale=scale)
    assert not found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize(
    ("shape", "is_found"), [((40, 1), True), ((40, 2), False), ((40,), False), ((4, 1, 9), True)]
)
def test_a_loss_of_classes_takes_scores_of_several(
    shape: tuple[int, ...], *, is_found: bool
) -> None:
    trial = run("CrossEntropyLoss", np.zeros(shape), np.zeros(shape[:1] + shape[2:], np.int64))
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


def test_of_boosted_trees_it_is_not_asked_for_modules() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("logloss$",))
    tensors = {"train-logloss": [0.5], "labels": np.arange(60) % 2, "predictions": np.ones(60)}
    trial.step(0, tensors, mode=ModeKeys.GLOBAL)
    (outcome,) = trial.outcomes(LossInputMismatch())
    assert isinstance(outcome, NotEvaluated)
    assert "boosted trees" in outcome.reason
    assert "nn.CrossEntropyLoss" not in outcome.reason


def _of_nothing(*losses: float, beside: float | None = None, outputs: Any = None) -> TrialBuilder:
    trial, rng = TrialBuilder(), np.random.default_rng(0)
    trial.collections(losses=("_output_0$",))
    given = rng.normal(size=(16, 1)) if outputs is None else outputs
    for step, loss in enumerate(losses):
        tensors = {"LogLoss_input_0": given, "LogLoss_input_1": rng.normal(size=(16, 1))}
        tensors["LogLoss_output_0"] = np.float64(loss)
        if beside is not None:
            tensors["PriorLoss_output_0"] = np.float64(beside)
        trial.step(step, tensors)
    return trial


def test_a_loss_that_is_0_from_the_first_step_on_tells_nothing() -> None:
    """As F.cross_entropy of one output for each row, in a module of one's own."""
    assert found_at(LossInputMismatch(), _of_nothing(*[0.0] * 12)) == [9, 10, 11]
    assert not found_at(LossInputMismatch(), _of_nothing(0.1, *[0.0] * 12))
    assert not found_at(LossInputMismatch(), _of_nothing(*[0.0] * 12, beside=1.0))
    assert not found_at(LossInputMismatch(), _of_nothing(*[0.0] * 12, outputs=np.zeros((16, 1))))
