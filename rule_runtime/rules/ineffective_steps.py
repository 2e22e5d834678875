"""IneffectiveSteps: optimizer steps after which no weight has changed."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.optimizer_steps import OPTIMIZER_STEPS, largest_count
from rule_runtime.facts.parameters import weight_fingerprints
from rule_runtime.facts.selection import evidence, is_training

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["IneffectiveSteps"]

_STILL: Final = 2
"""Saved steps in a row at which weights equal those of the step before; one may be chance."""
_LEAST_SCALE: Final = 1.0
"""Loss scale below which a smaller one only makes gradients smaller."""
_NO_COUNTS: Final = (
    "no counts of optimizer steps were saved: the hook for PyTorch saves them if the collection "
    "optimizer_steps is configured"
)
_SKIPPED: Final = (
    "Find the operation whose gradient is not finite, such as a square root, norm or division at "
    "zero: run without the loss scaler, with torch.autograd.set_detect_anomaly(True)."
)
_NO_GRADIENT: Final = (
    "Call backward() on a loss that is computed from the model's outputs without detach(), "
    "no_grad(), .item(), .data, NumPy or torch.tensor(...). Setting requires_grad = True on the "
    "loss hides the mistake."
)
_OF_OTHERS: Final = (
    "Create the optimizer from model.parameters() after the last change of the model, and again "
    "wherever the model is loaded or created again."
)


class IneffectiveSteps(Rule):
    """Detects optimizer steps that change no weight.

    How it decides:
        The hook counts optimizer steps. The rule reports

        * `patience` steps in a row that the loss scaler skipped while the loss scale is below 1, or
          twice as many at any scale (a high first scale skips a dozen steps);
        * `patience` steps in a row without a gradient, or of optimizers that hold no parameter of
          the model, if all saved weights are equal at three saved steps in a row.

    Parameters:
        patience: Optimizer steps in a row without effect.

    What to try:
        See the finding: it depends on the cause.
    """

    # A loss scale of 65,536, the default, is below 1 after 17 skipped steps.
    patience: Annotated[int, AtLeast(1), Unit("optimizer steps")] = 20

    collections = (OPTIMIZER_STEPS, CollectionConfig("weights", {"save_interval": "10"}))

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look at the counts of the step, and whether weights have changed.

        Args:
            step: What was saved at the step.
            memory: `weights`, a checksum of their statistics, and at how many saved steps in a row
                it was the `same`.
        """
        if not is_training(step):
            return NotApplicable(f"there are no optimizer steps in mode {step.mode.name}")
        if largest_count(step, "skipped") is None:
            return NotEvaluated(_NO_COUNTS)
        cause = self._skipped(step) or self._in_vain(step, is_still=_stand_still(step, memory))
        if cause is None:
            return Passed()
        rows = step.tensors(regex=(f"^optimizer_steps/{cause.name}$",))
        value = largest_count(step, cause.name) or 0.0
        at = rows.column("mean").tolist().index(value)
        message, remedy = cause.message.format(f"{value:,.0f} steps"), cause.remedy
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure=cause.name,
                value=value,
                threshold=self.patience,
                message=message,
                remedy=remedy,
            )
        )

    def _skipped(self, step: StepView) -> _Cause | None:
        """Return what is wrong if a loss scaler skips steps."""
        skipped, scale = largest_count(step, "skipped") or 0, largest_count(step, "loss_scale")
        is_low = scale is not None and scale < _LEAST_SCALE
        if skipped < (1 if is_low else 2) * self.patience:
            return None
        of_scale = "" if scale is None else f", and the loss scale is {scale:.3g}"
        message = f"the loss scaler skipped the last {{}}{of_scale}: gradients are not finite"
        return _Cause("skipped", message, _SKIPPED)

    def _in_vain(self, step: StepView, *, is_still: bool) -> _Cause | None:
        """Return what is wrong if optimizers step without a gradient, or train something else."""
        without = largest_count(step, "without_gradient") or 0
        of_others = largest_count(step, "of_other_parameters") or 0
        if not is_still or max(without, of_others) < self.patience:
            return None
        if of_others:
            message = (
                "the optimizer holds none of the model's parameters, and trained others for {}"
            )
            return _Cause("of_other_parameters", message, _OF_OTHERS)
        message = "no parameter of the optimizer gets a gradient, for {}, and no weight changes"
        return _Cause("without_gradient", message, _NO_GRADIENT)


class _Cause(NamedTuple):
    """Why steps have no effect: the count that shows it, in words, and what to do."""

    name: str
    message: str
    remedy: str


def _stand_still(step: StepView, memory: Memory) -> bool:
    """Tell whether all weights have been the same for some saved steps; True without any."""
    weights = step.tensors(collections=("weights",))
    prints = weight_fingerprints(weights).tolist()
    named = sorted(zip(weights.names, weights.workers, prints, strict=True))
    checksum = zlib.crc32(repr(named).encode())
    is_same = memory.get("weights") == checksum
    memory["same"] = min(memory.get("same", 0) + 1, _STILL) if is_same else 0
    memory["weights"] = checksum
    return bool(memory["same"] >= _STILL)
