"""Texts on missing data give advice for the framework of the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.frameworks import KERAS, MXNET, TENSORFLOW, TORCH, XGBOOST, Framework
from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.facts.framework import framework_of
from rule_runtime.facts.missing import missing_counted_loss, missing_statistics
from rule_runtime.facts.saved_tensors import finite_means
from rule_runtime.rules.double_activation import DoubleActivation
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.rules.initial_loss_mismatch import InitialLossMismatch
from rule_runtime.rules.label_degenerate import LabelDegenerate
from rule_runtime.rules.loss_input_mismatch import LossInputMismatch
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from rule_runtime.rules.worse_than_guessing import WorseThanGuessing
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.tensor_rows import TensorRows
from tests.rule_runtime.outcomes import make_run

COLLECTIONS: dict[Framework, dict[str, Any]] = {
    TORCH: {"losses": ("[Ll]oss_(?!input).*output",)},
    MXNET: {"losses": (".*loss._(?!input).*output",)},
    KERAS: {"losses": ("^[^/]*loss$",), "sm_metrics": ()},
    TENSORFLOW: {"losses": (), "sm_metrics": ()},
    XGBOOST: {"losses": ("^[a-zA-z]+-",), "average_shap": ("^average_shap/",)},
}
LOSSES = {
    TORCH: "Loss_output_0",
    MXNET: "myloss0_output_0",
    KERAS: "loss",
    TENSORFLOW: "loss:0",
    XGBOOST: "train-rmse",
}
RULES = [
    DoubleActivation(),
    GeneralisationGap(),
    InitialLossMismatch(),
    LabelDegenerate(),
    LossInputMismatch(),
    SuspiciouslyGood(),
    WorseThanGuessing(),
]

MOST_SHOWN = 400
"""Characters of a reason that are kept."""


def run_of(framework: Framework) -> TrialBuilder:
    """Return a run of a loss and a gradient alone."""
    trial = TrialBuilder()
    name = LOSSES[framework]
    trial.collections(**COLLECTIONS[framework])
    mode = ModeKeys.GLOBAL if framework is XGBOOST else ModeKeys.TRAIN
    for step in range(3):
        trial.step(step, {name: np.float64(1), "gradient/x": np.ones(3)}, mode=mode)
    return trial


def rows_of(*values: Any) -> TensorRows:
    trial = make_run({f"w{number}": np.array(value) for number, value in enumerate(values)})
    (view,) = trial.views()
    return view.tensors()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (([1.0, 2.0],), None),
        (([np.nan], [1.0, 2.0]), None),
        (([np.nan, 1.0],), None),
        (([np.nan], [np.inf]), "no saved weight is finite"),
        ((["a"],), "saved weights have no mean, l2: save their values (save_raw_tensor)"),
    ],
)
def test_why_statistics_are_missing(values: tuple[Any, ...], reason: str | None) -> None:
    missing = missing_statistics(rows_of(*values), ("mean", "l2"), "weight")
    assert (missing is None) is (reason is None)
    assert str(missing).startswith(str(reason))


def test_why_no_loss_counts() -> None:
    rows = rows_of([1.0], [np.nan])
    assert str(missing_counted_loss(rows, finite_means(rows), "is large")) == "w0 is large"
    rows = rows_of([np.nan])
    assert str(missing_counted_loss(rows, finite_means(rows), "is large")) == (
        "no saved loss is finite: see the rule NonFinite"
    )


@pytest.mark.parametrize("framework", COLLECTIONS)
def test_collections_identify_the_framework(framework: Framework) -> None:
    trial = make_run({"x": np.float64(1)}, collections={**COLLECTIONS[framework]})
    assert {framework_of(view) for view in trial.views()} == {framework}


def test_without_collections_it_is_torch() -> None:
    trial = make_run({"x": np.float64(1)})
    assert [framework_of(view) for view in trial.views()] == [TORCH]


@pytest.mark.parametrize("framework", COLLECTIONS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_torch_is_named_to_its_users_alone(rule: Rule, framework: Framework) -> None:
    reasons = [o.reason for o in run_of(framework).outcomes(rule) if isinstance(o, NotEvaluated)]
    assert reasons
    message = " ".join(reasons)
    if framework is not TORCH:
        assert "torch" not in message
        assert "F.cross_entropy" not in message


@pytest.mark.parametrize(
    ("framework", "remedy"),
    [
        (TORCH, "get_hook().record_tensor_value"),
        (TORCH, "call model.eval() before validation and model.train() after it"),
        (KERAS, "validation_data="),
        (XGBOOST, "`evals` (`eval_set` of `fit`)"),
    ],
)
def test_how_to_validate(framework: Framework, remedy: str) -> None:
    for outcome in run_of(framework).outcomes(GeneralisationGap()):
        assert isinstance(outcome, NotEvaluated)
        assert "no validation loss was saved" in outcome.reason
        assert remedy in outcome.reason[:MOST_SHOWN]
