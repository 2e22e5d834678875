"""InputStatistics: inputs of a model that were not scaled, or do not vary."""

from __future__ import annotations

import math
from typing import Annotated, Final

import numpy as np

from hook_layer.format.modes import ModeKeys
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import saved_steps_of_patience
from rule_runtime.engine.outcome import IssueFound, Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.engine.selection import is_training, saved_every
from rule_runtime.facts.input_scales import (
    LARGE,
    cut_by_embeddings,
    float_inputs,
    is_unscaled,
    issue_or_advice,
    root_mean_square,
)
from rule_runtime.facts.losses import Losses
from rule_runtime.facts.model_inputs import LAYER_INPUTS
from rule_runtime.facts.validation_inputs import add_inputs, compared_with_training
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.trial.step_view import StepView

__all__ = ["InputStatistics"]

_TARGETS: Final = "Scale the targets to mean 0 and variance 1, and the outputs back."
_TOKENS: Final = "Give an Embedding the numbers of words or categories, not scaled; others a Dense."
_BEGINNING: Final = 50
"""Steps in which outputs may approach the targets."""
_FAR: Final = 10.0
"""Multiple of the outputs, or of `max_rms`, from which targets are out of reach."""


class InputStatistics(Rule):
    """Detects inputs and targets of a model that are not scaled, or that do not vary.

    How it decides:
        The rule evaluates the root mean square of the first input of the model, and of the targets
        of a regression. It reports:
        * an input outside of `min_rms` to `max_rms`, or constant, at `patience` saved steps in a
          row;
        * fractions that a Keras Embedding cuts to whole numbers;
        * targets above ten times `max_rms` that the outputs do not reach by step 50;
        * validation inputs whose standard deviation is less than a third or more than three times
          that of training, or whose mean is three of these away. If targets differ, too, or are
          unknown, the factor is 10.

        If all losses are regressions, sizes are advice, no issue. Large inputs that a normalisation
        layer follows are not reported.

    Parameters:
        max_rms: Largest root mean square.
        min_rms: Smallest root mean square.
        patience: Saved steps in a row.

    What to try:
        Scale each input to mean 0 and variance 1, with the same numbers in validation. Look at a
        batch of the data loader.
    """

    max_rms: Annotated[float, GreaterThan(0), Unit("root mean square")] = LARGE
    min_rms: Annotated[float, AtLeast(0), Unit("root mean square")] = 1e-3
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = (
        *saved_every(10, "model_inputs"),
        LAYER_INPUTS,
        *saved_every(10, "weights", "losses", "loss_inputs"),
    )

    needs = saved_steps_of_patience

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Evaluate the model's inputs and targets.

        Memory: `inputs` and `targets`: number of consecutive bad steps of each; `scales`: the
        memory of `add_inputs`.
        """
        if not is_training(step) and step.mode is not ModeKeys.EVAL:
            return NotApplicable(f"steps of mode {step.mode.name} are not evaluated")
        scales = memory.setdefault("scales", {})
        add_inputs(step, step.fact(float_inputs), scales)
        if not is_training(step):
            return compared_with_training(step, step.fact(float_inputs), scales)
        targets = self._of_targets(step, memory.setdefault("targets", {}))
        if isinstance(targets, IssueFound):
            return targets
        try:
            inputs = self._of_inputs(step, memory.setdefault("inputs", {}))
        except Missing:
            if targets is None:
                raise
            return targets
        return inputs if isinstance(inputs, IssueFound) or targets is None else targets

    def _of_targets(self, step: StepView, streaks: dict[str, int]) -> Outcome | None:
        """Return a finding on targets that the outputs do not reach; None without any."""
        found: list[IssueFound] = []
        for loss in step.fact(Losses).losses:
            if loss.outputs is None or loss.targets is None or not loss.kind.is_of_numbers:
                continue
            rms, size = math.sqrt(loss.targets.mean_square), math.sqrt(loss.outputs.mean_square)
            limit = _FAR * max(self.max_rms, size)
            diverges = rms > _FAR * self.max_rms and not size <= _FAR * rms
            is_bad = rms > limit and step.mode_step >= _BEGINNING
            if self._lasts(streaks, loss.key, is_bad=is_bad) or diverges:
                text = f"{loss.name}: has targets with a root mean square of {rms:.3g}"
                text += f", where outputs are {size:.3g}" if math.isfinite(size) else ""
                text += ": they are not scaled"
                one = IssueFound(text, measure="rms", value=rms, threshold=limit, remedy=_TARGETS)
                found.append(one)
        return issue_or_advice(step, found[0]) if found else None

    def _of_inputs(self, step: StepView, streaks: dict[str, int]) -> Outcome:
        """Return a finding on model inputs that are not scaled."""
        cut = step.fact(cut_by_embeddings)
        for at, (name, worker) in enumerate(cut.pairs):
            if self._lasts(streaks, f"{worker}/{name}/cut", is_bad=True):
                measured = ("fraction", float(cut.column("mean")[at]), 0.0)
                text = "has fractions, and an Embedding cuts them to whole numbers"
                return finding(self, step, (cut, at), measured, text, remedy=_TOKENS)
        rows = step.fact(float_inputs)
        if not len(rows):
            raise Missing("no floating-point input of a layer was saved")
        mean, std, size = (rows.column(name) for name in ("mean", "std", "size"))
        found = []
        for at in range(len(rows)):
            name = f"{rows.workers[at]}/{rows.names[at]}"
            is_bad = is_unscaled(step, rows, at, (self.min_rms, self.max_rms))
            if self._lasts(streaks, name, is_bad=is_bad):
                found.append(at)
        if not found:
            return Passed()
        sizes = root_mean_square(mean, std)
        distances = np.abs(np.log(np.maximum(sizes, np.finfo(np.float64).tiny)))
        at = max(found, key=lambda at: float(distances[at]))
        message = f"has a root mean square of {sizes[at]:.3g}, and should be between "
        message += f"{self.min_rms:g} and {self.max_rms:g}"
        if std[at] == 0:
            message = f"is {mean[at]:.3g} in all {int(size[at])} elements"
        limit = self.max_rms if sizes[at] > self.max_rms else self.min_rms
        issue = finding(self, step, (rows, at), ("rms", sizes[at], limit), message)
        return issue if std[at] == 0 else issue_or_advice(step, issue)

    def _lasts(self, streaks: dict[str, int], name: str, *, is_bad: bool) -> bool:
        """Return whether something was bad `patience` times in a row, including this time."""
        is_followed = name in streaks or len(streaks) < MAX_SERIES
        return is_followed and streak(streaks, is_bad=is_bad, name=name) >= self.patience
