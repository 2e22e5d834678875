"""SuspiciouslyGood: validation that is next to perfect, and as good as training."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final

from rule_runtime.evaluation.loss_rule import Finding
from rule_runtime.evaluation.rule import AtLeast, GreaterThan, LessThan, Unit
from rule_runtime.evaluation.validation_rule import ValidationRule

__all__ = ["SuspiciouslyGood"]

_ROOT: Final = re.compile(r"rmse|mae|[lL]1")
_SQUARE: Final = re.compile(r"MSE|[mM]ean_?[sS]quared")
_AS_GOOD: Final = 1.5


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
        the first training loss, and at most 1.5 times the median of the latest 5 saved
        training losses. For losses that are roots or magnitudes (rmse, mae, L1) 2.5 times as much
        is allowed, for squares (MSE) the square of that, so that 2 % become 5 % and 0.25 %. A pass
        is judged at the training step behind it. Of more than 32 losses the first 32 are judged.

    Parameters:
        max_loss_percent: Validation loss, in percent of the first training loss.
        patience: Passes of validation in a row, or saved steps with XGBoost.

    What to try:
        Train without the most important column; split by time or by group; look for duplicates.

    Known false alarms:
        Tasks without noise that a model can solve exactly, such as a known function.

    Source:
        Stepwatch; the idea is UMLAUT's (2021), which warns of a validation accuracy over 95 %.
    """

    max_loss_percent: Annotated[float, GreaterThan(0), LessThan(40), Unit("%")] = 2.0
    patience: Annotated[int, AtLeast(1), Unit("passes")] = 2

    measure: ClassVar[str] = "validation_loss"
    remedy: ClassVar[str] = (
        "Look for the target among the inputs (a column computed from it, a number of the row, a "
        "time after the event), for rows that are in both sets, and for scaling fitted on all data."
    )

    def judge(self, name: str, validation: float, training: float, first: float) -> Finding | None:
        """Compare validation with the beginning and with training.

        Args:
            name: Name of the loss of validation.
            validation: The loss of validation.
            training: Median of the latest losses of training.
            first: The first loss of training.
        """
        limit = first * self._share(name)
        if not 0 <= validation < limit or validation > _AS_GOOD * training:
            return None
        return Finding(
            limit - validation,
            validation,
            limit,
            f"{name} of validation is {validation:.3g}, below {limit:.3g}, and as small as that of "
            f"training, {training:.3g}",
        )

    def _share(self, name: str) -> float:
        share = self.max_loss_percent / 100
        if _SQUARE.search(name):
            return (2.5 * share) ** 2
        return 2.5 * share if _ROOT.search(name) else share
