"""LossNotDecreasing: detects losses that do not fall enough over a number of steps."""

from __future__ import annotations

import sys
from typing import Annotated, Final, Literal

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import NotApplicable, NotEnough, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import saved_every, selected_collections
from rule_runtime.facts.saved_tensors import finite_means
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LossNotDecreasing"]

_PRIORITY: Final = ("EVAL", "TRAIN", "GLOBAL")
"""By default, the first of these modes with losses is evaluated."""


class LossNotDecreasing(Rule):
    """Detects losses that do not fall by a given percentage over a given number of steps.

    How it decides:
        The rule compares each loss with its value `num_steps` steps or more before. The fall,
        (previous - current) / |previous|, must be at least `diff_percent`.

    Parameters:
        collection_names: Collections whose tensors are losses.
        tensor_regex: Regular expressions of further losses.
        use_losses_collection: True to include the collection `losses`.
        num_steps: Steps between two compared losses.
        diff_percent: The least fall, in percent of the previous loss.
        increase_threshold_percent: The rise in percent that is reported as a rise.
        mode: The mode to evaluate; by default EVAL once it has losses, otherwise TRAIN.

    What to try:
        Change the learning rate, check that labels match inputs, or raise num_steps.
    """

    collection_names: tuple[str, ...] = ()
    tensor_regex: Annotated[tuple[str, ...], Regex()] = ()
    use_losses_collection: bool = True
    num_steps: Annotated[int, AtLeast(1), Unit("steps")] = 10
    diff_percent: Annotated[float, GreaterThan(0), LessThan(100), Unit("%")] = 0.1
    increase_threshold_percent: Annotated[float, GreaterThan(0), LessThan(100), Unit("%")] = 5.0
    mode: Literal["EVAL", "TRAIN", "PREDICT", "GLOBAL"] | None = None

    collections = saved_every(500, "losses")
    caution = (
        "with its defaults it compares two single batches, which differ by chance, so it may stop "
        "healthy runs; raise num_steps, or use PlateauedLoss and LossDiverging of the pack "
        "recommended, which look at trends"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.collection_names or self.tensor_regex or self.use_losses_collection):
            raise ParameterError(
                "LossNotDecreasing: no loss to evaluate; give collection_names or tensor_regex, "
                "or leave use_losses_collection True"
            )

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the selected losses."""
        interval = self.collections[0].parameters
        losses = self.collections if self.use_losses_collection else ()
        names, regex = self.collection_names, self.tensor_regex
        return (*losses, *selected_collections("LossNotDecreasing", names, regex, interval))

    def needs(self) -> Needs:
        """Return `num_steps` steps."""
        return Needs(elements=self.num_steps, noun="step")

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the losses of the step with earlier ones if a comparison is due.

        Memory: `mode`: the evaluated mode; `losses`: step in the mode, global step and value at
        each loss's latest comparison.
        """
        names = self.collection_names + (("losses",) if self.use_losses_collection else ())
        rows = step.tensors(collections=names, regex=self.tensor_regex)
        if not len(rows):
            return NotApplicable("no loss was saved")
        mode = self._evaluated_mode(step, memory)
        if mode not in (step.mode.name, "GLOBAL"):
            return NotApplicable(f"only losses of mode {mode} are evaluated: set mode for others")
        due = self._due(step, rows, memory)
        if not due:
            raise self._too_few(step, memory)
        at, (fall, change) = min(due.items(), key=lambda item: item[1])
        if fall >= self.diff_percent:
            return Passed()
        is_rise = -fall > self.increase_threshold_percent
        moved = f"rose by {-fall:.3g} %" if fall < 0 else f"fell by {fall:.3g} %"
        message = f"{moved}, and should have fallen by {self.diff_percent:g} %, {change}"
        measured = (
            "loss_increase_percent" if is_rise else "loss_decrease_percent",
            -fall if is_rise else fall,
            self.increase_threshold_percent if is_rise else self.diff_percent,
        )
        return finding(self, step, (rows, at), measured, message)

    def _evaluated_mode(self, step: StepView, memory: Memory) -> str:
        """Return the mode to evaluate; a change of mode restarts the comparison."""
        seen = (memory.get("mode"), step.mode.name)
        mode: str = self.mode or next((mode for mode in _PRIORITY if mode in seen), "TRAIN")
        if mode != memory.get("mode"):
            memory.update(mode=mode, losses={})
        return mode

    def _too_few(self, step: StepView, memory: Memory) -> NotEnough:
        """Return what is needed for the next comparison."""
        number = step.step if memory["mode"] == "GLOBAL" else step.mode_step
        num_steps = max((number - known[0] for known in memory["losses"].values()), default=0)
        if num_steps >= self.num_steps:  # all of them belong to one validation pass
            return NotEnough(2, "validation pass", 1)
        return NotEnough(self.num_steps, f"{memory['mode']} step", num_steps)

    def _due(
        self, step: StepView, rows: TensorRows, memory: Memory
    ) -> dict[int, tuple[float, str]]:
        """Return the due falls by row, in percent and in words."""
        number = step.step if memory["mode"] == "GLOBAL" else step.mode_step
        is_validation = memory["mode"] in ("EVAL", "PREDICT")
        due, known, values = {}, memory["losses"], finite_means(rows)
        for at in np.flatnonzero(np.isfinite(values)).tolist():
            key, point = f"{rows.workers[at]}/{rows.names[at]}", [number, step.step, values[at]]
            since, since_step, before = known.get(key, point)
            # No weight changes between steps of one validation pass.
            is_same_pass = is_validation and step.step - since_step == number - since
            is_due = number >= since + self.num_steps and not is_same_pass
            if is_due:
                change = f"from {before:.6g} at step {since} to {values[at]:.6g} at step {number}"
                fall = (before - values[at]) / (abs(before) or sys.float_info.min)
                due[at] = (100 * float(fall), change)
            # A counter that was reset starts another run of the mode.
            if is_due or number < since or (key not in known and len(known) < MAX_SERIES):
                known[key] = point
        return due
