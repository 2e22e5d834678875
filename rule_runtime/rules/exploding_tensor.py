"""ExplodingTensor: a tensor that holds NaN or infinite elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.selected_tensors import NONE_SAVED, SelectedTensorsRule
from rule_runtime.facts.selection import evidence, worst

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["ExplodingTensor"]

_REMEDY: Final = (
    "Lower the learning rate or warm it up, clip gradients, check the inputs for NaN, and guard "
    "logarithms, divisions and square roots with a small epsilon; use loss scaling in half "
    "precision."
)

_TREES: Final = "trees/"


class ExplodingTensor(SelectedTensorsRule):
    """Finds tensors with NaN or infinite elements.

    How it decides:
        From the counts of NaN and infinite elements in the index, at each step and for each worker.
        The tensor with the largest share of such elements is the evidence. Where only reductions
        are stored, a reduction that is not finite shows that there is at least one such element.
        Finite values never fire, however large. The trees of XGBoost are left out unless they are
        selected: in their tables NaN stands for what a leaf does not have.

    Parameters:
        collection_names: Collections to look at; together with `tensor_regex`, their union. All
            saved tensors if neither is given.
        tensor_regex: Regular expressions of further tensors to look at.
        only_nan: True to let infinite elements pass.

    What to try:
        A lower learning rate or a warm-up, gradient clipping, an epsilon in logarithms and
        divisions, loss scaling in half precision; look for NaN in the inputs.
    """

    must_select = False

    only_nan: bool = False

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Look for tensors with non-finite elements.

        Args:
            step: What was saved at the step.
            memory: Not used.
        """
        rows = self.select(step)
        if not len(rows):
            return NONE_SAVED
        num_nan = rows.column("nan")
        num_bad = num_nan if self.only_nan else num_nan + np.nan_to_num(rows.column("inf"))
        if np.isnan(num_bad).all():
            return NotEvaluated("neither statistics nor values of the selected tensors are known")
        is_bad = num_bad > 0
        if is_bad.any() and not (self.collection_names or self.tensor_regex):
            is_bad &= [not name.startswith(_TREES) for name in rows.names]
        if not is_bad.any():
            return Passed()
        size = rows.column("size")
        share = np.where(is_bad, num_bad / np.where(size > 0, size, np.inf), np.nan)
        at = worst(rows, share, largest=True)
        measure, noun = ("nan", "NaN") if num_nan[at] > 0 else ("inf", "infinite")
        value = float(rows.column(measure)[at])
        of_size = "" if np.isnan(size[at]) else f" of {int(size[at])}"
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure=measure,
                value=value,
                threshold=0.0,
                message=f"{int(value)}{of_size} elements are {noun}",
                remedy=_REMEDY,
            )
        )
