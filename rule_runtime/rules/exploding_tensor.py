"""ExplodingTensor: detects tensors with NaN or infinite elements."""

from __future__ import annotations

from typing import Final

import numpy as np

from rule_runtime.engine.outcome import Outcome, Passed
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.missing import missing_values
from rule_runtime.facts.selection import SelectedTensorsRule, describe_not_finite, finding, worst
from rule_runtime.trial.step_view import StepView

__all__ = ["ExplodingTensor"]


_TREES: Final = "trees/"
"""Prefix of XGBoost's tables, in which NaN marks missing fields of leaves."""


class ExplodingTensor(SelectedTensorsRule):
    """Detects tensors with NaN or infinite elements.

    How it decides:
        The rule counts NaN and infinite elements. It reports the tensor with the largest share of
        them. Finite values never count, however large they are. The tables of XGBoost's trees are
        ignored unless you select them.

    Parameters:
        collection_names: Collections to evaluate; by default all saved tensors.
        tensor_regex: Regular expressions of tensors to evaluate.
        only_nan: True to ignore infinite elements.

    What to try:
        Lower the learning rate or warm it up, clip gradients, add an epsilon to logarithms and
        divisions, scale the loss in half precision, and look for NaN in the inputs.
    """

    must_select = False

    only_nan: bool = False

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Find tensors with non-finite elements."""
        rows = self.judged_tensors(step)
        num_nan = rows.column("nan")
        num_bad = num_nan if self.only_nan else num_nan + np.nan_to_num(rows.column("inf"))
        if np.isnan(num_bad).all():
            raise missing_values("the selected tensors")
        is_bad = num_bad > 0
        if not (self.collection_names or self.tensor_regex):
            is_bad &= [not name.startswith(_TREES) for name in rows.names]
        if not is_bad.any():
            return Passed()
        size = rows.column("size")
        share = np.where(is_bad, num_bad / np.where(size > 0, size, np.inf), np.nan)
        at = worst(rows, share, largest=True)
        measure, value, message = describe_not_finite(rows, at)
        return finding(self, step, (rows, at), (measure, value, 0.0), message)
