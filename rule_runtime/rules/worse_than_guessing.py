"""WorseThanGuessing: a model that predicts worse than a constant, long after the start."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np

from rule_runtime.detectors.curves import FEWEST, LEVEL, is_falling
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import Missing, NotEnough, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.baseline import LossTargets, constant_loss, targets_of
from rule_runtime.facts.framework import advice_of
from rule_runtime.facts.losses import Losses, LossKind
from rule_runtime.facts.saved_tensors import finite_means
from rule_runtime.facts.training_losses import training_losses
from rule_runtime.numerics.series_memory import MAX_SERIES, Series, SeriesMemory
from rule_runtime.trial.step_view import StepView

__all__ = ["WorseThanGuessing"]


class WorseThanGuessing(Rule):
    """Detects models that predict worse than a constant, long after the start.

    How it decides:
        After `num_steps` steps, the rule compares the median of the latest 10 training losses with
        the loss of the best constant predictor. It fires above `max_ratio` times that, unless the
        loss still falls.

    Parameters:
        num_steps: Steps before the rule decides.
        max_ratio: Largest ratio to the loss of the best constant predictor.
        patience: Saved steps in a row.

    What to try:
        Lower the learning rate if the loss jumps. Scale targets to mean 0 and variance 1. Check
        that the loss fits the targets.
    """

    num_steps: Annotated[int, AtLeast(1), Unit("steps")] = 100
    max_ratio: Annotated[float, GreaterThan(1), Unit("times the loss of a constant predictor")] = (
        1.5
    )
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = saved_every(10, "losses", "loss_inputs")
    only_training = "steps of mode {} are not evaluated"

    def needs(self) -> Needs:
        """Return `patience` saved steps after `num_steps` steps."""
        return Needs(steps=self.num_steps, saved_steps=self.patience)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare training losses with those of a constant predictor.

        Memory: `begin`: the first step with a loss; for at most 32 losses: `history` of the latest
        20, `streaks`, and `targets` of the latest steps.
        """
        rows = step.fact(Losses).rows
        means = finite_means(rows)
        at_row = training_losses(step, rows, means)
        known: dict[str, list[Any]] = memory.setdefault("targets", {})
        baselines: dict[Series, float] = {}
        for series, at in sorted(at_row.items()):
            targets = self._add_targets(step, series, float(means[at]), known)
            if targets is not None:
                baselines[series] = constant_loss(series[0], targets)
        if not baselines:
            raise _why_unknown(step, at_row)
        num_steps = step.mode_step - memory.setdefault("begin", step.mode_step)
        history = SeriesMemory(memory, "history", num_first=0, num_latest=FEWEST)
        most, found, streaks = 0, {}, memory.setdefault("streaks", {})
        for series in history.add({series: float(means[at_row[series]]) for series in baselines}):
            limit = self.max_ratio * (baselines[series] or math.inf)
            latest = history.of(series).latest
            most = max(most, len(latest))
            now = float(np.median(latest[-LEVEL:]))
            is_bad = num_steps >= self.num_steps and len(latest) >= LEVEL and now > limit
            is_bad = is_bad and not is_falling(latest)
            if streak(streaks, is_bad=is_bad, name="\n".join(series)) >= self.patience:
                found[series] = (now, limit)
        if not found:
            if most < (fewest := min(LEVEL + self.patience - 1, FEWEST)):
                raise NotEnough(fewest, "loss", most)
            return Passed()
        series = max(found, key=lambda series: (found[series][0] / found[series][1], series))
        loss, limit = found[series]
        message = f"is {loss:.4g} after {num_steps} steps, more than {self.max_ratio:g} times "
        message += f"{limit / self.max_ratio:.3g}, the loss of the best constant predictor"
        return finding(self, step, (rows, at_row[series]), ("loss", loss, limit), message)

    def _add_targets(
        self, step: StepView, series: Series, loss: float, known: dict[str, list[Any]]
    ) -> LossTargets | None:
        """Return the targets of the latest steps; None if a constant predictor is unknown."""
        found, key = targets_of(step, *series, loss), "\n".join(series)
        if found is None or (key not in known and len(known) >= MAX_SERIES):
            return None
        kind = LossKind(found.kind)
        if not (kind.is_of_numbers or found.uniform) or kind is LossKind.BINARY:
            return None  # binary classes may have weights
        if step.fact(Losses).find(*series).has_row_weights:
            return None
        if key in known:
            before = LossTargets(*known[key])
            found = before._replace(steps=min(before.steps, LEVEL - 1)).plus(found)
        known[key] = list(found)
        return None if found.is_sum else found


def _why_unknown(step: StepView, losses: Iterable[Series]) -> Missing:
    """Return why no loss has a constant predictor to compare with."""
    compared = [name for name, of in losses if step.fact(Losses).find(name, of).targets is not None]
    if not compared:
        return Missing("no loss was saved with its inputs", advice_of(step).loss_inputs)
    why = "it has two classes, sample weights or infinite targets, is a sum, or has another formula"
    return Missing(f"no baseline is known for {min(compared)}: {why}")
