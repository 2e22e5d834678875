"""Captures torch tensors; for sharded ones, this rank's part."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final

import torch
from torch import Tensor

from hook_layer.capture.captured_step import CapturedBatch, CapturedTensor, TensorBackend
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.core.tensor_capture import CaptureTensors, PlannedTensors, TensorSource
from hook_layer.format.statistics_block import Shard
from hook_layer.guard import FailureLog
from hook_layer.pytorch.capture import TorchBackend
from hook_layer.pytorch.copies import BufferPool
from hook_layer.pytorch.deepspeed_zero import zero_part
from hook_layer.pytorch.device_statistics import DeviceBatches
from hook_layer.pytorch.due_parameters import GRADIENT_PREFIX
from hook_layer.pytorch.host_copy import not_disturbing_recordings
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.tensor_batch import join
from hook_layer.pytorch.tensor_memory import UnreadableTensorError, readable
from hook_layer.pytorch.values import shard_of

__all__ = ["TorchSource"]

logger = logging.getLogger("stepwatch")

_plain_attributes: Final = torch._C.DisableTorchFunctionSubclass  # noqa: SLF001 - no public way
"""Context in which the attributes of tensors are torch's own, whatever their class."""
_STATE_PREFIX: Final = f"{CollectionKeys.OPTIMIZER_VARIABLES}/"


class TorchSource(TensorSource):
    """Captures torch tensors.

    Args:
        failures: Counts tensors that cannot be captured.
        registered: The models, which know their flat parameters.
        queue_bytes: Maximum memory of copies that is kept for reuse.
        is_only_writer: Whether a single rank writes, so that other ranks' shards are missing.
    """

    def __init__(
        self,
        failures: FailureLog,
        registered: RegisteredModules,
        *,
        queue_bytes: int,
        is_only_writer: bool,
    ) -> None:
        super().__init__(failures)
        self._on_devices = DeviceBatches()
        self._backend = TorchBackend(BufferPool(queue_bytes), self._on_devices)
        self._registered = registered
        self._is_only_writer = is_only_writer
        self._has_warned_of_shards = self._has_warned_of_recording = False

    def backend_of(self, value: Any) -> TensorBackend:
        """Return the backend for a value."""
        return self._backend if isinstance(value, Tensor) else super().backend_of(value)

    def batches(
        self, tensors: PlannedTensors, *, has_values: bool, has_statistics: bool
    ) -> tuple[Sequence[CapturedBatch], PlannedTensors]:
        """Capture tensors in batches if possible, and return the others."""
        if not has_statistics or self._has_parts:
            return (), tensors
        with _plain_attributes():
            return self._batches(tensors, has_values=has_values)

    def _batches(
        self, tensors: PlannedTensors, *, has_values: bool
    ) -> tuple[Sequence[CapturedBatch], PlannedTensors]:
        batches, others = join(tensors, has_values=has_values)
        is_cuda = any(batch.is_cuda for batch in batches)
        if is_cuda and torch.cuda.is_current_stream_capturing():
            return (), tensors
        try:
            with not_disturbing_recordings() if is_cuda else nullcontext():
                for batch in batches:
                    batch.capture(self._on_devices)
        except Exception:  # noqa: BLE001 - each tensor that fails is found later
            return (), tensors
        return batches, others

    def capture(
        self, tensors: PlannedTensors, capture: CaptureTensors
    ) -> dict[str, CapturedTensor]:
        """Capture tensors, unless a CUDA graph of them is being captured."""
        with _plain_attributes():
            return self._capture(tensors, capture)

    def _capture(
        self, tensors: PlannedTensors, capture: CaptureTensors
    ) -> dict[str, CapturedTensor]:
        if not any(isinstance(value, Tensor) and value.is_cuda for value, _ in tensors.values()):
            return self._capture_shards(tensors, capture)
        if torch.cuda.is_current_stream_capturing():
            # A captured graph would copy to the host at each replay, into memory that was freed
            # before.
            self._warn_of_recording()
            return {}
        with not_disturbing_recordings():
            return self._capture_shards(tensors, capture)

    def send_statistics(self) -> None:
        """Send the statistics that devices computed to the host."""
        try:
            is_sent = self._on_devices.send()
        except Exception as error:  # noqa: BLE001 - training continues after any error
            self.failures.failed("statistics", error)
            return
        if not is_sent:
            self._warn_of_recording()

    def forget_statistics(self) -> None:
        """Release statistics on devices that are not used."""
        self._on_devices.forget()

    def _capture_shards(
        self, tensors: PlannedTensors, capture: CaptureTensors
    ) -> dict[str, CapturedTensor]:
        """Capture this rank's part of each tensor, and record its position in the whole tensor."""
        own: dict[str, Any] = {}
        shards: dict[str, Shard] = {}
        for name, planned in tensors.items():
            value, plan = planned
            try:
                part, shard = self._own_part(name, value)
            except UnreadableTensorError as error:
                self.failures.tensor_skipped(name, str(error))
                continue
            except Exception as error:  # noqa: BLE001 - one bad tensor must not affect the others
                self.failures.tensor_failed(name, error)
                continue
            own[name] = part, plan
            if shard is not None:
                shards[name] = shard
        captured = capture(own) if own else {}
        if shards and self._is_only_writer:
            self._warn_of_shards(next(iter(shards)))
        for name in shards.keys() & captured.keys():
            captured[name].shard = shards[name]
        return captured

    @property
    def _has_parts(self) -> bool:
        """Whether tensors of torch's own class may be parts, as in FSDP1 and DeepSpeed's ZeRO."""
        return self._registered.has_flat_parts or "deepspeed" in sys.modules

    def _own_part(self, name: str, value: Any) -> tuple[Any, Shard | None]:
        """Return this rank's part of a tensor, and its position; None for a whole tensor.

        Raises:
            UnreadableTensorError: It has no elements that can be read.
            ValueError: It belongs to a flat parameter that cannot be divided now.
        """
        if not isinstance(value, Tensor):
            return value, None
        part: tuple[Tensor, Shard | None] | None = None
        if self._has_parts:
            flat = self._registered.part_of(_parameter_name(name))
            part = zero_part(value) if flat is None else flat.of(value)
        own, shard = part or (value, shard_of(value))
        return readable(own), shard

    def _warn_of_shards(self, name: str) -> None:
        if not self._has_warned_of_shards:
            self._has_warned_of_shards = True
            logger.warning(
                "%.200s is sharded over ranks and only one rank writes, so statistics "
                "cover its shard only; include_workers='auto' covers all shards",
                name,
            )

    def _warn_of_recording(self) -> None:
        if not self._has_warned_of_recording:
            self._has_warned_of_recording = True
            logger.warning("a CUDA graph is being captured; tensors of its replays are not saved")


def _parameter_name(name: str) -> str:
    """Return the name of the parameter of a tensor: itself, its gradient or optimizer state."""
    if name.startswith(_STATE_PREFIX):
        return name.removeprefix(_STATE_PREFIX).rpartition("/")[0]
    return name.removeprefix(GRADIENT_PREFIX)
