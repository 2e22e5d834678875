"""Advice to users whose losses rules cannot judge is of the framework that they train with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.facts.loss_advice import Framework, framework_of
from rule_runtime.rules.double_activation import DoubleActivation
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.rules.initial_loss_mismatch import InitialLossMismatch
from rule_runtime.rules.label_degenerate import LabelDegenerate
from rule_runtime.rules.loss_input_mismatch import LossInputMismatch
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from rule_runtime.rules.worse_than_guessing import WorseThanGuessing
from rule_runtime.testing import TrialBuilder

COLLECTIONS: dict[Framework, dict[str, Any]] = {
    Framework.TORCH: {"losses": ("[Ll]oss_(?!input).*output",)},
    Framework.MXNET: {"losses": (".*loss._(?!input).*output",)},
    Framework.KERAS: {"losses": ("^[^/]*loss$",), "sm_metrics": ()},
    Framework.TENSORFLOW: {"losses": (), "sm_metrics": ()},
    Framework.XGBOOST: {"losses": ("^[a-zA-z]+-",), "average_shap": ("^average_shap/",)},
}
LOSSES = {
    Framework.TORCH: "Loss_output_0",
    Framework.MXNET: "myloss0_output_0",
    Framework.KERAS: "loss",
    Framework.TENSORFLOW: "loss:0",
    Framework.XGBOOST: "train-rmse",
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
    mode = ModeKeys.GLOBAL if framework is Framework.XGBOOST else ModeKeys.TRAIN
    for step in range(3):
        trial.step(step, {name: np.float64(1), "gradient/x": np.ones(3)}, mode=mode)
    return trial


@pytest.mark.parametrize("framework", Framework)
def test_collections_tell_the_framework(framework: Framework) -> None:
    trial = TrialBuilder()
    trial.collections(**COLLECTIONS[framework])
    trial.step(0, {"x": np.float64(1)})
    assert {framework_of(view) for view in trial.views()} == {framework}


def test_without_collections_it_is_torch() -> None:
    trial = TrialBuilder()
    trial.step(0, {"x": np.float64(1)})
    assert [framework_of(view) for view in trial.views()] == [Framework.TORCH]


@pytest.mark.parametrize("framework", Framework)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_torch_is_named_to_its_users_alone(rule: Rule, framework: Framework) -> None:
    reasons = [o.reason for o in run_of(framework).outcomes(rule) if isinstance(o, NotEvaluated)]
    assert reasons
    message = " ".join(reasons)
    if framework is not Framework.TORCH:
        assert "torch" not in message
        assert "F.cross_entropy" not in message


@pytest.mark.parametrize(
    ("framework", "remedy"),
    [
        (Framework.TORCH, "get_hook().record_tensor_value"),
        (Framework.TORCH, "call model.eval() ahead of it, and model.train() behind"),
        (Framework.KERAS, "validation_data="),
        (Framework.XGBOOST, "`evals` (`eval_set` of `fit`)"),
    ],
)
@pytest.mark.parametrize("rule", [GeneralisationGap()])
def test_how_to_validate(rule: Rule, framework: Framework, remedy: str) -> None:
    for outcome in run_of(framework).outcomes(rule):
        assert isinstance(outcome, NotEvaluated)
        assert "there is no loss of validation to judge" in outcome.reason
        assert remedy in outcome.reason[:MOST_SHOWN]
