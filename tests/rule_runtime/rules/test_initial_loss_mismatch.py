from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.initial_loss_mismatch import InitialLossMismatch
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.outcomes import evidence_of, make_run
from tests.rule_runtime.rules.runs import with_losses

MODEL = {"gradient/Net_fc.bias": np.ones(10)}


class TestInitialLossMismatchContract(RuleContract):
    def make_rule(self) -> Rule:
        return InitialLossMismatch()

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        return with_losses(lambda step: -1.0 - step, worker)


def spread(shape: tuple[int, ...]) -> np.ndarray:
    return np.linspace(-50, 50, math.prod(shape)).reshape(shape)


def outcome_of(name: str, loss: float, *, mode_step: int = 0, **more: Any) -> Outcome:
    trial = TrialBuilder()
    trial.step(mode_step, {**MODEL, name: np.float64(loss), **more}, mode_step=mode_step)
    (outcome,) = trial.outcomes(InitialLossMismatch())
    return outcome


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("CrossEntropyLoss_output_0", math.log(10)),
        ("NLLLoss_output_0", math.log(10)),
        ("BCEWithLogitsLoss_output_0", math.log(2)),
        ("BCELoss_output_0", math.log(2)),
    ],
)
def test_the_loss_of_zero_outputs_depends_on_the_kind_of_loss(name: str, guess: float) -> None:
    scores = {name.replace("output", "input"): spread((4, 10)) - 50}
    assert isinstance(outcome_of(name, 2.99 * guess, **scores), Passed)
    evidence = evidence_of(outcome_of(name, 3.01 * guess, **scores))
    assert evidence.threshold == pytest.approx(3 * guess)
    assert "begins at" in evidence.sentence


@pytest.mark.parametrize("name", ["CTCLoss_output_0", "MyLoss_output_0", "recon_loss"])
def test_other_losses_have_no_known_loss_of_zero_outputs(name: str) -> None:
    assert not isinstance(outcome_of(name, 5000.0), IssueFound)


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("MSELoss", 200.0**2 + 25),
        ("L1Loss", math.hypot(200, 5)),
        ("HuberLoss", (200.0**2 + 25) / 2),
    ],
)
def test_a_regression_is_compared_with_outputs_of_0(name: str, guess: float) -> None:
    outputs = {f"{name}_input_0": np.array([[-900.0], [900.0]] * 8)}
    targets = {**outputs, f"{name}_input_1": np.array([[195.0], [205.0]] * 8)}
    assert isinstance(outcome_of(f"{name}_output_0", 2.99 * guess, **targets), Passed)
    assert isinstance(outcome_of(f"{name}_output_0", 3.01 * guess, **targets), IssueFound)
    assert isinstance(outcome_of(f"{name}_output_0", 1e9), NotEvaluated)
    zeros = {f"{name}_input_1": np.zeros((16, 1))}  # a residual that shall vanish
    assert isinstance(outcome_of(f"{name}_output_0", 1e9, **zeros), NotEvaluated)


@pytest.mark.parametrize(
    ("name", "targets", "loss"),
    [
        ("CrossEntropyLoss", np.arange(64) % 10, 64 * 2.35),
        ("BCEWithLogitsLoss", np.arange(64) % 2, 64 * 0.7),
        ("MSELoss", np.linspace(0, 1, 4096).reshape(64, 64), 4096 * 0.35),
    ],
)
def test_a_loss_may_be_summed_over_the_batch(name: str, targets: Any, loss: float) -> None:
    inputs = {f"{name}_input_0": np.zeros((len(targets), 10)), f"{name}_input_1": targets}
    assert isinstance(outcome_of(f"{name}_output_0", loss, **inputs), Passed)


PIXELS = np.random.default_rng(0).random((64, 784)) ** 8
OF_LETTERS = np.random.default_rng(0).normal(0, 1, (32, 24, 30))


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "loss"),
    [
        ("MSELoss", 0.99 * PIXELS, PIXELS, PIXELS.size * 1e-3),
        ("CrossEntropyLoss", OF_LETTERS.reshape(-1, 30), np.full(768, -100), 100 * 3.4),  # padding
        ("SequenceLoss", OF_LETTERS, np.ones((32, 24), np.int64), 24 * 3.4),  # a sum over time
        ("CenterLoss", OF_LETTERS[:, 0], np.arange(32) % 10, 30.0),  # features, not scores
        ("NLLLoss", -np.abs(OF_LETTERS[:, 0]), np.arange(32) % 10, 100.0),
    ],
)
def test_what_is_larger_than_a_mean_can_be_is_a_sum(
    name: str, outputs: Any, targets: Any, loss: float
) -> None:
    inputs = {f"{name}_input_0": outputs, f"{name}_input_1": targets}
    assert not isinstance(outcome_of(f"{name}_output_0", loss, **inputs), IssueFound)


def test_classes_are_those_of_the_scores() -> None:
    scores = {"CrossEntropyLoss_input_0": spread((4, 1000))}
    assert isinstance(outcome_of("CrossEntropyLoss_output_0", 20.0, **scores), Passed)
    assert isinstance(outcome_of("CrossEntropyLoss_output_0", 21.0, **scores), IssueFound)


@pytest.mark.parametrize(
    ("scores", "targets", "is_cross_entropy"),
    [
        (spread((64, 100)), np.arange(64), True),
        (spread((8, 7, 100)), np.ones((8, 7), np.int64), True),
        (spread((8, 100, 7)), np.ones((8, 7), np.int32), True),
        (np.zeros((64, 100)), np.arange(64.0), False),
        (np.zeros((4, 1)), np.zeros(4, np.int64), False),
        (np.zeros((4, 3)), np.full(4, 9), False),
        (np.zeros((4, 100)), np.arange(7), False),
    ],
)
def test_a_loss_of_ones_own_is_known_by_its_inputs(
    scores: Any, targets: Any, *, is_cross_entropy: bool
) -> None:
    inputs = {"NextLetterLoss_input_0": scores, "NextLetterLoss_input_1": targets}
    fits = outcome_of("NextLetterLoss_output_0", 5.9 * math.log(100), **inputs)
    too_large = outcome_of("NextLetterLoss_output_0", 6.1 * math.log(100), **inputs)
    assert isinstance(fits, Passed if is_cross_entropy else NotEvaluated)
    assert isinstance(too_large, IssueFound if is_cross_entropy else NotEvaluated)


def test_only_the_first_step_is_compared() -> None:
    assert isinstance(outcome_of("CrossEntropyLoss_output_0", 50.0, mode_step=5), Passed)
    trial = make_run(
        *({**MODEL, "CrossEntropyLoss_output_0": np.float64(loss)} for loss in [2.3, 50.0])
    )
    assert isinstance(trial.outcomes(InitialLossMismatch())[1], Passed)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NLLLoss_output_0", IssueFound),
        ("MSELoss_output_0", IssueFound),
        ("Elbo_loss_output_0", NotEvaluated),
    ],
)
def test_losses_that_cannot_be_negative(name: str, kind: type) -> None:
    outcome = outcome_of(name, -0.1, mode_step=40)
    assert isinstance(outcome, kind)
    if isinstance(outcome, IssueFound):
        assert outcome.evidence.threshold == 0
        assert "never below 0" in outcome.evidence.sentence
    assert not isinstance(outcome_of(name, -1e-9), IssueFound)  # rounding


def test_what_cannot_be_judged() -> None:
    assert isinstance(outcome_of("CrossEntropyLoss_output_0", np.nan), NotEvaluated)
    trial = make_run({"train-rmse": [77.0]}, {"loss_output_0": [77.0]})
    trial.step(2, {**MODEL, "loss_output_0": [77.0]}, mode=ModeKeys.EVAL)
    outcomes = trial.outcomes(InitialLossMismatch())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


def first_outcome(tensors: dict[str, Any]) -> Outcome:
    trial = make_run({"gradient/Net_fc.weight": np.ones((10, 64)), **tensors})
    (outcome,) = trial.outcomes(InitialLossMismatch())
    return outcome


@pytest.mark.parametrize("loss", [math.log(10), 50.0])
def test_a_cross_entropy_of_nobody_knows_how_many_classes_is_not_evaluated(loss: float) -> None:
    of_classes = {"CrossEntropyLoss_output_0": np.float64(loss)}
    outcome = first_outcome(of_classes)
    assert isinstance(outcome, NotEvaluated)
    assert (
        "the outputs and targets of the first loss are unknown: compute the loss with one of torch"
        in str(outcome)
    )
    known = first_outcome(of_classes | {"CrossEntropyLoss_input_0": spread((4, 10))})
    assert isinstance(known, IssueFound if loss > 3 * math.log(10) else Passed)


def test_a_cross_entropy_of_unknown_classes_cannot_be_negative_either() -> None:
    assert isinstance(first_outcome({"NLLLoss_output_0": np.float64(-1.0)}), IssueFound)


def test_later_losses_are_none_of_its_business() -> None:
    trial = make_run(
        *({**MODEL, "NLLLoss_output_0": np.float64(1.0 if step < 2 else -5.0)} for step in range(3))
    )
    outcomes = trial.outcomes(InitialLossMismatch(num_points=2))
    assert outcomes[-1] == NotApplicable("only the first 2 losses are evaluated")


def _scores(classes: int, size: float) -> Any:
    return np.random.default_rng(0).normal(0, size, (16, classes))


@pytest.mark.parametrize(
    ("name", "scores", "targets", "loss", "fires"),
    [
        ("CrossEntropyLoss", _scores(6, 10.0), np.arange(16) % 6, 14.7, True),
        ("CrossEntropyLoss", _scores(6, 0.5), np.arange(16) % 6, 16 * 1.9, False),
        ("BCEWithLogitsLoss", _scores(1, 17.0), np.arange(16.0)[:, None] % 2, 9.7, True),
        ("BCEWithLogitsLoss", _scores(1, 0.5), np.arange(16.0)[:, None] % 2, 16 * 0.72, False),
        ("NLLLoss", _scores(6, 9.0) - 20.0, np.arange(16) % 6, 20.0, True),
        ("NLLLoss", _scores(6, 0.1) - 1.8, np.arange(16) % 6, 16 * 1.9, False),
        ("MSELoss", _scores(1, 6.0), _scores(1, 1.0), 35.0, True),
        ("MSELoss", _scores(1, 0.5), _scores(1, 1.0), 16 * 1.25, False),
    ],
)
def test_large_scores_tell_a_large_mean_from_a_sum(
    name: str, scores: Any, targets: Any, loss: float, fires: bool
) -> None:
    inputs = {f"{name}_input_0": scores, f"{name}_input_1": targets}
    outcome = outcome_of(f"{name}_output_0", loss, **inputs)
    assert isinstance(outcome, IssueFound) is fires


@pytest.mark.parametrize(
    ("loss", "more", "fires"),
    [
        (50.0, {}, True),
        (5.9 * math.log(10), {}, False),
        (64 * 2.3, {}, False),  # a sum over the batch
        (50.0, {"Other_output_0": spread((8, 8, 10))}, False),  # whose loss it is is unknown
        (50.0, {"Net_output_0": spread((64, 1))}, False),
    ],
)
def test_a_function_gets_what_the_only_model_returns(
    loss: float, more: dict[str, Any], *, fires: bool
) -> None:
    inputs: dict[str, Any] = {
        "Net_output_0": spread((8, 8, 10)),
        "Loss_input_1": np.arange(64) % 10,
    }
    outcome = outcome_of("Loss_output_0", loss, **{**inputs, **more})
    assert isinstance(outcome, IssueFound) is fires


@pytest.mark.parametrize(
    ("loss", "targets", "more", "is_found"),
    [
        (0.0, spread((10, 1))[::-1] / 9, {}, True),
        (1e-30, spread((10, 1))[::-1] / 9, {}, False),
        (0.0, spread((10, 1)), {}, False),  # a student that begins as its teacher
        (0.0, spread((10, 1))[::-1] / 9, {"Other_output_0": np.float64(1)}, False),
    ],
)
def test_an_only_loss_of_exactly_0_compares_nothing(
    loss: float, targets: Any, more: dict[str, Any], is_found: bool
) -> None:
    inputs = {"MyLoss_input_0": spread((10, 1)), "MyLoss_input_1": targets}
    trial = make_run(
        {**MODEL, **inputs, **more, "MyLoss_output_0": np.float64(loss)},
        collections={"losses": ("_output_0$",)},
    )
    (outcome,) = trial.outcomes(InitialLossMismatch())
    assert isinstance(outcome, IssueFound) is is_found
