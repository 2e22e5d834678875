"""The contract of hooks, kept by XGBoost's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

import stepwatch.xgboost
from hook_layer.core.hook import BaseHook
from hook_layer.format.modes import ModeKeys
from hook_layer.testing.hook_contract import HookContract, OnStep, Trained, digest_of, nothing
from hook_layer.xgboost import Hook
from rule_runtime.testing.fact_contract import FactContract
from tests.frameworks.default_hooks import DefaultHookContract

NO_NETWORK = "boosted trees have none"
PARAMETERS = {"eta": 0.3, "max_depth": 3, "nthread": 1, "subsample": 0.8, "seed": 7}


class Script(xgboost.callback.TrainingCallback):
    """What the training script does in a round."""

    def __init__(self, on_step: OnStep) -> None:
        self.on_step = on_step

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        del model, evals_log
        self.on_step(epoch)
        return False


def matrix() -> xgboost.DMatrix:
    random = np.random.default_rng(0)
    features = random.normal(size=(80, 4))
    return xgboost.DMatrix(features, features[:, 0] + features[:, 1] ** 2)


class TestXGBoost(HookContract):
    adapter = "XGBoost"
    hook_type = Hook
    loss_name = "train-rmse"
    names = {
        "metrics": "train-rmse",
        "losses": "train-rmse",
        "predictions": "predictions",
        "labels": "labels",
        "hyperparameters": "hyperparameters/max_depth",
        "feature_importance": "feature_importance/gain/f0",
        "average_shap": "average_shap/f1",
        "full_shap": "full_shap/f1",
        "trees": "trees/Gain",
    }
    array_collection = "predictions"
    train_mode = ModeKeys.GLOBAL
    stop_raises = False
    missing = {
        "evaluation": "XGBoost evaluates within each boosting round: it has no steps of its own"
    }

    def train(
        self,
        hook: BaseHook | None,
        *,
        steps: int,
        evaluations: int = 0,
        on_step: OnStep = nothing,
    ) -> Trained:
        assert not evaluations
        data = matrix()
        log: dict[str, Any] = {}
        callbacks: list[Any] = [Script(on_step)]
        if hook is not None:
            assert isinstance(hook, Hook)
            hook.hyperparameters = PARAMETERS
            hook.train_data = hook.validation_data = data
            callbacks.append(hook)
        model = xgboost.train(
            PARAMETERS,
            data,
            steps,
            evals=[(data, "train")],
            evals_result=log,
            verbose_eval=False,
            callbacks=callbacks,
        )
        weights = np.frombuffer(model.save_raw("ubj"), np.uint8)
        return Trained(digest_of([weights]), tuple(log["train"]["rmse"]))

    def spy(self, hook: BaseHook, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        steps = super().spy(hook, monkeypatch)

        def add(name: str) -> None:
            original = getattr(xgboost.Booster, name)

            def method(booster: xgboost.Booster, *args: Any, **kwargs: Any) -> Any:
                steps.append(hook.step)
                return original(booster, *args, **kwargs)

            monkeypatch.setattr(xgboost.Booster, name, method)

        for name in ("predict", "get_score", "trees_to_dataframe", "get_dump"):
            add(name)
        return steps


class TestFactsOfXGBoost(FactContract):
    """The facts that rules know of a classifier with sample weights."""

    adapter = "XGBoost"
    hook_type = Hook
    num_evaluations = 0
    missing_facts = {
        "sample weights": "the hook for XGBoost does not save them",
        "weights": NO_NETWORK,
        "gradients": NO_NETWORK,
        "last layer before the loss": NO_NETWORK,
        "norms of gradients before and after clipping": NO_NETWORK,
        "optimizer steps": NO_NETWORK,
    }

    def train(
        self,
        hook: BaseHook | None,
        *,
        steps: int,
        evaluations: int = 0,
        on_step: OnStep = nothing,
    ) -> Trained:
        assert isinstance(hook, Hook)
        assert not evaluations
        random = np.random.default_rng(0)
        features, labels = random.normal(size=(80, 4)), random.integers(0, 3, 80)
        data = xgboost.DMatrix(features, labels, weight=random.random(80))
        validation = xgboost.DMatrix(features[:20], labels[:20])
        parameters = {"objective": "multi:softprob", "num_class": 3, "eta": 0.3, "nthread": 1}
        hook.hyperparameters = parameters
        hook.train_data, hook.validation_data = data, validation
        evals = [(data, "train"), (validation, "validation")]
        callbacks: list[Any] = [Script(on_step), hook]
        xgboost.train(parameters, data, steps, evals=evals, verbose_eval=False, callbacks=callbacks)
        return Trained("", ())


class TestDefaultHookOfXGBoost(DefaultHookContract):
    """What `stepwatch.xgboost.Hook` saves."""

    hook_type = Hook
    default_type = stepwatch.xgboost.Hook
    num_evaluations = 0
    train = TestFactsOfXGBoost.train
