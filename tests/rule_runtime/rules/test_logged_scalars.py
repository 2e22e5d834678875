"""Rules of numbers that a script logs to other libraries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound, Passed
from rule_runtime.rules.curve_faults import LossDiverging, LossSpike, OscillatingLoss
from rule_runtime.rules.non_finite import NonFinite
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.outcomes import evidence_of, reason_of

NAN, INF = np.nan, np.inf
NOISE = np.random.default_rng(0).normal(size=60)
RISES = -200 + 3.0 * np.arange(60) + NOISE
COLLAPSES = np.concatenate([RISES[:40], -300 + NOISE[:20]])
REWARD = ["^scalar/reward$"]


def logged(values: Sequence[float], *, growing: bool = False, model: bool = False) -> TrialBuilder:
    trial = TrialBuilder()
    trial.collections(
        growing_metrics=("scalar/reward",) if growing else (),
        losses=("loss",) if model else (),
        gradients=("gradient/w",) if model else (),
    )
    tensors = {"loss": np.ones(1), "gradient/w": np.ones(2)} if model else {}
    for step, value in enumerate(values):
        numbers = {"scalar/reward": np.array([value]), "logged_step/reward": np.array([step])}
        trial.step(step, {**tensors, **numbers})
    return trial


def test_a_logged_scalar_that_is_not_finite_any_more_is_found() -> None:
    *_, second, last = logged([1.0, NAN, NAN, NAN]).outcomes(NonFinite())
    assert isinstance(second, Passed)
    evidence = evidence_of(last)
    assert (evidence.tensor, evidence.is_fatal) == ("scalar/reward", True)
    assert "Look where the script computes it" in (evidence.remedy or "")


@pytest.mark.parametrize(
    "values", [[NAN, NAN, NAN, 1.0], [INF] * 4, [1.0, 2.0], [0.9, NAN, NAN, 0.9, NAN, NAN]]
)
def test_a_logged_scalar_may_have_no_value_at_first(values: list[float]) -> None:
    assert not any(isinstance(each, IssueFound) for each in logged(values).outcomes(NonFinite()))


def test_a_logged_nan_is_ignored_while_the_model_is_fine() -> None:
    outcomes = logged([1.0, NAN, NAN, NAN], model=True).outcomes(NonFinite())
    assert all(isinstance(each, Passed) for each in outcomes)


@pytest.mark.parametrize(
    ("values", "growing", "is_found"),
    [
        (COLLAPSES, True, True),  # a reward that collapses
        (RISES, True, False),
        (-COLLAPSES, False, True),  # a loss that diverges
        (-RISES, False, False),
    ],
)
def test_a_curve_that_the_user_names(
    values: Sequence[float], growing: bool, is_found: bool
) -> None:
    outcomes = logged(values, growing=growing).outcomes(LossDiverging(tensor_regex=REWARD))
    assert any(isinstance(each, IssueFound) for each in outcomes) is is_found


@pytest.mark.parametrize("rule", [LossDiverging, LossSpike, OscillatingLoss])
def test_a_name_that_was_not_logged(rule: type) -> None:
    *_, last = logged([1.0, 1.0]).outcomes(rule(tensor_regex=["^scalar/other$"]))
    assert "no finite number named ^scalar/other$ was saved" in reason_of(last)


def test_it_is_saved_for_the_rule() -> None:
    (needed,) = LossSpike(tensor_regex=REWARD).requires()
    assert needed.parameters["include_regex"] == REWARD[0]
