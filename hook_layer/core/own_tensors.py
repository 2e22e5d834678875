"""Scalars and tensors that a training script saves itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from hook_layer.capture.captured_step import checked_name
from hook_layer.configuration.collection_manager import CollectionManager, SummaryPlan, TensorPlan
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.core.late_values import LateValues
from hook_layer.core.recorder import Recorder
from hook_layer.core.state import HookState, Part
from hook_layer.core.tensor_capture import TensorSource
from hook_layer.guard import guarded

__all__ = ["OwnTensors"]

logger = logging.getLogger("stepwatch")

_SCALAR_PREFIX: Final = "scalar/"
_SCALAR_PLAN: Final = TensorPlan(raw=True, summaries=SummaryPlan(scalar=True))


class OwnTensors(Part):
    """Checks and saves scalars and tensors of a training script.

    Attributes:
        has_losses: Whether the script saved a loss itself.
        late: Saves values after the end of the run; None: the hook ignores them.
    """

    def __init__(
        self,
        state: HookState,
        manager: CollectionManager,
        recorder: Recorder,
        source: TensorSource,
        may_write: Callable[[], bool],
    ) -> None:
        super().__init__(state)
        self.has_losses = False
        self.late: LateValues | None = None
        self._manager = manager
        self._recorder = recorder
        self._source = source
        self._may_write = may_write

    @property
    def is_active(self) -> bool:
        """Whether values are saved."""
        return super().is_active or (self.late is not None and not self.state.is_forked)

    def save_scalar(self, name: str, value: Any, timestamp: float | None = None) -> None:
        """Save one number as `scalar/<name>`.

        Args:
            name: Name of the number.
            value: A number, or a tensor of one element.
            timestamp: Time of the value, seconds since 1970; None: when the step began.

        Raises:
            TypeError: `name` is not a string; `value` has several elements, or is not a number.
        """
        if self._accepts(name):
            self._check_number(name, value)
            self._save(_SCALAR_PREFIX + name, value, _SCALAR_PLAN, timestamp)

    def save_tensor(self, name: str, value: Any, collections: str | Sequence[str]) -> None:
        """Save a tensor, if the open step is saved.

        Args:
            name: Its name.
            value: A tensor, an array, or anything that numpy converts to an array.
            collections: Collections that it becomes part of; they decide what is stored.

        Raises:
            TypeError: `name` is not a string.
        """
        names = [collections] if isinstance(collections, str) else collections
        self.has_losses |= CollectionKeys.LOSSES in names
        if not self._accepts(name):
            return
        found = [self._manager.get(collection) for collection in names]
        for collection in found:
            collection.tensor_names.add(name)
        if not self._recorder.is_step_unsaved:
            self._save(name, value, self._manager.plan_in(found), None)

    def _accepts(self, name: str) -> bool:
        """Return whether a tensor may have this name; count and log a rejected name."""
        if self.state.is_closed and self.late is None:
            self.state.warn_once(
                "the hook is closed and stores nothing more; save values before `hook.close()`"
            )
        if not isinstance(name, str):
            raise TypeError(f"the name of a tensor must be a string, not {name!r}")
        try:
            checked_name(name)
        except ValueError as error:
            self.failures.tensor_failed(name, error)
            return False
        return True

    def _check_number(self, name: str, value: Any) -> None:
        try:
            dtype, shape = self._source.describe(value)
        except Exception as error:
            raise TypeError(f"{name} must be one number: {error}") from error
        if any(length != 1 for length in shape) or dtype.startswith(("str", "object", "bytes")):
            raise TypeError(f"{name} must be one number, not {dtype} of shape {shape}")

    @guarded("own tensors", after_close=True)
    def _save(self, name: str, value: Any, plan: TensorPlan, timestamp: float | None) -> None:
        if self.is_active and self._may_write():
            self._manager.note(name)
            capture = self._recorder.capture_own if self.late is None else self.late.capture
            capture({name: (value, plan)}, timestamp)
