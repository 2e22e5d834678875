"""Rules on what the hook for XGBoost really wrote; skipped where XGBoost is not installed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import EvaluationState

if TYPE_CHECKING:
    from xgboost import DMatrix

__all__ = ["boost", "judged", "matrix"]


def matrix(name: str = "diabetes", rows: slice = slice(None)) -> DMatrix:
    """Return real data that scikit-learn ships."""
    data: DMatrix = _boosting().matrix(name, rows)
    return data


def boost(
    folder: Path,
    *collections: str,
    data: DMatrix,
    validation: DMatrix,
    rounds: int = 4,
    include_regex: str | None = None,
    **parameters: Any,
) -> WrittenTrial:
    """Return the trial of a training that saves every round, besides metrics what is named."""
    boosting = _boosting()
    trial = WrittenTrial(str(folder))
    hook = boosting.make_hook(
        trial,
        *collections,
        validation_data=validation,
        hyperparameters=dict(parameters),
        include_regex=include_regex,
    )
    evals = [(data, "train"), (validation, "validation")]
    boosting.train(hook, data=data, evals=evals, rounds=rounds, parameters=parameters)
    importlib.import_module("hook_layer.xgboost").del_hook()
    return trial


def judged(trial: WrittenTrial, rule: Rule) -> EvaluationState:
    """Return the final state of a rule over a trial that a hook wrote."""
    run = next(iter(trial.indexes().values())).run
    reconciler = Reconciler(trial.store, rule, run)
    return reconciler.advance(EvaluationState.initial(), (), ended=True)


def _boosting() -> Any:
    pytest.importorskip("xgboost")
    return importlib.import_module("tests.hook_layer.xgboost.boosting")
