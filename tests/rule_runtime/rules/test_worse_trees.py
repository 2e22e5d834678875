"""Boosted trees that are worse on what they are trained on than a constant, and those that are not.

Each is trained by XGBoost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.state import EvaluationState
from rule_runtime.rules.worse_than_guessing import WorseThanGuessing
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at
from tests.rule_runtime.rules.xgboost_trials import boost, judged

xgboost = pytest.importorskip("xgboost")

ROWS = 2000
COLLECTIONS = ("labels", "predictions", "losses", "hyperparameters")
_RNG = np.random.default_rng(0)
COLUMNS = _RNG.normal(size=(ROWS, 6))
SIGNAL = COLUMNS[:, 0] + 0.5 * COLUMNS[:, 1] + _RNG.normal(0, 1.0, ROWS)
EVEN = (SIGNAL > 0) * 1.0
RARE = (np.quantile(SIGNAL, 0.95) < SIGNAL) * 1.0
THREE = np.digitize(SIGNAL, [-0.5, 0.5]) * 1.0
NUMBERS = 500 + 20 * SIGNAL
YES_OR_NO = {"objective": "binary:logistic", "max_depth": 3}
SQUARES = {"objective": "reg:squarederror", "max_depth": 3}
MIDDLE = {"quantile_alpha": 0.5}
QUANTILE = {"objective": "reg:quantileerror", "eval_metric": "mae", "max_depth": 1}


def trained(folder: Path, labels: Any, weights: Any = None, **parameters: Any) -> EvaluationState:
    data = xgboost.DMatrix(COLUMNS, labels, weight=weights)
    half = xgboost.DMatrix(COLUMNS[::2], labels[::2])
    trial = boost(folder / "run", *COLLECTIONS, data=data, validation=half, rounds=50, **parameters)
    return judged(trial, WorseThanGuessing())


@pytest.mark.parametrize(
    ("labels", "parameters", "metric"),
    [
        (EVEN, {**YES_OR_NO, "scale_pos_weight": 100.0, "eta": 0.1}, "logloss"),
        (EVEN, {**YES_OR_NO, "scale_pos_weight": 100.0, "max_depth": 1}, "logloss"),
        (EVEN, {**YES_OR_NO, "eta": 30.0, "lambda": 0.0}, "logloss"),
        (EVEN, {**YES_OR_NO, "eta": 1000.0, "lambda": 0.0}, "logloss"),  # all answers are 1 or 0
        (NUMBERS, {"objective": "rank:pairwise", "eval_metric": "rmse"}, "rmse"),
        (NUMBERS, {"objective": "rank:pairwise", "eval_metric": "mae", **MIDDLE}, "mae"),
    ],
)
def test_what_is_worse_than_a_constant_is_found(
    tmp_path: Path, labels: Any, parameters: dict[str, Any], metric: str
) -> None:
    state = trained(tmp_path, labels, **parameters)
    assert state.evidence is not None
    assert state.evidence.tensor == f"train-{metric}"
    assert state.evidence.step >= 20
    assert "rounds, more than 1.5 times" in state.evidence.sentence


@pytest.mark.parametrize(
    ("labels", "parameters"),
    [
        (EVEN, YES_OR_NO),
        (RARE, {**YES_OR_NO, "scale_pos_weight": 19.0}),  # as is advised for rare classes
        (THREE, {"objective": "multi:softprob", "num_class": 3}),
        (THREE, {"objective": "multi:softprob", "num_class": 3, "eta": 0.001}),
        (NUMBERS, SQUARES),
        (NUMBERS, {**SQUARES, "base_score": 0.5, "eta": 0.1}),  # far away, but on the way
        (NUMBERS, {**SQUARES, "base_score": 0.5, "eta": 0.01}),
        (NUMBERS, {"objective": "reg:absoluteerror", "eval_metric": "mae"}),
        (NUMBERS, {"objective": "reg:gamma", "eval_metric": "rmse"}),
        (
            NUMBERS,
            {**QUANTILE, "eta": 0.01, "quantile_alpha": 0.98},
        ),  # most of the errors are large on purpose
        (
            EVEN,
            {"objective": "binary:hinge", "eval_metric": "logloss", "max_depth": 1},
        ),  # answers of 0 and 1
    ],
)
def test_a_healthy_training_is_left_alone(
    tmp_path: Path, labels: Any, parameters: dict[str, Any]
) -> None:
    assert trained(tmp_path, labels, **parameters).evidence is None


def test_rows_may_have_weights(tmp_path: Path) -> None:
    weights = np.where(EVEN == 1, 50.0, 1.0)
    assert trained(tmp_path, EVEN, weights, **YES_OR_NO).evidence is None


@pytest.mark.parametrize(("other", "is_found"), [(0.8, True), (0.74, False)])
def test_other_data_must_be_answered_as_badly(other: float, *, is_found: bool) -> None:
    """Its labels are those that are known: those of training may scatter more."""
    trial = rounds(lambda at: (5.0 - at / 100, 2.0 * other))
    assert bool(found_at(WorseThanGuessing(), trial)) is is_found


@pytest.mark.parametrize(("best", "is_found"), [(0.96, True), (0.94, False)])
def test_and_never_have_been_answered_better(best: float, *, is_found: bool) -> None:
    """Of labels that scatter less than those of training a model may know less and less."""
    trial = rounds(lambda at: (5.0 - at / 100, best if at == 3 else 2.0))
    assert bool(found_at(WorseThanGuessing(), trial)) is is_found


def test_what_rises_far_above_is_found_whatever_the_first_round_was() -> None:
    assert found_at(WorseThanGuessing(), rounds(lambda at: (0.7 + at, 0.7 + at)))


def rounds(losses: Callable[[int], tuple[float, float]]) -> TrialBuilder:
    """Return rounds with these losses of training and other data, whose labels scatter by 1."""
    trial = TrialBuilder()
    trial.collections(losses=("-rmse$",), labels=("^labels$",))
    labels = np.arange(100.0) / np.arange(100.0).std()
    for step in range(60):
        training, other = map(np.float64, losses(step))
        named = {"labels": labels, "train-rmse": training, "validation-rmse": other}
        trial.step(step, named, mode=ModeKeys.GLOBAL, mode_step=step)
    return trial
