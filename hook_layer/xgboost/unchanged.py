"""Adding a hook to each training of an XGBoost script that has none.

`xgboost.train` is one function under three names; the scikit-learn interface calls the third. The
hook gets the parameters, the training data, and as the data to predict the last of `evals` that is
other data, or else the last, so that a configuration file can ask for every collection. Each call
is a run of its own.
"""

from __future__ import annotations

import logging
from functools import wraps
from typing import Any

import xgboost
import xgboost.sklearn
import xgboost.training

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.core.hook import BaseHook
from hook_layer.inactive_copy import InactiveCopy
from hook_layer.tracebacks import hide_frame
from hook_layer.xgboost import Hook
from hook_layer.xgboost.evaluated_data import trained_on

__all__ = ["watch_unchanged"]

logger = logging.getLogger("stepwatch")


def watch_unchanged(source: HookSource) -> None:
    """Make a hook for each training of this process."""
    original = xgboost.training.train
    trainings = _Trainings(source)

    @wraps(original)
    def train(*args: Any, **kwargs: Any) -> Any:
        trainings.add_hook(args, kwargs)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    for module in (xgboost, xgboost.training, xgboost.sklearn):
        if getattr(module, "train", None) is original:
            vars(module)["train"] = train


class _Trainings:
    """The trainings of this process."""

    def __init__(self, source: HookSource) -> None:
        self._source = source

    def add_hook(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Add a hook to the keyword arguments of `xgboost.train`, if it needs one."""
        try:
            self._add_hook(args, kwargs)
        except Exception:
            logger.exception("adding a hook failed; training runs without one")

    def _add_hook(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for name in ("callbacks", "evals"):
            if kwargs.get(name) is not None:  # an iterator can be read once
                kwargs[name] = list(kwargs[name])
        callbacks = kwargs.get("callbacks") or []
        if any(isinstance(callback, (BaseHook, InactiveCopy)) for callback in callbacks):
            return
        hook = self._source.make(Hook)
        if hook is None:
            return
        named = dict(zip(("params", "dtrain"), args, strict=False)) | kwargs
        hook.hyperparameters = named.get("params")
        hook.train_data = named.get("dtrain")
        evals = kwargs.get("evals") or []
        is_training = trained_on(hook.train_data, evals)
        data = [each for each, _ in evals]
        others = [each for each, of in zip(data, is_training, strict=True) if not of]
        hook.validation_data = (others or data or [None])[-1]
        kwargs["callbacks"] = [*callbacks, hook]
