"""What the trees of a training change."""

from __future__ import annotations

from typing import Any

import pytest
import xgboost

from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.xgboost.boosting import make_hook, matrix, train


def saved(trial: WrittenTrial, name: str) -> list[float]:
    return [float(trial.values(step)[f"optimizer_steps/{name}"][0]) for step in trial.indexes()]


@pytest.mark.parametrize(
    "parameters",
    [{"min_child_weight": 1e6}, {"gamma": 1e9}, {"reg_alpha": 1e9}],
)
def test_trees_without_a_split_are_counted(trial: WrittenTrial, parameters: dict[str, Any]) -> None:
    train(make_hook(trial, "optimizer_steps"), parameters=parameters)
    assert saved(trial, "without_split") == [1, 2, 3, 4]


def test_all_trees_of_a_round_count(trial: WrittenTrial) -> None:
    parameters = {"gamma": 1e9, "num_parallel_tree": 5}
    train(make_hook(trial, "optimizer_steps"), parameters=parameters, rounds=2)
    assert saved(trial, "without_split") == [5, 10]


def test_one_split_is_enough(trial: WrittenTrial) -> None:
    earlier = train(rounds=3)
    parameters = {"gamma": 1e9}
    train(make_hook(trial, "optimizer_steps"), parameters=parameters, xgb_model=earlier)
    assert saved(trial, "without_split") == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"reg_lambda": 0}, 0.5),
        ({"reg_lambda": 0, "booster": "dart"}, 0.5),
        ({"reg_lambda": 0, "num_parallel_tree": 4, "subsample": 0.5}, 0.5),
        ({"reg_lambda": 442e4}, 0.5e-4),
        ({"reg_alpha": 1e9}, 0.0),
    ],
)
def test_the_rate_falls_with_regularisation(
    trial: WrittenTrial, parameters: dict[str, Any], expected: float
) -> None:
    parameters = {"max_depth": 1, **parameters}
    train(make_hook(trial, "optimizer_steps"), parameters=parameters, rounds=2)
    found = saved(trial, "effective_rate")
    assert found[0] == found[1] == pytest.approx(expected, rel=0.6 if expected < 0.1 else 1e-5)


def test_a_linear_booster_has_no_trees(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    train(
        make_hook(trial, "optimizer_steps"), parameters={"booster": "gblinear", "max_depth": None}
    )
    assert "optimizer_steps cannot be saved: the booster gblinear has no trees" in caplog.text


def test_trees_with_several_outputs_are_not_measured(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    features = matrix().get_data()
    labels = [[row, -row] for row in matrix().get_label()]
    data = xgboost.DMatrix(features, labels)
    train(
        make_hook(trial, "optimizer_steps"),
        data=data,
        parameters={"multi_strategy": "multi_output_tree", "tree_method": "hist"},
    )
    assert "trees with several outputs" in caplog.text
