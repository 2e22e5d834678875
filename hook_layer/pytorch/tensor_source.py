"""Captures torch tensors, together where possible; of sharded ones, this rank's part."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hook_layer.capture.captured_step import (
    CapturedBatch,
    CapturedTensor,
    StatisticsBatch,
    TensorBackend,
)
from hook_layer.capture.statistics import segment_statistics
from hook_layer.configuration.collection_manager import TensorPlan
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.core.tensor_capture import CaptureTensors, PlannedTensors, TensorSource
from hook_layer.format.statistics_block import Shard
from hook_layer.guard import FailureLog
from hook_layer.pytorch.copies import SMALL_BYTES, BufferPool, FlatCopy, not_disturbing_recordings
from hook_layer.pytorch.device_statistics import DeviceBatches, DeviceRows
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.parameters import GRADIENT_PREFIX
from hook_layer.pytorch.sharded_parameters import shard_of, zero_part
from hook_layer.pytorch.tensor_backend import TorchBackend
from hook_layer.pytorch.tensor_elements import (
    WHOLE,
    UnreadableTensorError,
    is_plain,
    readable,
    type_name,
)

__all__ = ["TorchBatch", "TorchSource", "join"]

_plain_attributes: Final = torch._C.DisableTorchFunctionSubclass  # noqa: SLF001 - no public way
"""Context in which the attributes of tensors are torch's own, whatever their class."""
_STATE_PREFIX: Final = f"{CollectionKeys.OPTIMIZER_VARIABLES}/"
_RECORDING: Final = "a CUDA graph is being captured; tensors of its replays are not saved"
_Planned = tuple[Tensor, TensorPlan]
_Named = tuple[str, Tensor, TensorPlan]
_MOST_COPIED_BYTES: Final = 64 << 20
"""Maximum size of all copies of one capture; further tensors are captured one by one."""


class TorchSource(TensorSource):
    """Captures torch tensors.

    Up to `queue_bytes` of memory are kept for reuse. If this rank is the only writer, the shards of
    other ranks are missing.
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
            groups, others = join(tensors, has_values=has_values)
            is_cuda = any(group[0][1].is_cuda for group in groups)
            if is_cuda and torch.cuda.is_current_stream_capturing():
                return (), tensors
            try:
                with not_disturbing_recordings() if is_cuda else nullcontext():
                    return [TorchBatch(group, self._on_devices) for group in groups], others
            except Exception:  # noqa: BLE001 - each tensor that fails is found later
                return (), tensors

    def capture(
        self, tensors: PlannedTensors, capture: CaptureTensors
    ) -> dict[str, CapturedTensor]:
        """Capture tensors, unless a CUDA graph of them is being captured."""
        with _plain_attributes():
            values = [value for value, _ in tensors.values()]
            is_cuda = any(isinstance(value, Tensor) and value.is_cuda for value in values)
            if is_cuda and torch.cuda.is_current_stream_capturing():
                # A captured graph would copy to the host at each replay, into memory that was
                # freed before.
                self.failures.warn_once(_RECORDING)
                return {}
            with not_disturbing_recordings() if is_cuda else nullcontext():
                return self._capture_shards(tensors, capture)

    def send_statistics(self) -> None:
        """Send the statistics that devices computed to the host."""
        try:
            is_sent = not self._on_devices.open or self._on_devices.send()
        except Exception as error:  # noqa: BLE001 - training continues after any error
            self.failures.failed("statistics", error)
            return
        if not is_sent:
            self.failures.warn_once(_RECORDING)

    def forget_statistics(self) -> None:
        """Release statistics on devices that are not used."""
        self._on_devices.forget()

    def _capture_shards(
        self, tensors: PlannedTensors, capture: CaptureTensors
    ) -> dict[str, CapturedTensor]:
        """Capture this rank's part of each tensor, and record its position in the whole tensor."""
        has_parts = self._has_parts
        own: dict[str, Any] = {}
        shards: dict[str, Shard] = {}
        for name, (value, plan) in tensors.items():
            try:
                part, shard = self._own_part(name, value, has_parts=has_parts)
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
            self.failures.warn_once(
                "%.200s is sharded over ranks and only one rank writes, so statistics "
                "cover its shard only; include_workers='auto' covers all shards",
                next(iter(shards)),
            )
        for name in shards.keys() & captured.keys():
            captured[name].shard = shards[name]
        return captured

    @property
    def _has_parts(self) -> bool:
        """Whether tensors of torch's own class may be parts, as in FSDP1 and DeepSpeed's ZeRO."""
        return bool(self._registered.flat_parts) or "deepspeed" in sys.modules

    def _own_part(self, name: str, value: Any, *, has_parts: bool) -> tuple[Any, Shard | None]:
        """Return this rank's part of a tensor, and its position; None for a whole tensor."""
        if not isinstance(value, Tensor):
            return value, None
        part: tuple[Tensor, Shard | None] | None = None
        if has_parts:
            flat = self._registered.flat_parts.get(_parameter_name(name))
            part = zero_part(value) if flat is None else flat.of(value)
        elif type(value) in WHOLE:
            part = value, None
        own, shard = part or (value, shard_of(value))
        return readable(own), shard


def join(
    tensors: Mapping[str, _Planned], *, has_values: bool
) -> tuple[list[list[_Named]], dict[str, _Planned]]:
    """Return groups of tensors that can be captured together, and the other tensors.

    Tensors of a group are dense, of torch's own class, and have stored statistics. Their values may
    be stored if they are parameters or complete; other tensors share their number of rows.
    """
    joined: dict[object, list[_Named]] = {}
    others: dict[str, _Planned] = {}
    num_bytes = 0
    for name, planned in tensors.items():
        value, plan = planned
        is_cpu, has_value, size = value.is_cpu, plan.raw, 0
        is_joined = plan.is_whole_parameter and has_values if has_value else plan.is_statistics
        is_joined = is_joined and is_plain(value)
        if is_joined and (is_cpu or has_value):  # which are copied
            size = value.nbytes
            is_joined = size < SMALL_BYTES and num_bytes + size <= _MOST_COPIED_BYTES
        if not is_joined:
            others[name] = planned
            continue
        num_bytes += size
        key = value.dtype if is_cpu else (value.dtype, value.device, has_value)
        if key in joined:
            joined[key].append((name, value, plan))
        else:
            joined[key] = [(name, value, plan)]
    return [*joined.values()], others


class TorchBatch:
    """The captured tensors of one group, all of one device and type."""

    def __init__(self, group: Sequence[_Named], batches: DeviceBatches) -> None:
        self._names, tensors, self._plans = zip(*group, strict=True)
        keys = [*map(id, tensors)]  # one tensor may have several names
        by_key = dict(zip(keys, tensors, strict=True))
        values = [*by_key.values()]
        places = dict(zip(by_key, range(len(by_key)), strict=True))
        self._places = [places[key] for key in keys]
        self._shapes = [value.shape for value in values]
        self._dtype, is_cuda = values[0].dtype, values[0].is_cuda
        self._copy: FlatCopy | None = None
        self._statistics: StatisticsBatch | None = None
        self.nbytes = 0
        if is_cuda:
            rows = DeviceRows(*batches.add([value.detach().view(-1) for value in values]))
            self._statistics, self.nbytes = rows, rows.nbytes
        if not is_cuda or any(plan.raw for plan in self._plans):
            self._copy = FlatCopy(values)
            self.nbytes += self._copy.nbytes

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._names)

    def tensors(self) -> dict[str, CapturedTensor]:
        """Return the tensors by name."""
        copy, shapes = self._copy, self._shapes
        copies = [] if copy is None else copy.segments(shapes)
        statistics = self._statistics
        if statistics is None and copy is not None:
            statistics = _FlatStatistics(copy, [shape.numel() for shape in shapes])
        dtype = type_name(self._dtype)
        shapes_as_tuples = [tuple(shape) for shape in shapes]
        return {
            name: CapturedTensor(
                dtype,
                shapes_as_tuples[place],
                raw=copies[place] if plan.raw else None,
                is_of_parameter=plan.is_of_parameter,
                statistics=statistics,
                row=place,
            )
            for name, plan, place in zip(self._names, self._plans, self._places, strict=True)
        }


class _FlatStatistics:
    """Statistics of the tensors of one copy, computed on demand."""

    __slots__ = ("_rows", "_source")
    nbytes = 0  # the batch counts the copy

    def __init__(self, copy: FlatCopy, sizes: list[int]) -> None:
        self._source = [(copy, sizes)]
        self._rows = np.empty((0, 0))

    def rows(self) -> NDArray[np.float64]:
        while self._source:  # the copy is released after it is read
            copy, sizes = self._source.pop()
            self._rows = segment_statistics(copy.array(), sizes)
        return self._rows


def _parameter_name(name: str) -> str:
    """Return the name of the parameter of a tensor: itself, its gradient or optimizer state."""
    if name.startswith(_STATE_PREFIX):
        return name.removeprefix(_STATE_PREFIX).rpartition("/")[0]
    return name.removeprefix(GRADIENT_PREFIX)
