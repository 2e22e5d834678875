"""SuspiciouslyGood: inputs that hold the target, validation losses next to zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.out_of_sample_predictor import Prediction, best_predictors
from rule_runtime.detectors.streak import streak
from rule_runtime.detectors.token_leaks import are_copied, are_next, is_last_place_worst
from rule_runtime.engine.outcome import IssueFound, Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Memory, Rule, Unit
from rule_runtime.facts.boosting_losses import boosting_losses
from rule_runtime.facts.losses import INPUT_VALUES, LOSS_INPUTS
from rule_runtime.facts.missing import how_to_save_input_values
from rule_runtime.facts.model_inputs import KERAS_INPUTS, LAYER_INPUTS
from rule_runtime.facts.supervised_rows import SupervisedRows, supervised_rows
from rule_runtime.facts.token_losses import token_losses
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["SuspiciouslyGood"]

_Suspicion = tuple[str, IssueFound | None]  # what names a loss, and the finding if it is bad

_MAX_TARGETS: Final = 8
"""Targets that are followed; further ones are skipped, to bound the memory."""
_SHOWN: Final = 4
"""Columns that a finding names."""
_AS_GOOD: Final = 1.1
"""Validation loss, in training losses; without a leak it is seldom that small."""
_NO_VALUES: Final = "no values of the model's inputs were saved beside those of its targets"
_DATA: Final = "Remove inputs that are computed from the target, and rows that are in both sets."
_MASK: Final = "Check the causal mask, the direction of recurrent layers and the shift of targets."


class SuspiciouslyGood(Rule):
    """Detects target leakage: inputs that hold the target, and models that see their targets.

    How it decides:
        * Inputs: a number leaks if its neighbours in a column predict its rank (R2 of 0.99), or if
          it is a sum of up to three columns. Classes leak if gaps in columns tell them apart. It
          fires after `rows` different rows, four times as many for classes, unless another column
          comes near.
        * Language models: it fires if the loss at the last place is 1.5 times that before, or if
          the targets are the input and nearly known, `patience` batches in a row.
        * Gradient-boosted trees: it fires if a validation loss is below 10 times `max_loss_percent`
          of the first training loss, and at most 1.1 times the training loss, `patience` rounds in
          a row.

    Parameters:
        max_loss_percent: Validation loss of boosted trees, in percent of the baseline.
        patience: Batches or rounds in a row.
        rows: Different rows that must show that a number is predicted.

    What to try:
        Train without the named column; split by time or by group; look for duplicates.
    """

    max_loss_percent: Annotated[float, GreaterThan(0), LessThan(10), Unit("%")] = 0.2
    patience: Annotated[int, AtLeast(1), Unit("passes")] = 2
    rows: Annotated[int, AtLeast(2), Unit("rows")] = 50

    collections = (
        CollectionConfig("losses", {"save_interval": "10", "eval.save_interval": "1"}),
        CollectionConfig("labels", {"save_raw_tensor": "True"}),
        LOSS_INPUTS,
        CollectionConfig("feature_importance", {"save_interval": "10"}),
        CollectionConfig("hyperparameters", {"save_interval": "10"}),
        INPUT_VALUES,
        CollectionConfig("model_inputs", {"save_interval": "10"}),
        KERAS_INPUTS,
        LAYER_INPUTS,
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare inputs with targets, and losses with baselines.

        Args:
            step: What was saved at the step.
            memory: `targets`, what `best_predictors` keeps; `streaks`; `first` losses.
        """
        found = [*self._leaks(step, memory)]
        for key, issue in (*_seen_tokens(step), *self._perfect_losses(step, memory)):
            found.append(issue if self._lasts(memory, key, is_bad=issue is not None) else None)
        if found:
            memory["is_judged"] = True
            return next((one for one in found if one is not None), Passed())
        if "is_judged" in memory:
            return NotApplicable("no values of inputs are saved at this step")
        if memory["targets"]:
            raise Missing(f"fewer than {self.rows} rows of inputs and targets were saved so far")
        raise Missing(_NO_VALUES, how_to_save_input_values(step))

    def _leaks(self, step: StepView, memory: Memory) -> Iterator[IssueFound | None]:
        """Yield a finding, or None, for each target of which enough rows were seen."""
        states: dict[str, Any] = memory.setdefault("targets", {})
        for rows in step.fact(supervised_rows):
            if rows.key in states or len(states) < _MAX_TARGETS:
                found = best_predictors(
                    states.setdefault(rows.key, {}),
                    *(rows.columns, rows.target),
                    examples=rows.examples,
                    are_classes=rows.are_classes,
                    min_rows=self.rows,
                )
                if found is not None:
                    yield _leak(rows, found) if found.columns else None

    def _perfect_losses(self, step: StepView, memory: Memory) -> Iterator[_Suspicion]:
        """Yield validation losses of boosted trees, with a finding for those next to zero."""
        for loss in boosting_losses(step, memory.setdefault("first", {})):
            value, limit = loss.validation, loss.limit(self.max_loss_percent)
            text = f"{loss.name}: the validation loss is {value:.3g}, below {limit:.3g}, and about "
            text += f"as small as the training loss, {loss.training:.3g}"
            issue = IssueFound(text, measure="loss", value=value, threshold=limit, remedy=_DATA)
            is_bad = 0 <= value < limit and value <= _AS_GOOD * loss.training
            yield f"{loss.worker}/{loss.name}", issue if is_bad else None

    def _lasts(self, memory: Memory, key: str, *, is_bad: bool) -> bool:
        """Return whether a loss is bad `patience` times in a row, this time included."""
        streaks: dict[str, int] = memory.setdefault("streaks", {})
        is_followed = key in streaks or len(streaks) < MAX_SERIES
        return is_followed and streak(streaks, is_bad=is_bad, name=key) >= self.patience


def _leak(rows: SupervisedRows, found: Prediction) -> IssueFound:
    names = ", ".join(map(str, found.columns[:_SHOWN])) + " ..." * (len(found.columns) > _SHOWN)
    text = f"column {names} predicts" if len(found.columns) == 1 else f"columns {names} predict"
    value, limit = found.num_rows, found.min_rows
    text = f"{rows.name}: {text} the target {rows.of_targets}, in {value} rows"
    return IssueFound(text, measure="rows", value=value, threshold=limit, remedy=_DATA)


def _seen_tokens(step: StepView) -> Iterator[_Suspicion]:
    """Yield losses of language models, with a finding for those whose targets the model sees."""
    for one in step.fact(token_losses):
        message, value, limit = "", one.value, one.baseline
        if one.by_place is not None and are_next(one.tokens, one.targets):
            value, limit = float(one.by_place[:, :-1].mean()), float(one.by_place[:, -1].mean())
            if is_last_place_worst(one.by_place):
                message = f"{value:.3g} before the last place and {limit:.3g} at it"
        elif one.keeps_places and are_copied(one.tokens, one.targets, value / limit):
            message = f"{value:.3g} where guessing has {limit:.3g}, and the targets are the input"
        text = f"{one.loss}: the loss is {message}: the model sees its targets"
        issue = IssueFound(text, measure="loss", value=value, threshold=limit, remedy=_MASK)
        yield one.name, issue if message else None
