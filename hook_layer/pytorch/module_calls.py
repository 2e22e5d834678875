"""Inputs and outputs of modules, captured together at the end of a forward pass.

A call only appends references to its tensors. They are captured by one call for all when the pass
ends, or when they hold much memory. A tensor that is written to meanwhile would be captured as it
is later. So the first time a module is called its tensors are captured at once, and so they always
are if somebody wrote to them before the pass ended, as `nn.ReLU(inplace=True)` does. At once are
also captured tensors of compiled code, which uses memory again without notice, of inference mode,
which does not count writes, and of other CUDA streams than that of the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import torch

from hook_layer.guard import FailureLog
from hook_layer.pytorch.step_tensors import PlannedTensor, StepTensors

__all__ = ["ModuleCalls"]

_MOST_HELD_BYTES: Final = 128 << 20
"""Memory that references may hold which the forward pass would free."""
_WRITTEN_TO: Final = "it was written to during the forward pass; later steps capture it before"
_raw_stream: Final[Callable[[int], int] | None] = getattr(
    torch._C,  # noqa: SLF001 - `torch.cuda.current_stream` takes ten times as long
    "_cuda_getCurrentRawStream",
    None,
)


class _Call(NamedTuple):
    """Tensors of one call, with the number of writes to each when the call ended."""

    name: str
    tensors: Mapping[str, PlannedTensor]
    versions: list[int]
    is_captured: bool


class ModuleCalls:
    """Gathers the calls of modules in a step.

    Args:
        tensors: What names and captures the tensors.
        failures: Counts tensors that were written to before they were captured.
    """

    def __init__(self, tensors: StepTensors, failures: FailureLog) -> None:
        self._tensors = tensors
        self._failures = failures
        self._calls: list[_Call] = []
        self._held_bytes = 0
        self._is_in_pass = False
        self._stream = 0
        self._unchanged: set[str] = set()  # modules whose tensors nobody wrote to
        self._changed: set[str] = set()

    def pass_begins(self) -> None:
        """Gather the calls from now on until the forward pass ends."""
        self.pass_ends()
        self._is_in_pass = True
        self._stream = _current_stream()

    def pass_ends(self) -> None:
        """Capture what was gathered."""
        self._is_in_pass = False
        if self._calls:
            self._capture()

    def add(self, name: str, inputs: Any, outputs: Any, *, is_compiled: bool) -> None:
        """Note a call of a module.

        Args:
            name: Name of the module.
            inputs: Its inputs.
            outputs: Its outputs.
            is_compiled: Whether compiled code calls, which may use their memory again.
        """
        due = self._tensors.due_of_call(name, inputs, outputs)
        if not due:
            return
        tensors = [tensor for tensor, _ in due.values()]
        may_wait = self._is_in_pass and not is_compiled
        may_wait = may_wait and not any(tensor.is_inference() for tensor in tensors)
        if not may_wait or (tensors[0].is_cuda and _current_stream() != self._stream):
            self._tensors.capture_due(due)
            return
        is_captured = name not in self._unchanged
        if is_captured:
            self._tensors.capture_due(due)
            if name in self._changed:
                return
        versions = [tensor._version for tensor in tensors]  # noqa: SLF001
        self._calls.append(_Call(name, due, versions, is_captured))
        self._held_bytes += sum([tensor.nbytes for tensor in tensors])
        if self._held_bytes > _MOST_HELD_BYTES:
            self._capture()

    def forget(self) -> None:
        """Release what was gathered."""
        self._is_in_pass = False
        self._calls, self._held_bytes = [], 0

    def _capture(self) -> None:
        """Capture the tensors of all calls that nobody wrote to, and learn from the others."""
        calls, self._calls, self._held_bytes = self._calls, [], 0
        found: dict[str, PlannedTensor] = {}
        for call in calls:
            versions = [tensor._version for tensor, _ in call.tensors.values()]  # noqa: SLF001
            if versions == call.versions:
                self._unchanged.add(call.name)
                if not call.is_captured:
                    found.update(call.tensors)
                continue
            self._changed.add(call.name)
            if not call.is_captured:
                self._keep_unchanged(call, versions, found)
        self._unchanged -= self._changed
        self._tensors.capture_due(found)

    def _keep_unchanged(
        self,
        call: _Call,
        versions: list[int],
        found: dict[str, PlannedTensor],
    ) -> None:
        for (name, due), before, now in zip(
            call.tensors.items(), call.versions, versions, strict=True
        ):
            if before == now:
                found[name] = due
            else:
                self._failures.tensor_failed(name, ValueError(_WRITTEN_TO))


def _current_stream() -> int:
    if _raw_stream is None or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0
    return _raw_stream(torch.cuda.current_device())
