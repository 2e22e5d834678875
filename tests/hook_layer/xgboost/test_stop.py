"""A request to stop ends training behind a round, and keeps the model."""

from __future__ import annotations

from typing import Any

import pytest
import xgboost

from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import Hook
from tests.hook_layer.xgboost.boosting import Script, make_hook, matrix, train


def rule(trial: WrittenTrial, hook: Hook) -> Script:
    """Ask to stop while the third round is trained."""

    def ask(_: Any, epoch: int) -> None:
        if epoch == 2:
            hook.flush()
            request = StopFile("the loss grows", "2026-01-01T00:00:00Z", trial.job().run_id)
            trial.store.put(STOP_FILE, request.encode())
            assert hook.session.trial is not None
            hook.session.trial.stop_signal.check()

    return Script(before=ask)


def test_training_ends_with_the_model_so_far(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial)
    results: dict[str, Any] = {}
    model = train(hook, rule(trial, hook), rounds=9, evals_result=results)
    assert model.num_boosted_rounds() == 3
    assert model.predict(matrix()).shape == (442,)
    assert len(results["train"]["rmse"]) == 3
    assert sorted(trial.indexes()) == [0, 1, 2]
    assert hook.stop_reason == "the loss grows"
    assert "training ends after round 2, as requested: the loss grows" in caplog.messages
    assert trial.end_marker() is not None


def test_a_flag_is_only_a_flag(trial: WrittenTrial) -> None:
    hook = make_hook(trial, stop="flag")
    model = train(hook, rule(trial, hook), rounds=5)
    assert model.num_boosted_rounds() == 5
    assert hook.should_stop


def test_cross_validation_ends_with_its_table(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    table = xgboost.cv({"nthread": 1}, matrix(), 9, callbacks=[hook, rule(trial, hook)])
    assert len(table) == 3
    assert sorted(trial.indexes()) == [0, 1, 2]


def test_the_sklearn_interface_ends_fitted(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    data = matrix()
    model = xgboost.XGBRegressor(n_estimators=9, n_jobs=1, callbacks=[hook, rule(trial, hook)])
    model.fit(data.get_data(), data.get_label(), verbose=False)
    assert model.get_booster().num_boosted_rounds() == 3


def test_of_several_workers_one_does_not_leave_alone(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = make_hook(trial)
    monkeypatch.setattr("hook_layer.xgboost.distributed.rank_and_size", lambda: (0, 2))
    model = train(hook, rule(trial, hook), rounds=5)
    assert model.num_boosted_rounds() == 5
    assert hook.should_stop
    assert caplog.text.count("include_workers='all'") == 1
