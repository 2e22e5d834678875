"""UnchangedTensor: detects tensors that stay the same over several saved steps."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import NotApplicable, NotEnough, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, Memory, Unit
from rule_runtime.facts.selection import SelectedTensorsRule, finding, is_training, worst
from rule_runtime.facts.tensor_changes import TensorPairs, compare, frozen_rows, with_numbers
from rule_runtime.numerics.row_memory import RowMemory
from rule_runtime.numerics.tensor_change import Tolerance
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["UnchangedTensor"]


class UnchangedTensor(SelectedTensorsRule):
    """Detects tensors that do not change over several saved steps.

    How it decides:
        The rule compares each selected tensor with its previous saved training step, by
        numpy.allclose. It reports a tensor that is close to the previous one `num_steps` - 1 times
        in a row. It ignores frozen weights. Without saved values it compares statistics.

    Parameters:
        collection_names: Collections to evaluate; required without `tensor_regex`.
        tensor_regex: Regular expressions of further tensors to evaluate.
        num_steps: Number of saved steps over which a tensor must not change.
        rtol: Tolerance relative to the earlier value.
        atol: Absolute tolerance.
        equal_nan: Whether a NaN equals a NaN.

    What to try:
        Check that the optimizer was given the parameter and that its learning rate is not zero,
        that the loss depends on it (no detach, no frozen layer), and that the data loader does not
        return the same batch again and again.
    """

    num_steps: Annotated[int, AtLeast(2), AtMost(128), Unit("saved steps")] = 3
    rtol: Annotated[float, AtLeast(0)] = 1e-5
    atol: Annotated[float, AtLeast(0)] = 1e-8
    equal_nan: bool = False

    @property
    def needs_values(self) -> bool:
        """True: values are compared."""
        return True

    def needs(self) -> Needs:
        """Return `num_steps` saved steps."""
        return Needs(saved_steps=self.num_steps)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the tensors of the step with those of previous steps.

        Memory: `rows`: previous step and streak of at most 2,048 tensors.
        """
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not evaluated")
        rows = with_numbers(self.judged_tensors(step))
        known = RowMemory(memory, rows.pairs)
        # Fingerprint 0 is not stored, so step n has n + 1.
        is_close, is_different = self._compared(step, rows, known.fingerprints - 1)
        streaks = known.update(is_close, step.step + 1)
        is_unchanged = streaks >= self.num_steps - 1
        is_issue = is_unchanged & ~frozen_rows(step, rows) if is_unchanged.any() else is_unchanged
        if not is_issue.any():
            if not (is_unchanged | is_different).any():
                raise NotEnough(self.num_steps, "saved step", int(streaks.max(initial=0)) + 1)
            return Passed()
        num_others = int(is_issue.sum()) - 1
        message = f"unchanged at the last {self.num_steps} steps that have it" + (
            f"; {num_others} more like it" if num_others else ""
        )
        measured = ("unchanged_steps", self.num_steps, self.num_steps)
        at = worst(rows, np.where(is_issue, 0.0, np.nan), largest=True)
        return finding(self, step, (rows, at), measured, message)

    def _compared(
        self, step: StepView, rows: TensorRows, previous: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return which rows are close to those of their previous step, and which differ [2, R].

        `previous` is -1 for rows without a previous step.
        """
        tolerance = Tolerance(self.rtol, self.atol, self.equal_nan)
        found = np.zeros((2, len(rows)), dtype=np.bool_)
        for number in np.unique(previous[(previous >= 0) & (previous < step.step)]).tolist():
            earlier = step.earlier(number)
            if earlier is not None:
                own = np.flatnonzero(previous == number)
                pairs = TensorPairs(step, rows.select(own), earlier, self.select(earlier))
                found[:, own[pairs.at]] = compare(pairs, tolerance)
        return found
