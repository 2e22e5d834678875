"""Boosted trees that are worse on what they are trained on than a constant, and those that are not.

Each is trained by XGBoost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.rules.worse_than_guessing import WorseThanGuessing
from tests.rule_runtime.rules.xgboost_trials import boost, judged

xgboost = pytest.importorskip("xgboost")

ROWS = 2000
COLLECTIONS = ("labels", "predictions", "losses")
_RNG = np.random.default_rng(0)
COLUMNS = _RNG.normal(size=(ROWS, 6))
SIGNAL = COLUMNS[:, 0] + 0.5 * COLUMNS[:, 1] + _RNG.normal(0, 1.0, ROWS)
EVEN = (SIGNAL > 0) * 1.0
RARE = (np.quantile(SIGNAL, 0.95) < SIGNAL) * 1.0
THREE = np.digitize(SIGNAL, [-0.5, 0.5]) * 1.0
NUMBERS = 500 + 20 * SIGNAL
YES_OR_NO = {"objective": "binary:logistic", "max_depth": 3}
SQUARES = {"objective": "reg:squarederror", "max_depth": 3}


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
        (NUMBERS, {"objective": "rank:pairwise", "eval_metric": "rmse"}, "rmse"),
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
        (NUMBERS, {"objective": "reg:absoluteerror", "eval_metric": "mae"}),
        (NUMBERS, {"objective": "reg:gamma", "eval_metric": "rmse"}),
    ],
)
def test_a_healthy_training_is_left_alone(
    tmp_path: Path, labels: Any, parameters: dict[str, Any]
) -> None:
    assert trained(tmp_path, labels, **parameters).evidence is None


def test_rows_may_have_weights(tmp_path: Path) -> None:
    weights = np.where(EVEN == 1, 50.0, 1.0)
    assert trained(tmp_path, EVEN, weights, **YES_OR_NO).evidence is None
