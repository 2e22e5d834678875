"""Names of metrics that fall while a model learns, and of others."""

from __future__ import annotations

import pytest

from hook_layer.format.metric_names import is_built_in, is_known_to_fall, is_known_to_grow

FALLING = (
    "rmse rmsle mae mape mphe logloss error error@0.7 merror mlogloss quantile poisson-nloglik "
    "gamma-nloglik gamma-deviance tweedie-nloglik@1.5 cox-nloglik aft-nloglik"
)
GROWING = (
    "auc aucpr map map- map@5 map@5- ndcg ndcg- ndcg@2- pre pre@3 ams@0.15 "
    "interval-regression-accuracy"
)
OWN_LOSSES = (
    "my_loss PyRMSLE CustomErr my-error wmape smape mse2 log_loss brier_score_loss max_error "
    "mean_absolute_error weighted_rmse_log negative_log_likelihood NegLogLik nll tweedieDeviance "
    "cross_entropy crossentropy pinball"
)
OWN_SCORES = (
    "accuracy f1 r2 mcc profit neg_rmse neg_mean_squared_error negative_log_loss NegRMSE -rmse "
    "negrmse d2_absolute_error_score d2_log_loss_score brier_skill_score error_reduction gini "
    "one_minus_error neg_cross_entropy inv_mae log_likelihood lossless accuracy_at_5 terrain"
)


@pytest.mark.parametrize("metric", FALLING.split())
def test_metrics_of_xgboost_that_fall(metric: str) -> None:
    assert is_known_to_fall(metric)
    assert is_built_in(metric)
    assert not is_known_to_grow(metric)


@pytest.mark.parametrize("metric", GROWING.split())
def test_metrics_of_xgboost_that_grow(metric: str) -> None:
    assert is_known_to_grow(metric)
    assert is_built_in(metric)
    assert not is_known_to_fall(metric)


@pytest.mark.parametrize("metric", OWN_LOSSES.split())
def test_own_metrics_that_are_called_losses(metric: str) -> None:
    assert is_known_to_fall(metric)
    assert not is_built_in(metric)


@pytest.mark.parametrize("metric", OWN_SCORES.split())
def test_of_other_own_metrics_nothing_is_known(metric: str) -> None:
    assert not is_known_to_fall(metric)
    assert not is_known_to_grow(metric)
    assert not is_built_in(metric)
