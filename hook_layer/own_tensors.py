"""What a training script saves itself: scalars and tensors under names of its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from hook_layer.capture import TensorBackend, checked_name
from hook_layer.collection_manager import SummaryPlan, TensorPlan
from hook_layer.collections import CollectionKeys
from hook_layer.guard import guarded
from hook_layer.recorder import StepRecorder

__all__ = ["OwnTensors"]

logger = logging.getLogger("stepwatch")

_SCALAR_PREFIX: Final = "scalar/"
_SCALAR_PLAN: Final = TensorPlan(raw=True, summaries=SummaryPlan(scalar=True))


class OwnTensors(StepRecorder):
    """A recorder that training scripts give values to."""

    _is_writer: bool | None  # None: not known before the first step
    _names_losses = False  # whether the script has saved a loss under a name of its own

    @property
    def is_active(self) -> bool:
        """Whether anything is recorded."""
        raise NotImplementedError

    def save_scalar(
        self, name: str, value: Any, sm_metric: bool = False, timestamp: float | None = None
    ) -> None:
        """Save one number as `scalar/<name>`, with the step in progress.

        In a step that the save configuration leaves out it is kept for the next saved step, where
        the newest value of a name counts: so a scalar never makes a step be saved.

        Args:
            name: Name of the number.
            value: A number, or a tensor of one element.
            sm_metric: Accepted for the original's sake; SageMaker gets no metrics from here.
            timestamp: Time of the value, seconds since 1970 (default: when the step began).

        Raises:
            TypeError: `name` is no string; `value` has more than one element, or is no number.
        """
        if not self._accepts(name):
            return
        _check_number(self._backend_of(value), name, value)
        if sm_metric:
            logger.debug(
                "sm_metric of %s is ignored, because SageMaker's metrics file does not exist", name
            )
        self._save(_SCALAR_PREFIX + name, value, _SCALAR_PLAN, timestamp)

    def save_tensor(
        self,
        tensor_name: str,
        tensor_value: Any,
        collections_to_write: str | Sequence[str] = CollectionKeys.DEFAULT,
    ) -> None:
        """Save a tensor of your own, if the step in progress is saved.

        Args:
            tensor_name: Its name.
            tensor_value: A tensor, an array, or what numpy makes an array of.
            collections_to_write: Collections that it becomes part of; they say what is stored.

        Raises:
            TypeError: `tensor_name` is no string.
        """
        losses = CollectionKeys.LOSSES
        self._names_losses |= collections_to_write == losses or losses in collections_to_write
        if not self._accepts(tensor_name):
            return
        names = collections_to_write
        if isinstance(names, str):
            names = [names]
        collections = [self.collection_manager.get(name) for name in names]
        for collection in collections:
            collection.add_tensor_name(tensor_name)
        if self._record is not None and not self._due:
            return  # the save configuration leaves this step out
        plan = self.collection_manager.plan_in(collections)
        self._save(tensor_name, tensor_value, plan, None)

    def _accepts(self, name: str) -> bool:
        """Return whether a tensor may have this name; if not, that is counted and logged."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a tensor must be a string, not {name!r}")
        try:
            checked_name(name)
        except ValueError as error:
            self.failures.tensor_failed(name, error)
            return False
        return True

    @guarded("own tensors")
    def _save(self, name: str, value: Any, plan: TensorPlan, timestamp: float | None) -> None:
        if self._is_writer is not False:
            self.collection_manager.note(name)
            self._capture_own(name, value, plan, timestamp)


def _check_number(backend: TensorBackend, name: str, value: Any) -> None:
    try:
        dtype, shape = backend.describe(value)
    except Exception as error:
        raise TypeError(f"{name} must be one number: {error}") from error
    if any(length != 1 for length in shape) or dtype.startswith(("str", "object", "bytes")):
        raise TypeError(f"{name} must be one number, not {dtype} of shape {shape}")
