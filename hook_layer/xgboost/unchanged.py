"""Adding a hook to each training of an XGBoost script that has none.

`xgboost.train` is one function under three names; the scikit-learn interface calls the third. The
hook gets the parameters, the training data, and as the data to predict the last of `evals` that is
other data, or else the last, so that a configuration file can ask for every collection. Each call
is a run of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import xgboost
import xgboost.sklearn
import xgboost.training

from hook_layer.autopatch.hook_source import HookSource, has_hook
from hook_layer.capture.patched_functions import patched
from hook_layer.xgboost import Hook
from hook_layer.xgboost.evaluated_data import data_to_predict

__all__ = ["add_hook", "watch_unchanged"]


def watch_unchanged(source: HookSource) -> None:
    """Make a hook for each training of this process."""
    original = xgboost.training.train
    train = patched(original, before=partial(add_hook, source))
    for module in (xgboost, xgboost.training, xgboost.sklearn):
        if getattr(module, "train", None) is original:
            vars(module)["train"] = train


def add_hook(source: HookSource, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Add a hook to the keyword arguments of `xgboost.train`, if it needs one."""
    for name in ("callbacks", "evals"):
        if kwargs.get(name) is not None:  # an iterator can be read once
            kwargs[name] = list(kwargs[name])
    callbacks = kwargs.get("callbacks") or []
    if has_hook(callbacks):
        return
    hook = source.make(Hook)
    if hook is None:
        return
    named = dict(zip(("params", "dtrain"), args, strict=False)) | kwargs
    hook.hyperparameters = named.get("params")
    hook.train_data = named.get("dtrain")
    hook.validation_data = data_to_predict(hook.train_data, kwargs.get("evals") or [])
    kwargs["callbacks"] = [*callbacks, hook]
