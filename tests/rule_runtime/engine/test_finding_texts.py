"""Findings that a rule gives as a text: the evaluator adds where they were seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.outcome import IssueFound, Outcome
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.step_view import StepView


class Finds(Rule):
    """Finds what the test says."""

    outcome: ClassVar[Callable[[], Outcome]]

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        return type(self).outcome()


def evidence_of(outcome: Callable[[], Outcome]) -> Evidence:
    Finds.outcome = staticmethod(outcome)
    trial = TrialBuilder(num_workers=2)
    trial.step(7, {"loss": [12.3]}, mode=ModeKeys.EVAL, worker="worker_0")
    trial.step(7, {"layer.weight": [1.0]}, mode=ModeKeys.EVAL, worker="worker_1")
    (found,) = trial.outcomes(Finds())
    assert isinstance(found, IssueFound)
    return found.evidence


def test_a_text_is_enough() -> None:
    found = evidence_of(lambda: IssueFound("loss 12.3\n above 5"))
    assert (found.step, found.first_step, found.last_step, found.count) == (7, 7, 7, 1)
    assert (found.mode, found.worker, found.tensor) == ("EVAL", "worker_0", "")
    assert found.sentence == "loss 12.3 above 5"
    assert found.remedy == "Finds: Finds what the test says."
    assert math.isnan(found.value)
    assert Evidence.from_json(found.to_json()).sentence == found.sentence


def test_the_name_with_which_a_text_begins_is_the_tensor() -> None:
    found = evidence_of(lambda: IssueFound("layer.weight: norm 3 > 2"))
    assert (found.tensor, found.worker) == ("layer.weight", "worker_1")


def test_details_are_kept() -> None:
    details: dict[str, Any] = {
        "tensor": np.str_("layer.weight"),
        "measure": "l2",
        "remedy": "Less.",
    }
    details |= {"value": np.float32(3), "threshold": 2}
    found = evidence_of(lambda: IssueFound("too large", **details))
    assert found.sentence == "layer.weight: too large"
    assert Evidence.from_json(found.to_json()) == found
    assert (found.measure, found.value, found.threshold, found.remedy) == ("l2", 3.0, 2.0, "Less.")


@dataclass
class Number:
    value: float


@pytest.mark.parametrize(
    ("arguments", "details", "message"),
    [
        ((12.3,), {}, r"IssueFound got 12\.3, but takes a text"),
        ((None,), {}, "IssueFound got None, but takes a text"),
        (("",), {}, "IssueFound got an empty text"),
        (("high",), {"value": "12"}, "the value of a finding is '12', but must be a number"),
        (("high",), {"threshold": Number(1)}, r"the threshold of a finding is Number\(value=1\)"),
        (("high",), {"remedy": 3}, "the remedy of a finding is 3, but must be a text"),
    ],
)
def test_wrong_types_are_named(
    arguments: tuple[Any, ...], details: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        IssueFound(*arguments, **details)


def test_an_evidence_is_checked_and_has_its_own_details() -> None:
    members: dict[str, Any] = {
        "step": 1,
        "mode": "TRAIN",
        "worker": "worker_0",
        "tensor": "w",
        "measure": "mean",
        "value": 1.0,
        "threshold": 0.0,
        "sentence": "w: high",
        "remedy": "less",
    }
    assert IssueFound(Evidence(**members)).evidence == Evidence(**members)
    with pytest.raises(ValueError, match="an Evidence and details"):
        IssueFound(Evidence(**members), tensor="w")
    with pytest.raises(
        TypeError, match=r"the step of a finding is 1\.5, but must be a whole number"
    ):
        Evidence(**{**members, "step": 1.5})
