"""Watches loops of `train_on_batch` and `test_on_batch`: each call is a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from weakref import ref

from hook_layer.capture.patched_functions import patched
from hook_layer.keras.events import KerasEvents

__all__ = ["KINDS", "watch_batches"]

KINDS: Final = {"train_on_batch": "train", "test_on_batch": "test"}
"""Methods of a model that compute one step, and its kind."""


def watch_batches(hook: KerasEvents, model: Any) -> Callable[[], None]:
    """Watch the calls of one model's methods.

    Returns:
        A function that puts the methods back.
    """
    known_hook, known_model = ref(hook), ref(model)

    def called(event: Callable[[KerasEvents, Any, str], None], kind: str, *_: Any) -> None:
        hook, model = known_hook(), known_model()
        if hook is not None and model is not None:
            event(hook, model, kind)

    for name, kind in KINDS.items():
        vars(model)[name] = patched(
            getattr(model, name),
            before=partial(called, KerasEvents.single_batch_begins, kind),
            after=_ignoring_names(partial(called, KerasEvents.single_batch_ends, kind)),
        )

    def restore() -> None:
        known = known_model()
        for name in KINDS if known is not None else ():
            vars(known).pop(name, None)

    return restore


def _ignoring_names(function: Callable[..., None]) -> Callable[..., None]:
    def called(*args: Any, **_: Any) -> None:
        function(*args)

    return called
