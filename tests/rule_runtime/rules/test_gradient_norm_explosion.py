from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.curve_faults import GradientNormExplosion
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.rules.runs import found_at, with_maxima


class TestGradientNormExplosionContract(RuleContract):
    def make_rule(self) -> Rule:
        return GradientNormExplosion()

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        for saved in self.make_steps(worker):
            factor = 1e4 if saved.step >= 100 else 1
            scaled = {
                name: np.asarray(value) * factor
                for name, value in saved.tensors.items()
                if name.startswith("gradient")
            }
            yield saved._replace(tensors={**saved.tensors, **scaled})


def run_of_norms(*norms: float, weight: float | None = None) -> TrialBuilder:
    trial = TrialBuilder()
    for at, norm in enumerate(norms):
        tensors: dict[str, Any] = {
            "gradient/Net_a.weight": [0.6 * norm, 0.0],
            "gradient/Net_b.weight": [0.0, 0.8 * norm],
        }
        if weight is not None:
            tensors["Net_a.weight"] = [weight, 0.0]
        trial.step(5 * at, tensors, mode_step=5 * at)
    return trial


def test_fires_when_the_norm_of_all_gradients_grew() -> None:
    trial = run_of_norms(*[1.0] * 10, 21.0, 21.0, 1.0)
    assert found_at(GradientNormExplosion(), trial) == [55]
    (found,) = [o for o in trial.outcomes(GradientNormExplosion()) if isinstance(o, IssueFound)]
    assert found.evidence.tensor == "gradient/Net_b.weight"
    assert found.evidence.value == pytest.approx(21.0)
    assert found.evidence.threshold == pytest.approx(20.0)
    assert "20 times what it was before" in found.evidence.sentence


def test_the_factor_is_strict_and_one_step_is_no_explosion() -> None:
    assert not found_at(GradientNormExplosion(), run_of_norms(*[1.0] * 10, 20.0, 20.0))
    assert not found_at(GradientNormExplosion(), run_of_norms(*[1.0] * 10, 500.0, 1.0, 500.0, 1.0))
    assert found_at(GradientNormExplosion(patience=1), run_of_norms(*[1.0] * 10, 21.0)) == [50]


@pytest.mark.parametrize(("num_large", "steps"), [(5, []), (6, [45]), (8, [45])])
def test_at_each_step_of_a_dense_start_the_norm_must_be_large_for_5_steps(
    num_large: int, steps: list[int]
) -> None:
    trial = TrialBuilder()
    for step in range(60):
        trial.step(
            2 * step, {"gradient/a": [90.0 if 40 <= step < 40 + num_large else 1.0]}, mode_step=step
        )
        trial.step(2 * step + 1, {"loss": [1.0]}, mode=ModeKeys.EVAL, mode_step=step)
    assert found_at(GradientNormExplosion(), trial) == [2 * step for step in steps]


def test_small_gradients_at_the_end_may_scatter() -> None:
    norms = [1.0] * 6 + [1e-3] * 30 + [0.5, 0.5, 0.5]
    assert not found_at(GradientNormExplosion(), run_of_norms(*norms))


def test_gradients_that_are_large_from_the_start_are_no_explosion() -> None:
    assert not found_at(GradientNormExplosion(), run_of_norms(*[900.0] * 30, weight=1.0))
    falling = [900.0 * 0.95**at for at in range(60)]
    assert not found_at(GradientNormExplosion(), run_of_norms(*falling, weight=1.0))


def test_each_worker_is_judged_by_itself() -> None:
    trial = TrialBuilder(num_workers=2)
    for step in range(12):
        for worker in (0, 1):
            norm = 100.0 if worker and step > 8 else 1.0
            tensors = {"gradient/Net_a.weight": [norm]}
            trial.step(step, tensors, mode_step=5 * step, worker=f"worker_{worker}")
    found = [o for o in trial.outcomes(GradientNormExplosion()) if isinstance(o, IssueFound)]
    assert {o.evidence.worker for o in found} == {"worker_1"}


def test_what_cannot_be_judged() -> None:
    trial = TrialBuilder()
    trial.step(0, {"gradient/a": [1.0]}, mode=ModeKeys.EVAL)
    trial.step(1, {"a_weight": [1.0]})
    trial.step(2, {"gradient/a": [np.nan]})
    outcomes = trial.outcomes(GradientNormExplosion())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


def test_why_there_is_no_norm() -> None:
    def reason(trial: TrialBuilder) -> str:
        (outcome,) = trial.outcomes(GradientNormExplosion())
        assert isinstance(outcome, NotEvaluated)
        return outcome.reason

    original = with_maxima("gradient/a", "gradient/b")
    assert "saved gradients have no l2: save their" in reason(original)
    infinite = TrialBuilder()
    infinite.step(0, {"gradient/Net_a.weight": [np.inf, np.nan]})
    assert reason(infinite) == "no saved gradient is finite"
    assert reason(run_of_norms(1e300)) == "the norm of all gradients is not finite"
