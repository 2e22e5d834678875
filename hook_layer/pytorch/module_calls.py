"""Names the tensors of a step, and captures inputs and outputs of modules at the end of a pass.

Each call only stores references and the number of writes to each tensor. The first call of a module
captures at once, and compares sums at the end of the pass, because torch does not count writes to
`tensor.data` or by custom kernels. Modules whose tensors are overwritten are captured at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from hook_layer.configuration.collection_manager import TensorPlan
from hook_layer.core.collector import Collector
from hook_layer.core.recorder import Recorder
from hook_layer.guard import FailureLog
from hook_layer.pytorch.calls import tensors_in
from hook_layer.pytorch.copies import HostCopy
from hook_layer.pytorch.tensor_elements import PLAIN_TYPES, WHOLE, owns_memory

__all__ = ["MAX_CALLS_A_STEP", "ModuleCalls", "PlannedTensor", "StepTensors"]

PlannedTensor: TypeAlias = "tuple[Tensor, TensorPlan]"
"""A tensor, and the plan of what to store."""
MAX_CALLS_A_STEP: Final = 10_000
"""Maximum number of tensors of a module in one step, as `name_output_0` and so on."""


class StepTensors:
    """Names the tensors of a step, and captures those that are due.

    Attributes:
        recorder: Records the tensors.
    """

    def __init__(self, failures: FailureLog, collector: Collector, recorder: Recorder) -> None:
        self._failures = failures
        self._collector = collector
        self.recorder = recorder
        self._counts: dict[str, int] = {}

    def begin_step(self) -> None:
        """Restart counting at 0."""
        self._counts.clear()

    def count(self, prefix: str) -> int:
        """Return the number of tensors with a prefix in this step."""
        return self._counts.get(prefix, 0)

    def numbered(self, prefix: str, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return tensors as `{prefix}{i}`; `i` continues counting within a step.

        At most `MAX_CALLS_A_STEP`: otherwise, a loss used by another model after the last step of
        this one would fill that step without limit.
        """
        first = self._counts.get(prefix, 0)
        if first >= MAX_CALLS_A_STEP:
            self._failures.warn_once(
                "one step has %d tensors %s... and saves no more, because registered modules "
                "are called repeatedly without a new step of the model",
                MAX_CALLS_A_STEP,
                prefix,
            )
            return {}
        self._counts[prefix] = first + len(tensors)
        return {f"{prefix}{first + i}": tensor for i, tensor in enumerate(tensors)}

    def due_of_call(self, name: str, inputs: Any, outputs: Any) -> dict[str, PlannedTensor]:
        """Return due inputs and outputs of a call, with their plans."""
        tensors, results = tensors_in(inputs), tensors_in(outputs)
        of_call = self.numbered(f"{name}_input_", tensors)
        return self._due(of_call | self.numbered(f"{name}_output_", results))

    def capture(self, tensors: Mapping[str, Tensor], member_of: tuple[str, ...] = ()) -> None:
        """Capture the due tensors among the given ones."""
        due = self._due(tensors, member_of) if tensors else {}
        if due:
            self.recorder.capture(due)

    def _due(
        self, tensors: Mapping[str, Tensor], member_of: tuple[str, ...] = ()
    ) -> dict[str, PlannedTensor]:
        """Return the due tensors, except parameters of lazy modules without elements yet."""
        planned = self._collector.planned(tensors, member_of).items()
        return {n: due for n, due in planned if type(due[0]) in WHOLE or not is_lazy(due[0])}


_MOST_HELD_BYTES: Final = 128 << 20
"""Maximum memory kept by references that the forward pass would otherwise free."""
_SUMMED: Final = PLAIN_TYPES | {torch.bfloat16, torch.int32, torch.int64}
_WRITTEN_TO: Final = "it was overwritten during the forward pass; later steps capture it earlier"
_raw_stream: Final[Callable[[int], int] | None] = getattr(
    torch._C,  # noqa: SLF001 - `torch.cuda.current_stream` takes ten times as long
    "_cuda_getCurrentRawStream",
    None,
)


_Content: TypeAlias = tuple[int, int]


class _Call(NamedTuple):
    """Tensors of one call, with the writes to each and its memory at the end of the call.

    Attributes:
        sums: Sums of their elements at that time; empty unless they are captured already.
    """

    name: str
    tensors: Mapping[str, PlannedTensor]
    versions: list[_Content]
    sums: list[Tensor]


class ModuleCalls:
    """Collects the calls of modules in a step.

    Some tensors are captured at once: those of compiled code, which reuses memory without notice,
    of inference mode, which does not count writes, of other CUDA streams, and those that are not
    dense. A tensor that is overwritten only in a later step is reported and skipped.
    """

    def __init__(self, tensors: StepTensors, failures: FailureLog) -> None:
        self._tensors = tensors
        self._capture_due = tensors.recorder.capture
        self._failures = failures
        self._calls: list[_Call] = []
        self._held: set[int] = set()  # memory addresses
        self._held_bytes = 0
        self._is_in_pass = False
        self._stream = 0
        self._unchanged: set[str] = set()  # modules whose tensors are never overwritten
        self._changed: set[str] = set()
        self._compared: list[tuple[str, list[HostCopy]]] = []

    def pass_begins(self) -> None:
        """Collect calls from now on until the forward pass ends."""
        self.pass_ends()
        self._learn()
        self._is_in_pass = True
        self._stream = _current_stream()

    def pass_ends(self) -> None:
        """Capture the collected calls."""
        self._is_in_pass = False
        if self._calls:
            self._capture()

    def add(self, name: str, inputs: Any, outputs: Any, *, is_compiled: bool) -> None:
        """Add a call of a module; compiled code may soon reuse the memory of its tensors."""
        due = self._tensors.due_of_call(name, inputs, outputs)
        if not due:
            return
        tensors = [tensor for tensor, _ in due.values()]
        may_wait = self._is_in_pass and not is_compiled and _current_stream() == self._stream
        if not may_wait or not all(map(_may_wait, tensors)):
            self._capture_due(due)
            return
        sums: list[Tensor] = []
        if name not in self._unchanged:
            self._capture_due(due)
            if name in self._changed:
                return
            sums = [_sum(tensor) for tensor in tensors]
        self._calls.append(_Call(name, due, [*map(_content, tensors)], sums))
        for tensor in tensors:
            memory = tensor.untyped_storage()
            if memory.data_ptr() not in self._held:
                self._held.add(memory.data_ptr())
                self._held_bytes += memory.nbytes()
        if self._held_bytes > _MOST_HELD_BYTES:
            self._capture()

    def forget(self) -> None:
        """Release the collected calls."""
        self._is_in_pass = False
        self._take()

    def _take(self) -> list[_Call]:
        calls, self._calls = self._calls, []
        self._held.clear()
        self._held_bytes = 0
        return calls

    def _capture(self) -> None:
        """Capture the tensors of all calls that were not overwritten, and learn from the others."""
        found: dict[str, PlannedTensor] = {}
        for call in self._take():
            tensors = [tensor for tensor, _ in call.tensors.values()]
            versions = [*map(_content, tensors)]
            if versions != call.versions:
                self._changed.add(call.name)
                if not call.sums:
                    self._keep_unchanged(call, versions, found)
            elif call.sums:
                pairs = zip(call.sums, tensors, strict=True)
                self._compared.append((call.name, [_is_same(*pair) for pair in pairs]))
            else:
                found.update(call.tensors)
        self._learn()
        if found:
            self._capture_due(found)

    def _learn(self) -> None:
        """Record which modules overwrite their tensors, from results that have arrived."""
        compared, self._compared = self._compared, []
        for name, results in compared:
            if not all(result.has_arrived() for result in results):
                self._compared.append((name, results))
            elif all(bool(result.array()) for result in results):
                self._unchanged.add(name)
            else:
                self._changed.add(name)
        self._unchanged -= self._changed

    def _keep_unchanged(
        self,
        call: _Call,
        versions: list[_Content],
        found: dict[str, PlannedTensor],
    ) -> None:
        for (name, due), before, now in zip(
            call.tensors.items(), call.versions, versions, strict=True
        ):
            if before == now:
                found[name] = due
            else:
                self._failures.tensor_failed(name, ValueError(_WRITTEN_TO))


def _may_wait(tensor: Tensor) -> bool:
    is_plain = type(tensor) in WHOLE and tensor.dtype in _SUMMED
    is_dense = is_plain and tensor.layout is torch.strided and not tensor.is_inference()
    return is_dense and (tensor.is_cpu or tensor.is_cuda) and owns_memory(tensor)


def _content(tensor: Tensor) -> _Content:
    """Return the number of writes to a tensor, and the address of its memory.

    Scripts may free the memory, or replace it by `tensor.data`, without a write.
    """
    return tensor._version, tensor.data_ptr()  # noqa: SLF001 - no public way


def _sum(tensor: Tensor) -> Tensor:
    return tensor.detach().sum(dtype=torch.float32)


def _is_same(before: Tensor, tensor: Tensor) -> HostCopy:
    """Return whether a tensor still has the given sum; the result arrives from the device later."""
    same = torch.isclose(before, _sum(tensor), rtol=0.0, atol=0.0, equal_nan=True)
    return HostCopy.of(same)


def _current_stream() -> int:
    if _raw_stream is None or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0
    return _raw_stream(torch.cuda.current_device())
