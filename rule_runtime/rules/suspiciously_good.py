"""SuspiciouslyGood: inputs that contain the target, models that see it, near-zero losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.streak import streak
from rule_runtime.detectors.target_leakage import Leak, find_leak
from rule_runtime.detectors.token_leaks import COPIED_SHARE, TIMES_AT_LAST, are_targets_seen
from rule_runtime.engine.findings import MAX_NAMED
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import IssueFound, Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.framework import advice_of
from rule_runtime.facts.losses import INPUT_VALUES
from rule_runtime.facts.model_inputs import KERAS_INPUTS, LAYER_INPUTS, MODEL_INPUT
from rule_runtime.facts.supervised_rows import SupervisedRows, has_pairs, supervised_rows
from rule_runtime.facts.token_losses import TokenLosses, token_losses
from rule_runtime.facts.validation_baseline import boosting_losses
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.trial.step_view import StepView

__all__ = ["SuspiciouslyGood"]

_MAX_TARGETS: Final = 8
"""Maximum number of targets; further ones are skipped, to bound the memory."""
_AS_GOOD: Final = 1.1
"""Ratio of validation to training loss; rarely that small without a leak."""
_NO_VALUES: Final = "no values of the model's inputs were saved with those of its targets"
_NO_ROWS: Final = "inputs are evaluated only if they are tables with a few targets a row"
_DATA: Final = "Remove inputs that are computed from the target, and rows that are in both sets."
_MASK: Final = "Check the causal mask, the direction of recurrent layers and the shift of targets."
_SHIFT: Final = (
    "Shift the targets by one place, so that `logits[:, :-1]` are compared with `tokens[:, 1:]`. A "
    "model that fills in tokens must not get them."
)
_ONCE: Final = (
    "Shift once: either your script or the model. A model that shifts labels itself needs the "
    "tokens as labels."
)
_COPIED: Final = {
    (0, 0): "the input",
    (-1, -1): "the tokens before",
    (-1, 0): "the input or the tokens before",
}
"""Targets that the model has already read, by their smallest and largest distance."""


class SuspiciouslyGood(Rule):
    """Detects target leakage: inputs that contain the target, and models that see their targets.

    How it decides:
        The rule reports:
        * inputs, if one column predicts the target, or if the target is a sum of columns;
        * language models that know tokens which do not follow from those before, or whose targets
          are not shifted, or shifted twice;
        * gradient-boosted trees with a validation loss below `max_loss_percent` of the baseline and
          close to the training loss.

        It ignores easy tasks, which several columns predict.

    Parameters:
        max_loss_percent: Validation loss of boosted trees, in percent of the first training loss
            (`rmse`: of the standard deviation of the labels).
        patience: Number of consecutive batches or rounds.
        rows: Distinct examples that must show that a number is predicted.

    What to try:
        Train without the named column; split by time or by group; look for duplicates.
    """

    max_loss_percent: Annotated[float, GreaterThan(0), LessThan(10), Unit("%")] = 2.0
    patience: Annotated[int, AtLeast(1), Unit("batches or rounds")] = 2
    rows: Annotated[int, AtLeast(2), Unit("examples")] = 50

    collections = (
        CollectionConfig("losses", {"save_interval": "10", "eval.save_interval": "1"}),
        CollectionConfig("labels", {"save_raw_tensor": "True"}),
        *saved_every(10, "loss_inputs", "feature_importance"),  # used by reports
        INPUT_VALUES,
        *saved_every(10, "model_inputs"),
        KERAS_INPUTS,
        LAYER_INPUTS,
    )

    def needs(self) -> Needs:
        """Return `patience` saved steps with `rows` examples."""
        return Needs(saved_steps=self.patience, elements=self.rows, noun="distinct example")

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare inputs with targets, and losses with baselines.

        Memory: `targets`: the state of `find_leak` for each; `streaks` of language models;
        `has_values`: whether inputs were saved with targets; the state of `boosting_losses`.
        """
        found = [*self._leaks(step, memory.setdefault("targets", {}))]
        found += self._tokens(step, memory.setdefault("streaks", {}))
        found += self._perfect_losses(step, memory)
        if found:
            memory["is_judged"] = True
            return next((one for one in found if isinstance(one, IssueFound)), found[0])
        if "is_judged" in memory:
            return NotApplicable("no values of inputs are saved at this step")
        if memory["targets"]:
            most = max(len(of.get("examples", ())) for of in memory["targets"].values())
            raise self.needs().too_few(most, "of classes, it needs four times as many")
        memory["has_values"] = memory.get("has_values") or has_pairs(step)
        if memory["has_values"]:
            raise Missing(_NO_ROWS)
        names = step.tensors(regex=(MODEL_INPUT,)).names
        raise Missing(_NO_VALUES, step.how_to_save(names, advice_of(step).input_values))

    def _leaks(self, step: StepView, states: dict[str, Any]) -> Iterator[IssueFound | Passed]:
        """Evaluate each target with enough examples."""
        for rows in step.fact(supervised_rows):
            if rows.key in states or len(states) < _MAX_TARGETS:
                leak = find_leak(
                    states.setdefault(rows.key, {}),
                    *(rows.columns, rows.target),
                    examples=rows.examples,
                    are_classes=rows.are_classes,
                    min_examples=self.rows,
                )
                if leak is not None:
                    yield self._leak(rows, leak)

    def _leak(self, rows: SupervisedRows, leak: Leak) -> IssueFound | Passed:
        if not leak.columns:
            return Passed(has_decided=True)
        many = " ..." if len(leak.columns) > MAX_NAMED else ""
        names = ", ".join(map(str, leak.columns[:MAX_NAMED])) + many
        text = f"column {names} predicts" if len(leak.columns) == 1 else f"columns {names} predict"
        text = f"{rows.name}: {text} the target {rows.of_targets}, in {leak.num_rows} rows"
        value = leak.num_rows
        return IssueFound(text, measure="rows", value=value, threshold=self.rows, remedy=_DATA)

    def _tokens(self, step: StepView, streaks: dict[str, int]) -> Iterator[IssueFound | Passed]:
        """Evaluate each loss of a language model."""
        for one in step.fact(token_losses):
            if one.name in streaks or len(streaks) < MAX_SERIES:
                issue = _wrong_token(one)
                num_bad = streak(streaks, is_bad=issue is not None, name=one.name)
                yield issue if issue and num_bad >= self.patience else Passed()

    def _perfect_losses(self, step: StepView, memory: Memory) -> Iterator[IssueFound | Passed]:
        """Evaluate each validation loss of boosted trees."""
        for one, baseline in boosting_losses(step, memory):
            value, limit = one.validation, self.max_loss_percent / 100 * baseline
            is_bad = 0 <= value < limit and value <= _AS_GOOD * one.training
            text = f"{one.loss}: the validation loss is {value:.3g}, below {limit:.3g}, and about "
            text += f"as small as the training loss, {one.training:.3g}"
            issue = IssueFound(text, measure="loss", value=value, threshold=limit, remedy=_DATA)
            yield issue if streak(one.notes, is_bad=is_bad) >= self.patience else Passed()


def _wrong_token(one: TokenLosses) -> IssueFound | None:
    """Return the finding on a language model that sees its targets, or learns other ones."""
    aligned, value, limit = one.alignment, one.value, COPIED_SHARE * one.guess
    if aligned is None:
        return None
    if aligned.distance == 1:
        return _seen_token(one)
    if not one.keeps_places:
        return None
    if aligned.distance > 1:
        text = f"{one.loss}: the targets are the tokens after the next: they are shifted twice"
        places = float(aligned.distance)
        return IssueFound(text, measure="places", value=places, threshold=1, remedy=_ONCE)
    text = f"{one.loss}: the loss is {value:.3g} where guessing has {one.guess:.3g}, and the "
    text += f"targets are {_COPIED[aligned.least, aligned.most]}: the model sees its targets"
    found = IssueFound(text, measure="loss", value=value, threshold=limit, remedy=_SHIFT)
    return found if value < limit else None


def _seen_token(one: TokenLosses) -> IssueFound | None:
    """Return the finding on a model that sees the next tokens."""
    losses, twins = one.by_place, one.of_twins
    if losses is None or twins is None or not are_targets_seen(losses, twins, one.guess):
        return None
    value, last = float(np.nanmean(losses[:, :-1])), losses[:, -1]
    if np.isnan(last).all():
        if not one.keeps_places:
            return None
        other = float(np.nanmean(twins))
        text = f"{value:.3g}, and {other:.3g} by the scores of sequences with an equal start"
    else:
        other = float(np.nanmean(last))
        text = f"{value:.3g} before the last place and {other:.3g} at it"
    text = f"{one.loss}: the loss is {text}: the model sees its targets"
    limit = other / TIMES_AT_LAST
    return IssueFound(text, measure="loss", value=value, threshold=limit, remedy=_MASK)
