"""SuspiciouslyGood: validation that is next to perfect, and as good as training."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.loss_inputs import LOSS_INPUTS, LossInputs, LossKind
from rule_runtime.evaluation.loss_rule import Finding
from rule_runtime.evaluation.rule import AtLeast, GreaterThan, LessThan, Unit
from rule_runtime.evaluation.selection import finite_means
from rule_runtime.evaluation.validation_rule import Training, Validation, ValidationRule
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

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


class SuspiciouslyGood(ValidationRule):
    """Finds validation losses that are too good to be true.

    What it detects:
        A validation loss next to zero, measured by the loss at the beginning, that is as small as
        the training loss.

    Why it matters:
        Where the answer is among the inputs, or the same rows are in both sets, validation looks
        perfect and the model is worthless where it is used.

    How it decides:
        Each pass of validation (the EVAL steps between two training steps) has a mean loss; with
        XGBoost the other data sets' losses are compared with `train-...` of the same metric, at
        each step. It fires if, `patience` passes in a row, this is less than `max_loss_percent` of
        the loss at the beginning (the first training loss, or the median of the first 5 if that is
        larger), and at most 1.5 times the median of the latest 5 saved training losses. With
        XGBoost 10 times as much is allowed, but only 1.1 times the training loss: trees approach
        zero slowly, and fit their training data better than any other; twice the training loss
        where one of several features has more than half of the total gain. Losses of classes and
        probabilities begin at the loss of guessing. How well guessing does where a distance is
        measured (MSE, L1, rmse, mae and the like, and losses of one's own with real numbers as
        targets) the losses do not tell; of these rmse is judged, where labels are saved beside it:
        its square must be below `max_loss_percent` of their variance, which is what the mean gives.
        A pass is judged at the training step behind it, or at its last step once it is as long as
        the one before. Of more than 32 losses the first 32 are judged.

    Parameters:
        max_loss_percent: Validation loss, in percent of the loss at the beginning.
        patience: Passes of validation in a row, or saved steps with XGBoost.

    What to try:
        Train without the most important column; split by time or by group; look for duplicates.

    Known false alarms:
        Tasks without noise that a model can solve exactly, such as a known function.

    Source:
        Stepwatch; the idea is UMLAUT's (2021), which warns of a validation accuracy over 95 %.
    """

    max_loss_percent: Annotated[float, GreaterThan(0), LessThan(10), Unit("%")] = 0.2
    patience: Annotated[int, AtLeast(1), Unit("passes")] = 2

    collections = (
        *ValidationRule.collections,
        CollectionConfig("labels", {"include_regex": "^labels$"}),
        LOSS_INPUTS,
        CollectionConfig("feature_importance", {"save_interval": "10"}),
    )
    measure: ClassVar[str] = "validation_loss"
    remedy: ClassVar[str] = (
        "Look for the target among the inputs (a column computed from it, a number of the row, a "
        "time after the event), for rows that are in both sets, and for scaling fitted on all data."
    )

    def beside(self, step: StepView) -> Mapping[str, float]:
        """Return how far labels scatter, and how much of the gain the best feature has.

        Args:
            step: A step with losses.
        """
        found = {}
        spreads = step.tensors(collections=("labels",)).column("std")
        if np.isfinite(spreads).any():
            found["std"] = float(np.nanmin(spreads))
        gains = finite_means(step.tensors(regex=("^feature_importance/total_gain/",)))
        if len(gains) > 1 and np.nansum(gains) > 0:
            found["share"] = float(np.nanmax(gains) / np.nansum(gains))
        inputs = LossInputs(step)
        losses = step.tensors(collections=("losses",))
        for name, worker in sorted(zip(losses.names, losses.workers, strict=True))[:MAX_SERIES]:
            targets = inputs.of(name, worker, 1)
            is_distance = inputs.kind(name, worker) in _OF_NUMBERS
            if is_distance and targets is not None and targets.dtype.startswith("float"):
                found[f"distance/{name}"] = 1.0
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
        is_distance = f"distance/{validation.name}" in validation.beside
        if is_distance or _DISTANCE.search(validation.name):
            is_rms = by_trees and validation.name.partition("-")[2] == "rmse"
            limit = math.sqrt(share) * validation.beside.get("std", 0.0) if is_rms else 0.0
        as_good = _AS_GOOD_TREES if by_trees else _AS_GOOD
        if validation.beside.get("share", 0.0) > _DOMINATING:
            as_good = _DOMINATED
        if not 0 <= validation.now < limit or validation.now > as_good * training.now:
            return None
        return Finding(
            limit - validation.now,
            validation.now,
            limit,
            f"the loss of validation is {validation.now:.3g}, below {limit:.3g}, and about as "
            f"small as that of training, {training.now:.3g}",
        )
