"""LabelDegenerate: labels that are all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.evaluation.selection import evidence, worst
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LabelDegenerate"]

_REMEDY: Final = (
    "Look at what the data loader returns as labels: a wrong column, a sorted file that is not "
    "shuffled, a mapping of names to one number."
)


class LabelDegenerate(Rule):
    """Finds labels that are the same for every row.

    What it detects:
        Labels, or targets of a loss, that had one single value over many rows.

    Why it matters:
        The model learns to answer with that value, the loss falls fast, and nothing was learned.

    How it decides:
        For each tensor of labels, worker and mode the smallest and the largest element so far are
        kept. It fires if they are equal after `samples` elements or more; once two values were
        seen it never fires again for that tensor. Labels with NaN or infinite elements count with
        the finite ones. Of more than 32 such tensors the first 32 are judged.

    Parameters:
        samples: Elements after which labels must have shown two values.
        labels_regex: Regular expressions of tensors that are labels; the union with the collection
            `labels`.

    What to try:
        Look at a batch of what the data loader returns; shuffle data that is sorted by class.

    Known false alarms:
        Training on one class on purpose, as for anomaly detection.

    Source:
        Stepwatch; "constant labels" of TheDeepChecker (2022).
    """

    samples: Annotated[int, AtLeast(2), Unit("elements")] = 200
    labels_regex: Annotated[tuple[str, ...], Regex()] = (r"[Ll]oss_input_1$",)

    collections = (CollectionConfig("labels", {"include_regex": "^labels$"}),)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look whether labels have shown two values by now.

        Args:
            step: What was saved at the step.
            memory: Smallest, largest and number of labels of at most 32 tensors.
        """
        rows = step.tensors(collections=("labels",), regex=self.labels_regex)
        if not len(rows):
            return NotEvaluated("no labels were saved")
        low, high, size = (rows.column(name) for name in ("min", "max", "size"))
        if np.isnan(low).all():
            return NotEvaluated("no label is a finite number")
        seen = memory.setdefault("seen", {})
        count = np.full(len(rows), np.nan)
        for at in _sorted(rows):
            key = f"{step.mode.name}/{rows.workers[at]}/{rows.names[at]}"
            if np.isnan(low[at]) or (key not in seen and len(seen) >= MAX_SERIES):
                continue
            before = seen.get(key, [low[at], high[at], 0.0])
            seen[key] = [
                float(min(before[0], low[at])),
                float(max(before[1], high[at])),
                min(float(before[2] + size[at]), 1e15),
            ]
            if seen[key][0] == seen[key][1] and seen[key][2] >= self.samples:
                count[at] = seen[key][2]
        if np.isnan(count).all():
            return Passed()
        at = worst(rows, count, largest=True)
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="distinct_labels",
                value=1.0,
                threshold=2.0,
                told=f"is {low[at]:g} in all of {int(count[at])} elements so far",
                remedy=_REMEDY,
            )
        )


def _sorted(rows: TensorRows) -> list[int]:
    return sorted(range(len(rows)), key=lambda at: (rows.names[at], rows.workers[at]))
