"""LabelDegenerate: labels that are all equal."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Final

from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import IssueFound, Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import is_training, saved_every
from rule_runtime.facts.framework import advice_of
from rule_runtime.facts.labels import (
    SORTED_SHARE,
    TRAINING_DATA,
    Labels,
    LabelSeries,
    OtherLabels,
    labels_of,
    training_labels,
)
from rule_runtime.facts.losses import Losses
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LabelDegenerate"]

_RARE: Final = 10
"""Factor of the required rows if other labels may be rare: then one in 1,000 has occurred."""
_NOT_RARE: Final = 0.049
"""Share of other labels in validation that chance cannot explain if training lacks them."""
_LEARNED: Final = 0.1
"""Share of the first loss below which a constant label is learned."""


class LabelDegenerate(Rule):
    """Detects labels that are the same in all rows, or in all rows of each batch.

    How it decides:
        The rule reports:
        * labels that are all equal, after `samples` rows (ten times as many if the label is 0 or 1)
          and `patience` saved training steps, or at once if all training data is known;
        * sorted rows: half of the saved batches have one class each, of three or more.

        Targets of a loss count once the loss is below a tenth of its first value.

    Parameters:
        samples: Rows after which labels must have two values.
        patience: Saved steps after which they must.
        labels_regex: Regular expressions of labels, besides the collection `labels` and targets.

    What to try:
        Look at the labels that the data loader returns: a wrong column or mapping makes them equal.
        Use shuffle=True if rows are sorted by class.
    """

    samples: Annotated[int, AtLeast(2), Unit("rows")] = 500
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 20
    labels_regex: Annotated[tuple[str, ...], Regex()] = (r"[Ll]oss_input_1$",)

    fatal_measures = ("distinct_labels",)
    collections = (
        "labels",
        *saved_every(10, "loss_inputs", "losses"),
        "predictions",
        TRAINING_DATA,
    )

    def needs(self) -> Needs:
        """Return `patience` saved steps with `samples` rows."""
        return Needs(saved_steps=self.patience, elements=self.samples, noun="row")

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Evaluate the labels of a training step; store those of other modes.

        Memory: For at most 32 tensors each: `series`, the label statistics of training, and
        `others`, those of other modes; `knows_all`: whether all training labels were evaluated.
        """
        return self._of_all(step, memory) or self._of_batches(step, memory)

    def _of_all(self, step: StepView, memory: Memory) -> IssueFound | None:
        """Return the finding on the labels of the whole training data."""
        rows, labels = training_labels(step)
        memory["knows_all"] = memory.get("knows_all", False) or bool(labels)
        for each in labels:
            if each.statistics.low == each.statistics.high and each.num_rows > 1:
                series = LabelSeries(rows=each.num_rows)
                return self._found(step, rows, each, series, is_one=True)
        return None

    def _of_batches(self, step: StepView, memory: Memory) -> Outcome:
        """Evaluate the labels of a batch."""
        owners = {loss.owner for loss in step.fact(Losses).losses}
        targets = (f"^{re.escape(owner)}_input_1$" for owner in sorted(owners))
        rows = step.tensors(collections=("labels",), regex=(*self.labels_regex, *targets))
        labels = labels_of(step, rows)
        others: dict[str, list[float]] = memory.setdefault("others", {})
        if not is_training(step):
            for each in labels:
                if each.key in others or len(others) < MAX_SERIES:
                    others[each.key] = list(OtherLabels(*others.get(each.key, ())).plus(each))
            return NotApplicable(f"steps of mode {step.mode.name} are not evaluated")
        for numbers in others.values():
            numbers[-1] = True
        if not labels and not memory["knows_all"]:
            raise Missing("no finite labels were saved", advice_of(step).loss_inputs)
        known: dict[str, list[Any]] = memory.setdefault("series", {})
        found = []
        for each in labels:
            key = f"{each.worker}/{each.name}"
            if key not in known and len(known) >= MAX_SERIES:
                continue
            series = LabelSeries(*known.get(key, ())).plus(each)
            known[key] = list(series)
            is_one = self._is_one_label(series, each, OtherLabels(*others.get(each.key, ())))
            if is_one or series.is_sorted:
                found.append(self._found(step, rows, each, series, is_one=is_one))
        if found or memory["knows_all"]:
            return found[0] if found else Passed(has_decided=True)
        return self._passed([LabelSeries(*of) for of in known.values()])

    def _passed(self, known: list[LabelSeries]) -> Passed:
        """Return that there is no issue, unless equal labels are too few to decide."""
        equal = [(self._needed(of.low), int(of.rows)) for of in known if of.low == of.high]
        for needed, had in sorted(equal):
            if had < needed:
                needs = replace(self.needs(), elements=needed)
                raise needs.too_few(had, "all labels are equal so far")
        return Passed()

    def _needed(self, label: float) -> int:
        """Return the number of rows after which labels that are all equal are an issue."""
        return self.samples * (_RARE if label in (0, 1) else 1)

    def _is_one_label(self, series: LabelSeries, labels: Labels, others: OtherLabels) -> bool:
        """Return whether labels are all equal, in more rows than chance explains."""
        if series.low != series.high or series.steps < self.patience:
            return False
        has_others = others.share_of_others(labels.statistics.low) >= _NOT_RARE
        needed = self.samples if has_others else self._needed(labels.statistics.low)
        loss = labels.loss_value
        is_learned = loss is None or loss <= _LEARNED * (series.loss or 0.0)
        is_data = has_others or (labels.are_data and is_learned)
        return is_data and series.rows >= needed

    def _found(
        self, step: StepView, rows: TensorRows, labels: Labels, series: LabelSeries, *, is_one: bool
    ) -> IssueFound:
        """Return the finding on one label in all rows, or on one class in each batch."""
        if is_one:
            message = f"is {labels.statistics.low:g} in all of {int(series.rows)} rows so far"
            return finding(self, step, (rows, labels.at), ("distinct_labels", 1.0, 2.0), message)
        share = series.one_class / series.batches
        message = f"has one class only in {series.one_class} of the {series.batches} batches saved "
        message += "so far, and not always the same: rows are sorted by class"
        measured = ("share_of_batches_of_one_class", share, SORTED_SHARE)
        return finding(self, step, (rows, labels.at), measured, message)
