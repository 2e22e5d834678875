from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome, Passed, RuleStatus
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.testing import TrialBuilder


def outcome_of(rule: VanishingGradient | None = None, **tensors: object) -> Outcome:
    trial = TrialBuilder()
    trial.step(500, {name.replace("__", "/"): value for name, value in tensors.items()})
    (outcome,) = trial.outcomes(rule or VanishingGradient())
    return outcome


def test_fires_on_the_smallest_gradient_and_says_so() -> None:
    outcome = outcome_of(
        gradient__a=np.full(4, 1e-2),
        gradient__b=np.array([1e-9, -3e-9]),
        gradient__c=np.full(4, -5e-8),
        weight=np.zeros(3),
    )
    assert isinstance(outcome, IssueFound)
    evidence = outcome.evidence
    assert (evidence.step, evidence.tensor, evidence.measure) == (500, "gradient/b", "abs_mean")
    assert evidence.value == pytest.approx(2e-9)
    assert evidence.threshold == 1e-7
    assert evidence.sentence == "gradient/b: mean(|g|) 2e-09 < 1e-07"
    assert (evidence.mode, evidence.worker) == ("TRAIN", "worker_0")


@pytest.mark.parametrize(
    ("value", "kind"), [(0.0, IssueFound), (0.99e-7, IssueFound), (1e-7, Passed), (1.0, Passed)]
)
def test_the_threshold_is_strict_and_zero_has_vanished(value: float, kind: type) -> None:
    assert isinstance(outcome_of(gradient__a=np.full(8, value)), kind)


def test_the_threshold_is_a_parameter() -> None:
    assert isinstance(outcome_of(VanishingGradient(threshold=1.0), gradient__a=[0.5]), IssueFound)


@pytest.mark.parametrize("value", [np.full(3, np.nan), np.empty((0, 2)), [np.inf, -np.inf]])
def test_gradients_without_finite_elements_are_not_judged(value: object) -> None:
    assert isinstance(outcome_of(gradient__a=value), NotEvaluated)
    assert isinstance(outcome_of(gradient__a=value, gradient__b=[1.0]), Passed)


def test_finite_elements_count_beside_nan() -> None:
    assert isinstance(outcome_of(gradient__a=[np.nan, 1e-12]), IssueFound)


def test_the_worst_of_several_workers_is_the_evidence() -> None:
    trial = TrialBuilder(num_workers=3)
    for worker, value in enumerate([1.0, 1e-12, 1e-9]):
        trial.step(0, {"gradient/a": [value]}, worker=f"worker_{worker}")
    (outcome,) = trial.outcomes(VanishingGradient())
    assert isinstance(outcome, IssueFound)
    assert outcome.evidence.worker == "worker_1"


def test_the_run_counts_its_findings() -> None:
    trial = TrialBuilder()
    for step, value in enumerate([1.0, 1e-9, 1.0, 1e-12]):
        trial.step(step, {"gradient/a": [value]})
    trial.step(4, {"weight": [1.0]})
    state = trial.evaluate(VanishingGradient())
    assert state.status is RuleStatus.ISSUES_FOUND
    assert state.evidence is not None
    assert (state.evidence.step, state.evidence.first_step) == (1, 1)
    assert (state.evidence.last_step, state.evidence.count) == (3, 2)
    assert (state.counts.evaluated, state.counts.not_evaluated) == (4, 1)
    assert state.counts.last_reason == "no tensor of the collection gradients was saved"


def test_files_of_the_original_client_give_the_same_verdict() -> None:
    for run in ("run-1", None):
        trial = TrialBuilder(run=run)
        trial.collections(gradients=("^gradient",))
        trial.step(0, {"gradient/a": np.float32([1e-9, 3e-9]), "w": [0.0]})
        state = trial.evaluate(VanishingGradient())
        assert state.status is RuleStatus.ISSUES_FOUND
        assert state.evidence is not None
        assert state.evidence.value == pytest.approx(2e-9)


def test_stored_reductions_suffice() -> None:
    trial = TrialBuilder(run=None)
    trial.step(0, {"smdebug/reductions/abs_mean/gradient/a": np.float32([1e-9])})
    trial.step(1, {"smdebug/reductions/abs_mean/gradient/a": np.float32([1.0])})
    issue, passed = trial.outcomes(VanishingGradient())
    assert isinstance(issue, IssueFound)
    assert issue.evidence.tensor == "gradient/a"
    assert isinstance(passed, Passed)


def test_the_collections_file_says_which_tensors_are_gradients() -> None:
    trial = TrialBuilder()
    trial.collections(gradients=("Grad$",))
    trial.step(0, {"gradients/kernelGrad": [0.0], "gradient/a": [0.0]})
    (outcome,) = trial.outcomes(VanishingGradient())
    assert isinstance(outcome, IssueFound)
    assert outcome.evidence.tensor == "gradients/kernelGrad"
