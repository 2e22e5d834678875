"""Metrics of XGBoost that are not known to fall are no losses, whatever collection they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.curve_faults import LossDiverging, LossSpike, OscillatingLoss
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.rules.overfit import Overfit, Overtraining
from rule_runtime.rules.plateaued_loss import PlateauedLoss
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.outcomes import make_run, reason_of
from tests.rule_runtime.rules.runs import found_at

N = 160
AT = np.arange(N)
NOISE = np.random.default_rng(0).normal(size=N)
GROWS = 0.9 - 0.7 * np.exp(-AT / 20)
FLAT = 0.5 + 0.0001 * NOISE
SWINGS = 2.3 + np.where(AT < 20, 0.03, 1.0) * NOISE
SPIKES = np.where((AT > 90) & (AT < 96), 8.0, 2.3 * np.exp(-AT / 30) + 0.03 * NOISE)
OVERFITS = np.where(AT < 20, 1 - 0.01 * AT, 0.8 + 0.02 * (AT - 20))
FALLS = np.exp(-AT / 10)
SICK: Mapping[str, tuple[Rule, np.ndarray, np.ndarray]] = {
    "grows": (LossDiverging(), GROWS, GROWS),
    "spikes": (LossSpike(), SPIKES, SPIKES),
    "swings": (OscillatingLoss(), SWINGS, SWINGS),
    "stands still": (PlateauedLoss(), FLAT, FLAT),
    "parts": (GeneralisationGap(), FALLS, OVERFITS),
    "overfits": (Overfit(patience=3), FALLS, OVERFITS),
    "is overtrained": (Overtraining(patience_train=3, patience_validation=3), FALLS, OVERFITS),
}


def trial_of(
    metric: str, training: Any, validation: Any, *, data: str = "train", **message: tuple[str, ...]
) -> TrialBuilder:
    """Return a run as older hooks wrote it: all metrics of the script's own are in `losses`."""
    trial = TrialBuilder()
    both = f"{data}-{metric}", f"validation-{metric}"
    trial.collections(losses=("^[a-zA-z]+-.+(?<!(auc|map))$",), average_shap=("^shap/",), **message)
    for at in range(N):
        values = zip(both, (training[at], validation[at]), strict=True)
        trial.step(at, {name: np.float64(value) for name, value in values}, mode_step=at)
    return trial


@pytest.mark.parametrize("metric", ["rmse", "error@0.7", "cox-nloglik", "wmape", "my_loss"])
@pytest.mark.parametrize("kind", SICK)
def test_what_is_known_to_fall_is_judged(kind: str, metric: str) -> None:
    rule, training, validation = SICK[kind]
    trial = trial_of(metric, training, validation)
    is_share = metric.startswith("error") and kind == "parts"
    assert bool(found_at(rule, trial)) is not is_share


@pytest.mark.parametrize(
    "metric",
    ["accuracy", "f1", "r2", "interval-regression-accuracy", "ndcg-", "map-", "neg_rmse", "gini"],
)
@pytest.mark.parametrize("kind", SICK)
def test_what_is_not_known_to_fall_is_accused_of_nothing(kind: str, metric: str) -> None:
    rule, training, validation = SICK[kind]
    trial = trial_of(metric, training, validation)
    outcomes = trial.outcomes(rule)
    assert not found_at(rule, trial)
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


def test_the_script_may_have_told() -> None:
    rule, training, validation = SICK["grows"]
    falling = trial_of("distance", training, validation, falling_metrics=("-distance$",))
    growing = trial_of("my_loss", training, validation, growing_metrics=("-my_loss$",))
    assert found_at(rule, falling)
    assert not found_at(rule, growing)


def test_data_by_a_name_of_the_scripts_own() -> None:
    rule, training, validation = SICK["grows"]
    for message in ({}, {"training_metrics": ("^mine-",)}):
        assert not found_at(rule, trial_of("f1", training, validation, data="mine", **message))
        assert found_at(rule, trial_of("rmse", training, validation, data="mine", **message))


def test_it_is_told_why_a_metric_is_no_loss() -> None:
    for metric in ("f1", "ndcg-"):
        (*_, last) = trial_of(metric, GROWS, GROWS).outcomes(Overfit())
        assert reason_of(last).startswith(f"train-{metric} may not be a loss: use a metric that")


def test_other_frameworks_may_call_a_loss_what_they_like() -> None:
    rule, training, _ = SICK["grows"]
    trial = make_run(
        *({"train-policy": np.float64(training[at])} for at in range(N)),
        collections={"losses": ("^train-",)},
    )
    assert found_at(rule, trial)


def test_without_any_loss_it_is_told_what_one_is() -> None:
    for collections in ({"average_shap": ("^shap/",)}, {}):
        trial = make_run(
            {"validation_0-f1": np.float64(0.5)},
            collections={"losses": ("^nothing$",), **collections},
        )
        for rule in (LossDiverging(), Overfit()):
            reason = reason_of(*trial.outcomes(rule))
            assert reason.startswith("no loss was saved")
            assert ("known to fall" in reason) is bool(collections)
