from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.poor_weight_initialization import PoorWeightInitialization
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors, healthy_tensors
from tests.rule_runtime.outcomes import evidence_of, reason_of

LOSS = "loss_output_0"
WIDE = np.linspace(-1, 1, 101)


def activations(*variances: float) -> dict[str, Any]:
    return {
        f"l{i}.relu_input_0": np.array([[-1.0, 1.0]]) * variance**0.5
        for i, variance in enumerate(variances)
    }


class TestPoorWeightInitializationContract(RuleContract):
    def make_rule(self) -> Rule:
        return PoorWeightInitialization(steps=1000)

    def make_tensors(self, step: int, worker: int) -> Tensors:
        return {**healthy_tensors(step, worker), **activations(1.0, 2.0)}


def trial_of(*steps: dict[str, Any], **options: Any) -> TrialBuilder:
    trial = TrialBuilder()
    for step, tensors in enumerate(steps):
        trial.step(step, tensors, **options)
    return trial


def outcome_of(tensors: dict[str, Any], *, save_values: bool = True, **parameters: Any) -> Outcome:
    trial = trial_of(tensors, save_values=save_values)
    (outcome,) = trial.outcomes(PoorWeightInitialization(**parameters))
    return outcome


@pytest.mark.parametrize(
    ("variances", "kind"),
    [
        ((16.0, 144.0), Passed),
        ((4.0, 40.1), IssueFound),
        ((10.1, 3.0, 1.0), IssueFound),
        ((0.0, 1.0), IssueFound),
        ((0.0, 0.0), Passed),
    ],
)
def test_variances_of_layers_that_are_too_unlike(variances: tuple[float, ...], kind: type) -> None:
    assert isinstance(outcome_of(activations(*variances)), kind)
    assert isinstance(outcome_of(activations(*variances), save_values=False), kind)


@pytest.mark.parametrize(("threshold", "kind"), [(9, Passed), (8.99, IssueFound)])
def test_the_ratio_itself_is_no_issue(threshold: float, kind: type) -> None:
    assert isinstance(outcome_of(activations(16.0, 144.0), threshold=threshold), kind)


def test_the_evidence_of_variances_fires_at_step_0() -> None:
    evidence = evidence_of(outcome_of(activations(0.5, 2.0, 40.0)))
    assert (evidence.step, evidence.tensor) == (0, "l2.relu_input_0")
    assert evidence.measure == "variance_ratio"
    assert evidence.value == pytest.approx(80)
    assert evidence.sentence == (
        "l2.relu_input_0: variance 40 is 80 times the 0.5 of l0.relu_input_0, more than 10 times"
    )


def test_layers_are_found_by_their_collection_and_compared_within_a_worker() -> None:
    trial = TrialBuilder(num_workers=2)
    for worker, scale in enumerate((1.0, 100.0)):
        name = f"worker_{worker}"
        trial.collections(worker=name, relu_input=("^act",))
        trial.step(0, {"act1": WIDE * scale, "act2": WIDE * scale}, worker=name)
    (outcome,) = trial.outcomes(PoorWeightInitialization())
    assert isinstance(outcome, Passed)


@pytest.mark.parametrize(
    ("spread", "kind"), [(0.0011, Passed), (0.0009, IssueFound), (0.0, IssueFound)]
)
def test_gradients_whose_elements_are_too_alike(spread: float, kind: type) -> None:
    gradients = {"gradient/a": WIDE, "gradient/b": WIDE * spread / 1.8}
    outcome = outcome_of(gradients)
    assert isinstance(outcome, kind)
    if isinstance(outcome, IssueFound):
        assert (outcome.evidence.tensor, outcome.evidence.measure) == (
            "gradient/b",
            "percentile_range",
        )
        assert outcome.evidence.value == pytest.approx(spread)


def test_outliers_do_not_widen_a_gradient() -> None:
    gradient = np.zeros(1000)
    gradient[:40] = 5.0
    assert isinstance(outcome_of({"gradient/a": gradient}), IssueFound)


def test_without_values_extremes_may_prove_it() -> None:
    close, wide = {"gradient/a": WIDE * 1e-5}, {"gradient/a": WIDE}
    assert isinstance(outcome_of(close, save_values=False), IssueFound)
    assert "no values of gradients were saved" in reason_of(outcome_of(wide, save_values=False))


@pytest.mark.parametrize(
    "value", [np.float32(1e-9), np.empty(0), [np.nan, 1.0], [np.inf, 0.0], np.array(["a", "b"])]
)
def test_gradients_that_have_no_range_are_passed_over(value: Any) -> None:
    assert isinstance(outcome_of({"gradient/a": value}), NotEvaluated)
    assert isinstance(outcome_of({"gradient/a": value, "gradient/b": WIDE}), Passed)


def test_a_bias_in_front_of_a_normalisation_layer_is_no_issue() -> None:
    bias = {"gradient/Net_conv.bias": np.full(4, 1e-9)}
    weight = {"gradient/Net_conv.weight": np.resize(WIDE, (4, 3, 5, 5))}
    assert isinstance(outcome_of({**bias, **weight}), Passed)
    assert isinstance(outcome_of(bias), IssueFound)


def losses(*values: float) -> TrialBuilder:
    return trial_of(*({LOSS: np.float32(value)} for value in values))


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ((1.0,) * 7, 5),
        ((1.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9), 6),
        ((1.0, 2.0, 1.9, 1.8, 1.7, 0.9, 0.8), None),
        ((1.0, np.nan, 1.0, 1.0, 1.0, 1.0, 1.0), 6),
        ((1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4), None),
    ],
)
def test_a_loss_that_does_not_decrease(values: tuple[float, ...], first: int | None) -> None:
    found = losses(*values).outcomes(PoorWeightInitialization())
    issues = [step for step, outcome in enumerate(found) if isinstance(outcome, IssueFound)]
    assert issues[:1] == ([] if first is None else [first])


def test_the_evidence_of_a_loss() -> None:
    evidence = evidence_of(losses(*[0.5] * 6).outcomes(PoorWeightInitialization())[5])
    assert (evidence.measure, evidence.value, evidence.threshold) == (
        "steps_without_decrease",
        5,
        5,
    )
    assert evidence.sentence == f"{LOSS}: no loss below 0.5 for 5 steps"


def test_a_reason_of_several_conditions_is_reported_once() -> None:
    trial = TrialBuilder()
    trial.step(1, {"other": [1.0]})
    reason = reason_of(*trial.outcomes(PoorWeightInitialization(conditions=("scale", "symmetry"))))
    assert reason.count("no tensor of the collection weights was saved") == 1


def test_only_the_first_steps_of_training_are_judged() -> None:
    trial = TrialBuilder()
    sick = activations(1.0, 99.0)
    for step in range(8):
        mode = ModeKeys.EVAL if step % 2 else ModeKeys.TRAIN
        trial.step(step, sick if step > 4 else activations(1.0, 1.0), mode=mode)
    rule = PoorWeightInitialization(steps=3)
    kinds = [type(outcome) for outcome in trial.outcomes(rule)]
    assert kinds == [Passed, NotApplicable, Passed, NotApplicable, Passed] + [NotApplicable] * 3
    found = trial.outcomes(rule)
    assert found[1] == NotApplicable("steps of mode EVAL are not evaluated")
    assert found[6] == NotApplicable("only the first 3 saved training steps are evaluated")


def test_what_is_missing_is_reported() -> None:
    outcome = outcome_of({"x": [1.0]})
    assert outcome == NotEvaluated(
        "fewer than 2 inputs of ReLU layers were saved (collection relu_input); no values of "
        "gradients were saved: save their values (save_raw_tensor); "
        "no finite loss was saved"
    )
    assert isinstance(outcome_of(activations(1.0)), NotEvaluated)


def test_many_losses_do_not_fill_the_memory() -> None:
    tensors = {f"loss{i:04}_output": np.float32(1) for i in range(300)}
    tensors = {name.replace("loss", "Loss_"): value for name, value in tensors.items()}
    evaluation = Evaluation.fresh(PoorWeightInitialization())
    found = [evaluation.feed(view) for view in trial_of(*[tensors] * 7).views()]
    assert isinstance(found[-1], IssueFound)
    assert len(evaluation.memory["losses"]) == 32
    assert len(json.dumps(evaluation.memory)) < 32 * 60
    late = {f"Loss_new{i}_output": np.float32(1) for i in range(3)}
    (view,) = trial_of(late).views()
    assert isinstance(evaluation.feed(view), NotEvaluated)
