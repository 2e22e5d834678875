"""IneffectiveSteps: detects optimizer steps, or trees, after which no prediction changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from rule_runtime.detectors.streak import streak
from rule_runtime.engine.findings import Mistake
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import IssueFound, Missing, NotEnough, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.gradient_stops import stopped_by
from rule_runtime.facts.saved_tensors import largest_count
from rule_runtime.facts.tensor_changes import since_previous_step
from rule_runtime.numerics.tensor_change import are_identical
from rule_runtime.trial.step_view import StepView

__all__ = ["IneffectiveSteps"]

_UNCHANGED: Final = 2
"""Consecutive saved steps with unchanged weights; one may be chance."""
_SPLITLESS: Final = 5
"""Trees without a split that are no chance: each leaves the gradients as they were."""
_NO_COUNTS: Final = (
    "no counts of optimizer steps were saved: the hooks for PyTorch and XGBoost save them if the "
    "collection optimizer_steps is configured"
)
_CAUSES: Final = {
    "skipped": Mistake(
        "the loss scaler skipped the last {:,.0f} steps: gradients are not finite",
        "Find the operation whose gradient is not finite, such as a square root, norm or "
        "division at zero: run without the loss scaler, with "
        "torch.autograd.set_detect_anomaly(True).",
    ),
    "of_other_parameters": Mistake(
        "the optimizer holds none of the model's parameters, and trained others for {:,.0f} steps",
        "Create the optimizer from model.parameters() after the last change of the model, and "
        "again wherever the model is loaded or created again.",
    ),
    "of_unused_parameters": Mistake(
        "an optimizer trains parameters that get no gradient and are of no model that is called, "
        "for {:,.0f} steps",
        "Create each optimizer from the parameters of the model that is called, after the last "
        "change of it.",
    ),
    "gradients_cleared": Mistake(
        "gradients are cleared before the optimizer steps, for {:,.0f} steps, and no weight "
        "changes",
        "Call zero_grad() after step() or before backward(), not between them.",
    ),
    "without_gradient": Mistake(
        "no parameter of the optimizer gets a gradient, for {:,.0f} steps, and no weight changes",
        "Call backward() on a loss that is computed from the model's outputs without detach(), "
        "no_grad(), .item(), .data, NumPy or torch.tensor(...). Setting requires_grad = True "
        "on the loss hides the mistake.",
    ),
    "without_split": Mistake(
        "none of the {:,.0f} trees so far has a split: the model predicts a constant",
        "Lower min_child_weight, gamma, reg_lambda and reg_alpha, check max_depth, and that "
        "features vary and are not missing.",
    ),
}
"""Finding and remedy by measure."""


class IneffectiveSteps(Rule):
    """Detects optimizer steps that change no weight, and trees that change no prediction.

    How it decides:
        The rule uses the hook's counts of optimizer steps. It reports:
        * `patience` steps in a row that the loss scaler skipped while the loss scale is below 1, or
          twice as many at any scale;
        * `patience` steps in a row without a gradient or without a parameter of the model, if no
          saved weight changes; gradients that were cleared before the step have their own finding;
        * an optimizer of parameters that no called model has, and that never get a gradient;
        * boosted trees of which none has a split, from the fifth tree on.

    Parameters:
        patience: Optimizer steps in a row without effect.

    What to try:
        Follow the remedy of the finding: it depends on the cause.
    """

    # The default loss scale of 65,536 is below 1 after 17 skipped steps.
    patience: Annotated[int, AtLeast(1), Unit("optimizer steps")] = 20

    collections = saved_every(10, "optimizer_steps", "weights")
    only_training = "there are no optimizer steps in mode {}"
    fatal_measures = ("skipped", "of_other_parameters", "gradients_cleared", "without_gradient")

    def needs(self) -> Needs:
        """Return `patience` steps, and saved steps without a change."""
        return Needs(steps=self.patience, saved_steps=_UNCHANGED)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Check the counts of the step, and whether weights have changed.

        Memory: The state of `since_previous_step`; `streak`: saved steps without a change.
        """
        if all(largest_count(step, name) is None for name in ("skipped", "without_split")):
            raise Missing(_NO_COUNTS)
        cause, limit = self._cause(step, memory)
        if cause is None:
            num_trees = largest_count(step, "without_split")
            if num_trees:
                raise NotEnough(_SPLITLESS, "tree", int(num_trees), "none has a split so far")
            return Passed(has_decided=num_trees is not None)
        message, remedy = _CAUSES[cause]
        count = "without_gradient" if cause == "gradients_cleared" else cause
        value = largest_count(step, count) or 0.0
        text = f"optimizer_steps/{count}: {message.format(value)}"
        stop = stopped_by(step) if cause == "without_gradient" else None
        text += f"; gradients are stopped by {stop}" if stop else ""
        found = IssueFound(text, measure=cause, value=value, threshold=limit, remedy=remedy)
        return IssueFound(replace(found.evidence, stopped_by=stop))

    def _cause(self, step: StepView, memory: Memory) -> tuple[str | None, int]:
        """Return why steps have no effect, None without a reason, and the limit of its count."""
        counts = {name: largest_count(step, name) or 0.0 for name in (*_CAUSES, "loss_scale")}
        is_low = 0 < counts["loss_scale"] < 1  # a lower one only makes gradients smaller
        limit = (1 if is_low else 2) * self.patience
        if counts["skipped"] >= limit:
            return "skipped", limit
        if largest_count(step, "without_split") is not None:
            is_splitless = counts["without_split"] >= _SPLITLESS
            return ("without_split" if is_splitless else None), _SPLITLESS
        pairs = since_previous_step(step, ("weights",), memory)
        is_equal = bool(are_identical(pairs.now, pairs.before).all())
        is_unchanged = streak(memory, is_bad=is_equal) >= _UNCHANGED
        if counts["of_unused_parameters"] >= self.patience > counts["of_other_parameters"]:
            return "of_unused_parameters", self.patience
        name = "of_other_parameters" if counts["of_other_parameters"] else "without_gradient"
        is_cause = is_unchanged and counts[name] >= self.patience
        if name == "without_gradient" and counts["gradients_cleared"]:
            name = "gradients_cleared"
        return (name if is_cause else None), self.patience
