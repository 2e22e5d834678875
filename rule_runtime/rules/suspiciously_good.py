"""SuspiciouslyGood: validation that is next to perfect, and as good as training."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.loss_inputs import LOSS_INPUTS, LossInputs, LossKind
from rule_runtime.evaluation.loss_rule import Finding
from rule_runtime.evaluation.outcome import IssueFound, Outcome, Passed
from rule_runtime.evaluation.rule import AtLeast, GreaterThan, LessThan, Memory, Unit
from rule_runtime.evaluation.selection import evidence, finite_means
from rule_runtime.evaluation.tree_limits import nearest_of_trees
from rule_runtime.evaluation.validation_rule import Training, Validation, ValidationRule
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.numerics.telling_columns import (
    are_next,
    as_columns,
    as_targets,
    telling_columns,
)

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SuspiciouslyGood"]

_DISTANCE: Final = re.compile(
    r"rms|mae|map[eh]|mphe|gamma|poisson|tweedie|deviance|[lL]1|[lL]2|MSE|[hH]uber|"
    r"[mM]ean_?([sS]quared|[aA]bs)|[cC]osine|[mM]argin|[tT]riplet|CTC|KL"
)
_OF_XGBOOST: Final = re.compile(r"(validation|valid|val|eval|evaluation|test|dev|holdout)[\w]*-")
_AS_GOOD: Final = 1.5
_AS_GOOD_TREES: Final = 1.1
_TREES: Final = 10.0
_OF_NUMBERS: Final = (LossKind.SQUARES, LossKind.DISTANCES, LossKind.UNKNOWN)
_DOMINATING: Final = 0.5
_DOMINATED: Final = 2.0
_ETA: Final = ("^hyperparameters/(eta|learning_rate)$",)
_CLASSES: Final = ("^hyperparameters/num_class$",)
_MODEL_INPUT: Final = r"^[A-Z]\w*_input_[0-9]+$"
_REAL: Final = ("float", "bfloat")
_LOOKING_AHEAD: Final = 0.05
_MAX_PAIRS: Final = 8
_MAX_COLUMNS: Final = 64


class SuspiciouslyGood(ValidationRule):
    """Finds validation losses that are too good to be true.

    What it detects:
        A validation loss next to zero, measured by the loss at the beginning, that is as small as
        the training loss; or a column of the inputs that is the target in another form.

    Why it matters:
        Where the answer is among the inputs (also because a mask was forgotten), or the same rows
        are in both sets, validation looks perfect and the model is worthless where it is used.

    How it decides:
        Each pass of validation (the EVAL steps between two training steps) has a mean loss; with
        XGBoost the other data sets' losses are compared with `train-...` of the same metric, at
        each step. It fires if, `patience` passes in a row, this is less than `max_loss_percent` of
        the loss at the beginning (the first training loss, or the median of the first 5 if that is
        larger), and at most 1.5 times the median of the latest 5 saved training losses. With
        XGBoost 10 times as much is allowed, but only 1.1 times the training loss: trees approach
        zero slowly, and fit their training data better than any other; twice the training loss
        where one feature has more than half of the total gain. Losses of classes and
        probabilities begin at the loss of guessing. How well guessing does where a distance is
        measured (MSE, L1, rmse, mae and the like, and losses of one's own with real numbers as
        targets) the losses do not tell; of these rmse is judged, where labels are saved beside it:
        its square must be below `max_loss_percent` of their variance, which is what the mean gives.
        A pass is judged at the training step behind it, or at its last step once it is as long as
        the one before. Of more than 32 losses the first 32 are judged.

        Boosted trees with a small `eta` cannot come near to zero in time: `logloss` (and `mlogloss`
        where `num_class` was saved) is also too good if, with one feature of more than half of the
        gain, it is a quarter of what it began with, at most 1.1 times the training loss, and as
        small as that of scores which went 0.8 of the way (0.9 for `mlogloss`) that they can go in
        so many rounds, if all rows are right in each of them.

        Where targets are the model's input moved by one place (whole numbers [B, L], as of a
        language model), the loss of validation is too good below 5 % of that at the beginning: what
        comes next in a text is not known so well, unless the model sees it.

        Where values of what a model and its loss get are saved (`{model}_input_...`, and
        `..._input_1` of the loss), the columns of inputs of several columns are compared with
        targets that are one number or class for each row. Numbers are told by a column that rises,
        or falls, with them everywhere; classes by columns that are equal in all rows of a class and
        together differ between all of them. It fires if the same columns do so in batches of
        `rows` rows or more together, of classes those not counted that are the first of theirs.

    Parameters:
        max_loss_percent: Validation loss, in percent of the loss at the beginning.
        patience: Passes of validation in a row, or saved steps with XGBoost.
        rows: Rows in which a column must tell the target.

    What to try:
        Train without the most important column; split by time or by group; look for duplicates.

    Known false alarms:
        Tasks without noise that a model can solve exactly, such as a known function, above all one
        that rises with one of the inputs; language models of texts that are all alike.

    Source:
        Stepwatch; the idea is UMLAUT's (2021), which warns of a validation accuracy over 95 %.
    """

    max_loss_percent: Annotated[float, GreaterThan(0), LessThan(10), Unit("%")] = 0.2
    patience: Annotated[int, AtLeast(1), Unit("passes")] = 2
    rows: Annotated[int, AtLeast(2), Unit("rows")] = 50

    collections = (
        *ValidationRule.collections,
        CollectionConfig("labels", {"include_regex": "^labels$"}),
        LOSS_INPUTS,
        CollectionConfig("feature_importance", {"save_interval": "10"}),
        CollectionConfig("hyperparameters", {"save_interval": "10"}),
        CollectionConfig(
            "input_values",
            {
                "include_regex": _MODEL_INPUT,
                "save_interval": "100",
                "end_step": "301",
                "save_raw_tensor": "True",
            },
        ),
    )
    measure: ClassVar[str] = "validation_loss"
    remedy: ClassVar[str] = (
        "Look for the target among the inputs (a column computed from it, a number of the row, a "
        "time after the event), a model of sequences that sees what comes next, rows that are in "
        "both sets, and scaling fitted on all data."
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Judge losses of validation, and what the inputs tell of the targets.

        Args:
            step: What was saved at the step.
            memory: What `ValidationRule` keeps; `columns`: of at most 8 pairs of an input and
                targets at most 64 columns that told them, and in how many rows.
        """
        told = self._told(step, memory.setdefault("columns", {}))
        outcome = super().check(step, memory)
        if told is None or isinstance(outcome, IssueFound):
            return outcome
        return told

    def _told(self, step: StepView, known: dict[str, list[Any]]) -> Outcome | None:
        """Look for inputs that tell targets; None if there are no values to look at."""
        judged, found = False, None
        inputs = step.tensors(regex=(_MODEL_INPUT,))
        for at, of_targets in _pairs(step, inputs):
            name, worker = inputs.names[at], inputs.workers[at]
            key = f"{worker}/{name}/{of_targets}"
            kept, num_rows = known.get(key, (None, 0))
            if kept == [] or (kept is None and len(known) >= _MAX_PAIRS):
                continue  # no column is left that could
            values = step.values((name, of_targets), worker)
            told = _telling(values.get(name), values.get(of_targets))
            if told is None:
                continue
            columns, shown = told
            if shown:
                kept = columns[:_MAX_COLUMNS] if kept is None else sorted({*kept} & {*columns})
                num_rows += shown
                known[key] = [kept, num_rows]
            judged = True
            if kept and num_rows >= self.rows and found is None:
                found = at, kept[0], of_targets, num_rows
        if found is None:
            return Passed() if judged else None
        at, column, of_targets, num_rows = found
        told_by = f"column {column} tells the target {of_targets} exactly, in {num_rows} rows"
        return IssueFound(
            evidence(
                step,
                inputs,
                at,
                measure="rows_told",
                value=float(num_rows),
                threshold=float(self.rows),
                told=told_by,
                remedy=self.remedy,
            )
        )

    def beside(self, step: StepView) -> Mapping[str, float]:
        """Return how far labels scatter, and how far trees can go and what the best feature gains.

        Args:
            step: A step with losses.
        """
        found = {}
        spreads = step.tensors(collections=("labels",)).column("std")
        if np.isfinite(spreads).any():
            found["std"] = float(np.nanmin(spreads))
        gains = finite_means(step.tensors(regex=("^feature_importance/total_gain/",)))
        if len(gains) and np.nansum(gains) > 0:
            found["share"] = float(np.nanmax(gains) / np.nansum(gains))
        rates = finite_means(step.tensors(regex=_ETA))
        if np.isfinite(rates).any():
            found["way"] = float(np.nanmax(rates)) * (step.mode_step + 1)
        classes = finite_means(step.tensors(regex=_CLASSES))
        if np.isfinite(classes).any():
            found["classes"] = float(np.nanmax(classes))
        inputs = LossInputs(step)
        losses = step.tensors(collections=("losses",))
        for name, worker in sorted(zip(losses.names, losses.workers, strict=True))[:MAX_SERIES]:
            targets = inputs.of(name, worker, 1)
            is_distance = inputs.kind(name, worker) in _OF_NUMBERS
            if is_distance and targets is not None and targets.dtype.startswith("float"):
                found[f"distance/{name}"] = 1.0
        found |= {f"next/{loss}": 1.0 for loss in _losses_of_what_is_next(step)}
        return found

    def judge(self, validation: Validation, training: Training) -> Finding | None:
        """Compare validation with the beginning and with training.

        Args:
            validation: The loss of validation.
            training: The losses of training.
        """
        by_trees = _OF_XGBOOST.match(validation.name) is not None
        share = self.max_loss_percent / 100
        limit = share * training.start * (_TREES if by_trees else 1.0)
        if f"next/{validation.name}" in validation.beside:
            limit = _LOOKING_AHEAD * training.start
        is_distance = f"distance/{validation.name}" in validation.beside
        if is_distance or _DISTANCE.search(validation.name):
            is_rms = by_trees and validation.name.partition("-")[2] == "rmse"
            limit = math.sqrt(share) * validation.beside.get("std", 0.0) if is_rms else 0.0
        as_good = _AS_GOOD_TREES if by_trees else _AS_GOOD
        if validation.beside.get("share", 0.0) > _DOMINATING:
            as_good = _DOMINATED
            if validation.now <= _AS_GOOD_TREES * training.now:
                limit = max(limit, nearest_of_trees(validation, training))
        if not 0 <= validation.now < limit or validation.now > as_good * training.now:
            return None
        return Finding(
            limit - validation.now,
            validation.now,
            limit,
            f"the loss of validation is {validation.now:.3g}, below {limit:.3g}, and about as "
            f"small as that of training, {training.now:.3g}",
        )


def _pairs(step: StepView, inputs: TensorRows) -> Iterator[tuple[int, str]]:
    """Yield the rows of inputs of models, and the names of the targets of losses beside them."""
    losses = step.tensors(collections=("losses",))
    of_losses = {
        (name.rpartition("_output_")[0], worker)
        for name, worker in zip(losses.names, losses.workers, strict=True)
    }
    weights = step.tensors(collections=("weights",)).names
    for at in sorted(range(len(inputs)), key=lambda at: (inputs.names[at], inputs.workers[at])):
        owner, worker = inputs.names[at].rpartition("_input_")[0], inputs.workers[at]
        is_model = not weights or any(weight.startswith(f"{owner}_") for weight in weights)
        if (owner, worker) in of_losses or not is_model:
            continue
        for loss, _ in sorted(pair for pair in of_losses if pair[1] == worker):
            yield at, f"{loss}_input_1"


def _losses_of_what_is_next(step: StepView) -> Iterator[str]:
    """Yield the losses whose targets are an input of a model, one place further on."""
    inputs = step.tensors(regex=(_MODEL_INPUT,))
    for at, of_targets in _pairs(step, inputs):
        if (inputs.dtypes[at] or "").startswith(_REAL):
            continue  # values are read only where they may be a text
        name, worker = inputs.names[at], inputs.workers[at]
        values = step.values((name, of_targets), worker)
        if are_next(values.get(name), values.get(of_targets)):
            yield of_targets.replace("_input_1", "_output_0")


def _telling(
    values: npt.NDArray[Any] | None, targets: npt.NDArray[Any] | None
) -> tuple[list[int], int] | None:
    """Return which columns tell targets, and how many rows show it; None if none could."""
    numbers = None if values is None or targets is None else as_targets(targets)
    columns = None if values is None or numbers is None else as_columns(values, len(numbers))
    if columns is None or numbers is None:
        return None
    told, shown = telling_columns(columns, numbers)
    return np.flatnonzero(told).tolist(), shown
