"""UnchangedTensor: a tensor that stays the same over several saved steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, Memory, Unit
from rule_runtime.facts.comparing import Likeness, compare, frozen_rows, with_numbers
from rule_runtime.facts.selected_tensors import NONE_SAVED, SelectedTensorsRule
from rule_runtime.facts.selection import evidence, is_training, worst
from rule_runtime.facts.step_history import StepHistory
from rule_runtime.numerics.closeness import Tolerance

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["UnchangedTensor"]

_MAX_NUM_STEPS: Final = 128
"""Saved steps, so that the memory is bounded."""

_REMEDY: Final = (
    "Check that the optimizer was given the parameter and that its learning rate is not zero, that "
    "the loss depends on it (no detach, no frozen layer), and that the data loader does not return "
    "the same batch again and again."
)


class UnchangedTensor(SelectedTensorsRule):
    """Detects tensors that do not change over several saved steps.

    How it decides:
        The rule compares each selected tensor at a training step with its values at the last
        `num_steps` - 1 steps at which it was saved, by numpy.allclose. If all are close, the tensor
        is reported; of several the first by name. Weights and biases without a gradient, at a step
        with gradients of others, are frozen and ignored. Where values were not saved, a tensor is
        unchanged if all its statistics are equal.

    Parameters:
        collection_names: Collections to judge. This or `tensor_regex` must be given.
        tensor_regex: Regular expressions of further tensors to judge.
        num_steps: Number of saved steps over which a tensor must not change.
        rtol: Tolerance relative to the earlier value.
        atol: Absolute tolerance.
        equal_nan: Whether a NaN equals a NaN.

    What to try:
        Check that the optimizer has the parameter and a learning rate above zero, that the loss
        depends on it, and that batches differ.
    """

    num_steps: Annotated[int, AtLeast(2), AtMost(_MAX_NUM_STEPS), Unit("saved steps")] = 3
    rtol: Annotated[float, AtLeast(0)] = 1e-5
    atol: Annotated[float, AtLeast(0)] = 1e-8
    equal_nan: bool = False

    @property
    def needs_values(self) -> bool:
        """True: values are compared."""
        return True

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the tensors of the step with what they were before.

        Args:
            step: What was saved at the step.
            memory: `history`, see `StepHistory`.
        """
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not judged")
        rows = with_numbers(self.select(step))
        if not len(rows):
            return NONE_SAVED
        history = StepHistory(memory.get("history", ()), num_steps=self.num_steps - 1)
        num_same, is_changed = self._compared(step, rows, history.newest_first())
        history.add(step.step, zip(rows.names, rows.workers, strict=True))
        memory["history"] = history.to_json()
        is_same = num_same == self.num_steps - 1
        is_frozen = frozen_rows(step, rows) if is_same.any() else np.zeros(len(rows), np.bool_)
        is_issue = is_same & ~is_frozen
        if not is_issue.any():
            if not (is_changed | is_same).any():
                return NotEvaluated(
                    f"no selected tensor can be compared over {self.num_steps} saved steps yet"
                )
            return Passed()
        at = worst(rows, np.where(is_issue, 0.0, np.nan), largest=True)
        num_others = int(np.count_nonzero(is_issue)) - 1
        others = f"; {num_others} more like it" if num_others else ""
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="unchanged_steps",
                value=self.num_steps,
                threshold=self.num_steps,
                message=f"unchanged at the last {self.num_steps} steps that have it{others}",
                remedy=_REMEDY,
            )
        )

    def _compared(
        self, step: StepView, rows: TensorRows, earlier_steps: list[int]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return at how many earlier steps each row was the same, and which rows have changed."""
        tolerance = Tolerance(self.rtol, self.atol, self.equal_nan)
        num_same = np.zeros(len(rows), dtype=np.int64)
        is_changed = np.zeros(len(rows), dtype=np.bool_)
        is_open = np.ones(len(rows), dtype=np.bool_)
        for number in earlier_steps:
            earlier = step.earlier(number) if number < step.step else None
            if earlier is None:
                continue
            at = np.flatnonzero(is_open)
            likeness = compare(step, rows.select(at), earlier, self.select(earlier), tolerance)
            num_same[at[likeness == Likeness.CLOSE]] += 1
            is_changed[at[likeness == Likeness.DIFFERENT]] = True
            is_open[at[(likeness == Likeness.DIFFERENT) | (likeness == Likeness.UNKNOWN)]] = False
            is_open &= num_same < self.num_steps - 1
            if not is_open.any():
                break
        return num_same, is_changed
