"""`stepwatch.evaluate`: judging a stored run from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepwatch
from stepwatch.testing import TrialBuilder


class HighLoss(stepwatch.Rule):
    """Finds a loss above a bound."""

    bound: float = 5.0

    def check(self, step: stepwatch.StepView, memory: stepwatch.Memory) -> stepwatch.Outcome:  # noqa: ARG002
        loss = float(step.value("loss"))
        if loss > self.bound:
            return stepwatch.IssueFound(f"loss {loss} above {self.bound}")
        return stepwatch.Passed()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    trial = TrialBuilder(tmp_path / "run")
    for step, loss in enumerate((2.0, 12.3, 4.0)):
        trial.step(step, {"loss": np.float64(loss), "gradient/a": np.zeros(2)})
    trial.end()
    return tmp_path / "run"


def test_rules_of_the_user_and_built_in_ones(run: Path) -> None:
    states = stepwatch.evaluate(run, [HighLoss(), "ExplodingTensor"])
    assert states["ExplodingTensor"].status is stepwatch.RuleStatus.NO_ISSUES_FOUND
    found = states["HighLoss"]
    assert found.status is stepwatch.RuleStatus.ISSUES_FOUND
    assert found.evidence is not None
    assert (found.evidence.step, found.evidence.sentence) == (1, "loss 12.3 above 5.0")


def test_packs_and_names_of_the_callers_own(run: Path) -> None:
    assert "NonFinite" in stepwatch.evaluate(str(run))
    states = stepwatch.evaluate(run, {"low": HighLoss(bound=1.0), "high": HighLoss(bound=99.0)})
    assert [state.evidence is not None for state in states.values()] == [True, False]


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ("recomended", "did you mean 'recommended'"),
        (["NonFinit"], "did you mean 'NonFinite'"),
        ([], "rules is empty"),
        ([HighLoss(), HighLoss(bound=2.0)], "the same name .*a dict of names and rules"),
        ([HighLoss], r"is not a rule; write HighLoss\(\)"),
        ([3], "3 is not a rule"),
    ],
)
def test_mistakes_are_named(run: Path, rules: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        stepwatch.evaluate(run, rules)


def test_a_folder_without_a_run_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no saved step of a run"):
        stepwatch.evaluate(tmp_path)
