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
    "my_loss PyRMSLE CustomErr my-error wmape smape mse2 log_loss max_error mylogloss NLLLoss "
    "weighted_rmse_log negative_log_likelihood NegLogLik nll tweedieDeviance error_rate valid_err "
    "cross_entropy crossentropy pinball rmse_10 wmape@10 my_error@0.5 top5_error top_5_error "
    "wape WAPE RMSPE mdape MedAE MASE CRPS bce BCEWithLogitsLoss rae rrse rmsse nrmse cv_rmse "
    "log_cosh logcosh huber focal_loss misclassification brier BrierScore hinge quantile_loss_0.9 "
    "pinball_loss_90 asymmetric_error multi_logloss binary_error gmean_err smooth_l1_loss "
    "sum_of_squared_errors classification_error my_merror own_poisson-nloglik ZeroOneLoss"
)
OF_SCIKIT_LEARN = (
    "brier_score_loss coverage_error hamming_loss hinge_loss label_ranking_loss log_loss max_error "
    "mean_absolute_error mean_absolute_percentage_error mean_gamma_deviance mean_pinball_loss "
    "mean_poisson_deviance mean_squared_error mean_squared_log_error mean_tweedie_deviance "
    "median_absolute_error root_mean_squared_error root_mean_squared_log_error zero_one_loss"
)
OWN_SCORES = (
    "accuracy f1 r2 mcc profit neg_rmse neg_mean_squared_error negative_log_loss NegRMSE -rmse "
    "negrmse d2_absolute_error_score d2_log_loss_score brier_skill_score error_reduction gini "
    "one_minus_error neg_cross_entropy inv_mae log_likelihood lossless accuracy_at_5 terrain "
    "pct_within_error profit_and_loss profit_loss stop_loss_rate share_below_error hits_at_err "
    "no_error accuracy_at_error1 r2_rmse_score error_free_rate 1-error 1_minus_logloss 1-MAPE "
    "my_1-rmse 1/rmse loss_ratio_lift smape_accuracy mape_accuracy score_mae rmse_score err_corr "
    "acc_err recall_at_5pct_error_rate tpr_at_error within_mae_1 forecast_accuracy_1-wmape "
    "MAPE_inverted reciprocal_rmse exp_neg_rmse win_rate_vs_loss R2Error terror_detection gloss "
    "noise_mse weight_loss my_-rmse unlogloss !error mean weighted_log_10 10 @ _"
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


@pytest.mark.parametrize("metric", [*OWN_LOSSES.split(), *OF_SCIKIT_LEARN.split(), "My RMSE"])
def test_own_metrics_that_are_called_losses(metric: str) -> None:
    assert is_known_to_fall(metric)
    assert not is_built_in(metric)


@pytest.mark.parametrize("metric", [*OWN_SCORES.split(), "", "1 - rmse", "Ärror"])
def test_of_other_own_metrics_nothing_is_known(metric: str) -> None:
    assert not is_known_to_fall(metric)
    assert not is_known_to_grow(metric)
    assert not is_built_in(metric)


@pytest.mark.parametrize("word", ["dataset", "asymmetric", "mean_squared_", "mean_loss_10_"])
def test_a_name_of_many_words_takes_no_time(word: str) -> None:
    """Names come from files: a pattern that tries every way to read them would never end."""
    assert not is_known_to_fall(word * 2_000 + "!")
    assert not is_known_to_fall((word * 64)[:63] + "!")
