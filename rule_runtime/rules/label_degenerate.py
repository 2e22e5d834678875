"""LabelDegenerate: labels that are all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.facts.constant_rows import constant_rows
from rule_runtime.facts.labels_elsewhere import (
    Elsewhere,
    begin_anew,
    has_others,
    labels_elsewhere,
    remember,
)
from rule_runtime.facts.loss_advice import loss_inputs_advice
from rule_runtime.facts.loss_calls import targets_of_all_calls
from rule_runtime.facts.loss_inputs import LOSS_INPUTS
from rule_runtime.facts.loss_owners import input_patterns
from rule_runtime.facts.loss_targets import Beside, losses_beside
from rule_runtime.facts.one_class_batches import (
    LEAST_SHARE,
    OneClassBatches,
    one_class_batches,
)
from rule_runtime.facts.one_label import is_of_one_label
from rule_runtime.facts.selection import evidence, is_training, worst
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LabelDegenerate"]

_RARE: Final = 10
_FEWEST_OF_RARE: Final = 2
_LEARNED: Final = 0.1
_NOT_RARE: Final = 0.049
_NO_CHANCE: Final = 20.0
_ROUNDS: Final = 5
_REMEDY: Final = (
    "Look at what the data loader returns as labels: a wrong column, a sorted file that is not "
    "shuffled, a mapping of names to one number."
)


_SHUFFLE: Final = (
    "Shuffle the rows anew in each epoch, as `shuffle=True` of a data loader does: a model that "
    "sees one class after the other forgets each of them."
)


class LabelDegenerate(Rule):
    """Finds labels that are the same for every row, or for every row of a batch.

    How it decides:
        * One label in all rows. At training steps the smallest and the largest element so far are
          kept for each tensor of labels and worker. It fires if they are equal after `samples` rows
          and `patience` saved steps or more; never again once two values were seen. If the one
          value is 0 or 1, other classes may be rare: ten times as many rows are needed, unless they
          have 5 % or more of the labels in other modes than training; if none of those is of
          another class, their rows in the longest phase count as well, but twice `samples` must be
          of training: that none of so many rows is of a class that 1 in 1,000 are of has a chance
          of exp(-5). How many of the labels in other modes differ from the one value is known at
          least, from their mean, standard deviation and extremes: with a share s of 32 rows or more
          in one phase, and two of them that differ, 20 / s rows are enough, for such a run of rows
          has a chance of exp(-20). Only labels of the same name are compared, if both are whole
          numbers, or both real ones, images of the same size, and the scores beside them,
          `..._input_0`, have as many columns: those of a probe are of another task.
        * Targets of a loss, `..._input_1`, are left alone while that loss, `..._output_0`, is more
          than a tenth of its first value: a model learns a constant answer fast, and where it does
          not the targets are not the answer (contrastive learning with the match in front,
          adversarial training); unless 5 % or more of them differ from it in other modes, for
          smoothed labels are a loss that stays. Targets that are all 0 are left alone if the loss
          is of numbers (the residual of an equation is to vanish); real numbers that are all -1, 0
          or 1, or anything between if the loss has no name, `Loss_input_1`, unless 5 % or more
          differ from them in other modes: for true and made up a script may put in 1 and 0.
        * What a loss of the script's own, whose name does not end with Loss, gets as `..._input_1`
          need not be targets: it is left alone unless 5 % or more differ from it in other modes.
        * Targets of several numbers a row, of which values are saved, are one label as well if all
          rows, 32 or more, are equal in two saved steps; 5,000 rows (ten times `samples`) if all
          their numbers lie between 0 and 1, and are two at most: of classes one may be rare. Real
          ones, unless the loss is known to be of classes, also need another smallest or largest
          number in other modes. Of a loss that is called several times in a step the targets of all
          calls count. Labels with NaN or infinite elements count with the finite ones. Of more than
          32 tensors 32 are judged.
        * One class in each batch: it fires as well if half or more of the batches saved so far, of
          10 or more, have one class each, and these are three or more classes. It looks at whole
          numbers from 0 on, one a row, in batches of 8 rows or more, and at those of a loss only if
          it is known to be of classes, or its targets are of a whole type. If there are but two
          classes it takes 9 of 10 batches, ten times `samples` rows in these, and four or more that
          have another class than the one before, but at most a quarter, for true and made up rows
          come in turn; real targets that are 0 and 1 are left alone.
        * XGBoost saves the labels of validation only. There it fires if the predictions are the
          same in all rows, 5 saved rounds in a row, while their labels are not, and the training
          loss is what one label in all rows gives: -ln(1 - p) or -ln(p) for `train-logloss` (p at
          least 0.1 away from 0.5), -ln of the largest p for `train-mlogloss`, each within 1 %; for
          `train-rmse`, `train-mae`, `train-mphe` and `train-quantile` less than a tenth of the
          standard deviation of the labels; none at all for `train-error` and `train-merror`.

    Parameters:
        samples: Rows after which labels must have shown two values.
        patience: Saved steps after which they must.
        labels_regex: Regular expressions of tensors that are labels; the union with the collection
            `labels` and with `X_input_1` of each loss `X_output_0`.

    What to try:
        Look at a batch of what the data loader returns; shuffle data that is sorted by class.
    """

    samples: Annotated[int, AtLeast(2), Unit("rows")] = 500
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 20
    labels_regex: Annotated[tuple[str, ...], Regex()] = (r"[Ll]oss_input_1$",)

    collections = (
        CollectionConfig("labels"),
        LOSS_INPUTS,
        CollectionConfig("losses", {"save_interval": "10"}),
        CollectionConfig("predictions"),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look whether labels have shown two values by now.

        Args:
            step: What was saved at the step.
            memory: Of at most 32 tensors each `seen`, smallest and largest label, numbers of labels
                and steps, and first loss; `alike`, equal rows of several numbers; `batches`,
                those of one class; `elsewhere`, in other modes seven numbers of each; `rounds` in a
                row of one label.
        """
        if not is_training(step):
            rows = self._labels(step)
            kinds = [beside.kind for beside in losses_beside(step, rows)]
            remember(rows, kinds, memory.setdefault("elsewhere", {}))
            return NotApplicable(f"steps of mode {step.mode.name} are not judged")
        rows = self._labels(step)
        if not len(rows):
            return NotEvaluated(f"no labels were saved: {loss_inputs_advice(step)}")
        of_trees = _of_trees(step, memory)
        return of_trees or self._judge(step, rows, memory)

    def _labels(self, step: StepView) -> TensorRows:
        patterns = (*self.labels_regex, *input_patterns(step, 1))
        return step.tensors(collections=("labels",), regex=patterns)

    def _judge(self, step: StepView, rows: TensorRows, memory: Memory) -> Outcome:
        """Judge the labels of a step of training."""
        calls = targets_of_all_calls(step, rows)
        low, high, sizes, _ = calls
        if np.isnan(low).all():
            return NotEvaluated("no label is a finite number")
        besides = losses_beside(step, rows)
        seen, elsewhere = memory.setdefault("seen", {}), memory.get("elsewhere", {})
        begin_anew(elsewhere)
        count = np.full(len(rows), np.nan)
        names = zip(rows.workers, rows.names, besides, strict=True)
        labels = [f"{worker}/{name}/{beside.kind}" for worker, name, beside in names]
        for at in _sorted(rows):
            key = f"{step.mode.name}/{rows.workers[at]}/{rows.names[at]}"
            if low[at] == high[at] == 0 and besides[at].is_of_numbers:
                continue
            if np.isnan(low[at]) or (key not in seen and len(seen) >= MAX_SERIES):
                continue
            loss = besides[at].loss
            before = seen.get(key, [low[at], high[at], 0.0, 0, loss])
            seen[key] = [
                float(min(before[0], low[at])),
                float(max(before[1], high[at])),
                min(float(before[2] + sizes[at]), 1e15),
                min(before[3] + 1, self.patience),
                loss if before[4] is None else before[4],
            ]
            others = labels_elsewhere(elsewhere, labels[at], float(low[at]))
            if self._is_degenerate(seen[key], besides[at], others):
                count[at] = seen[key][2]
        alike = constant_rows(step, rows, calls, memory)
        for at, (num, may_be_class) in alike.items():
            # A centre, or the state that an equation begins with, is the same on purpose.
            if not (
                besides[at].is_of_classes or has_others(elsewhere, labels[at], low[at], high[at])
            ):
                continue
            # Between 0 and 1 they may be classes, of which another one is rare.
            may_be_rare = may_be_class and low[at] >= 0 and high[at] <= 1
            needed = self.samples * _RARE if may_be_rare else 0
            if num >= needed and not besides[at].is_own:
                count[at] = num
        if np.isnan(count).all():
            of_two = self.samples * _RARE
            one_each = one_class_batches(rows, besides, calls, memory, of_two)
            return _sorted_by_class(step, rows, one_each) if one_each else Passed()
        at = worst(rows, count, largest=True)
        what = f"{low[at]:g}" if low[at] == high[at] else "the same row"
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="distinct_labels",
                value=1.0,
                threshold=2.0,
                message=f"is {what} in all of {int(count[at])} rows so far",
                remedy=_REMEDY,
            )
        )

    def _is_degenerate(self, seen: list[Any], beside: Beside, others: Elsewhere) -> bool:
        """Tell whether one value, seen as often as it was, is too few."""
        low, high, size, num_steps, first_loss = seen
        if low != high or num_steps < self.patience:
            return False
        if others.share >= _NOT_RARE:
            return bool(size >= min(self.samples, _NO_CHANCE / others.share))
        if beside.is_own or beside.may_make_up(low):
            return False
        is_known = beside.loss is not None and first_loss is not None
        if is_known and beside.loss > _LEARNED * first_loss:
            return False
        if low not in (0, 1):
            return bool(size >= self.samples)
        # None of another class outside of training is as telling as none in it.
        more = others.num_rows if others.share == 0 else 0.0
        return bool(size >= max(_RARE * self.samples - more, _FEWEST_OF_RARE * self.samples))


def _sorted_by_class(
    step: StepView, rows: TensorRows, one_each: Mapping[int, OneClassBatches]
) -> IssueFound:
    """Tell that batches have one class each, of the labels [R] with most of them."""
    at = max(one_each, key=lambda at: (one_each[at].num_alike, rows.names[at], rows.workers[at]))
    batches = one_each[at]
    return IssueFound(
        evidence(
            step,
            rows,
            at,
            measure="share_of_batches_of_one_class",
            value=batches.num_alike / batches.num_steps,
            threshold=LEAST_SHARE,
            message=f"has one class only in {batches.num_alike} of the {batches.num_steps} batches "
            "saved so far, and not always the same: rows are sorted or chosen by class",
            remedy=_SHUFFLE,
        )
    )


def _of_trees(step: StepView, memory: Memory) -> Outcome | None:
    """Find trees that answer all rows alike, as if they had seen one label; None if they do not."""
    losses = step.tensors(collections=("losses",))
    found = [at for at in _sorted(losses) if is_of_one_label(step, losses, at)]
    rounds = min(memory.get("rounds", 0) + 1, _ROUNDS) if found else 0
    if rounds or "rounds" in memory:
        memory["rounds"] = rounds
    if rounds < _ROUNDS:
        return None
    return IssueFound(
        evidence(
            step,
            losses,
            found[0],
            measure="distinct_labels",
            value=1.0,
            threshold=2.0,
            message="is what one label in all rows gives, and the answer is the same in every row",
            remedy=_REMEDY,
        )
    )


def _sorted(rows: TensorRows) -> list[int]:
    return sorted(range(len(rows)), key=lambda at: (rows.names[at], rows.workers[at]))
