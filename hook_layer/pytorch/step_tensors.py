"""Names the tensors of a step, and captures those that are due."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from torch import Tensor

from hook_layer.configuration.collection_manager import TensorPlan
from hook_layer.core.collector import Collector
from hook_layer.core.recorder import Recorder
from hook_layer.pytorch.calls import tensors_in
from hook_layer.pytorch.tensor_elements import is_uninitialized

__all__ = ["MAX_CALLS_A_STEP", "PlannedTensor", "StepTensors"]

logger = logging.getLogger("stepwatch")

PlannedTensor: TypeAlias = "tuple[Tensor, TensorPlan]"
"""A tensor, and the plan of what to store."""
MAX_CALLS_A_STEP: Final = 10_000
"""Maximum number of tensors of a module in one step, as `name_output_0` and so on."""


class StepTensors:
    """Names the tensors of a step, and captures those that are due.

    Attributes:
        recorder: Records the tensors.
    """

    def __init__(self, collector: Collector, recorder: Recorder) -> None:
        self._collector = collector
        self.recorder = recorder
        self._counts: dict[str, int] = {}
        self._has_warned = False

    def begin_step(self) -> None:
        """Restart counting at 0."""
        self._counts.clear()

    def count(self, prefix: str) -> int:
        """Return the number of tensors with a prefix in this step."""
        return self._counts.get(prefix, 0)

    def numbered(self, prefix: str, value: Any) -> dict[str, Tensor]:
        """Return the tensors in a value as `{prefix}{i}`; `i` continues counting within a step.

        At most `MAX_CALLS_A_STEP`: otherwise, a loss used by another model after the last step of
        this one would fill that step without limit.
        """
        tensors = tensors_in(value)
        first = self._counts.get(prefix, 0)
        if first >= MAX_CALLS_A_STEP:
            self._warn(prefix)
            return {}
        self._counts[prefix] = first + len(tensors)
        return {f"{prefix}{first + i}": tensor for i, tensor in enumerate(tensors)}

    def due_of_call(self, name: str, inputs: Any, outputs: Any) -> dict[str, PlannedTensor]:
        """Return due inputs and outputs of a call, with their plans."""
        found: dict[str, PlannedTensor] = {}
        plan, counts = self._collector.plan, self._counts
        for prefix, value in ((f"{name}_input_", inputs), (f"{name}_output_", outputs)):
            number = counts.get(prefix, 0)
            if number >= MAX_CALLS_A_STEP:
                self._warn(prefix)
                continue
            for tensor in tensors_in(value):
                full_name = f"{prefix}{number}"
                number += 1
                planned = plan(full_name)
                if planned is not None and not is_uninitialized(tensor):
                    found[full_name] = tensor, planned
            counts[prefix] = number
        return found

    def capture(self, tensors: Mapping[str, Tensor], member_of: tuple[str, ...] = ()) -> None:
        """Capture the due tensors among the given ones."""
        planned = self._collector.planned(tensors, member_of).items()
        due = {name: due for name, due in planned if not is_uninitialized(due[0])}
        self.recorder.capture(due)

    def _warn(self, prefix: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "one step has %d tensors %s... and saves no more, because registered modules "
                "are called repeatedly without a new step of the model",
                MAX_CALLS_A_STEP,
                prefix,
            )
