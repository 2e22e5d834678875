"""MissingGradient: a weight that never gets a gradient while others do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import AtLeast, AtMost, Memory, Regex, Rule, Unit
from rule_runtime.evaluation.selection import declared, evidence, is_training, worst
from rule_runtime.numerics.row_memory import RowMemory, row_keys

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["MissingGradient"]

_REMEDY: Final = (
    "Look for detach(), no_grad(), .data or a conversion to numpy between this layer and the loss, "
    "for dead units behind it, and for a requires_grad that is off; if it is frozen on purpose, "
    "name it in ignore_regex."
)


class MissingGradient(Rule):
    """Finds weights that get no gradient, or one of zero, while others get one.

    What it detects:
        A weight that was saved without a gradient, or with a gradient that is exactly zero, at
        step after step, in a model of which other parameters do get gradients.

    Why it matters:
        The layer is cut off from the loss: it keeps its random initial weights, and the training
        goes on as if nothing were wrong.

    How it decides:
        At each training step in which some gradient is not zero, each tensor of the collection
        `weights` is looked at, and `gradient/<its name>`. It fires for one that had none, or only
        zeros, at `patience` saved steps in a row. A gradient of zeros is never on purpose; none at
        all counts only where at least `absent_percent` of the worker's weights have none, for a
        few may be frozen. Where the worker's collections file names the gradients that are to come,
        a weight that is not among them is frozen on purpose, and left out; where it does not,
        whoever freezes most of a model names it in `ignore_regex`. Of more than 2,048 weights, of
        all workers together, as many are followed.

    Parameters:
        patience: Saved steps in a row without a gradient.
        absent_percent: Share of the weights that must lack a gradient for that to count.
        ignore_regex: Regular expressions of weights that are frozen on purpose.

    What to try:
        Look for detach(), no_grad() and .data ahead of the loss, for layers that are not called,
        and for dead units.

    Known false alarms:
        Models of which most is frozen on purpose, as in transfer learning, where the files do not
        say so; experts that are rarely chosen.

    Source:
        Stepwatch.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 10
    absent_percent: Annotated[float, AtLeast(0), AtMost(100), Unit("% of the weights")] = 50.0
    ignore_regex: Annotated[tuple[str, ...], Regex()] = ()

    collections = (
        CollectionConfig("weights", {"save_interval": "10"}),
        CollectionConfig("gradients", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look for weights without a gradient.

        Args:
            step: What was saved at the step.
            memory: `rows`: for how many saved steps each of at most 2,048 weights had none.
        """
        if not is_training(step):
            return NotEvaluated(f"in mode {step.mode.name} there are no gradients")
        weights = step.tensors(collections=("weights",))
        if not len(weights):
            return NotEvaluated("no tensor of the collection weights was saved")
        gradients = step.tensors(collections=("gradients",))
        size = gradients.column("l2")
        if not (size > 0).any():
            return NotEvaluated("no gradient that is not zero was saved")
        bad = self._is_bad(step, weights, gradients)
        keys = row_keys(weights.names, weights.workers)
        rows = RowMemory(memory.get("rows", ""))
        streaks = rows.update(keys, np.zeros(len(keys), np.uint32), bad)
        memory["rows"] = rows.to_json()
        found = streaks >= self.patience
        if not found.any():
            return Passed()
        at = worst(weights, np.where(found, streaks, np.nan), largest=True)
        count = int(streaks[at])
        has_one = f"gradient/{weights.names[at]}" in {
            name
            for name, worker in zip(gradients.names, gradients.workers, strict=True)
            if worker == weights.workers[at]
        }
        what = "a gradient of exactly zero" if has_one else "no gradient"
        return IssueFound(
            evidence(
                step,
                weights,
                at,
                measure="saved_steps_without_gradient",
                value=count,
                threshold=self.patience,
                told=(
                    f"has had {what} for {count} saved steps, as {int(found.sum())} of "
                    f"{len(weights)} weights"
                ),
                remedy=_REMEDY,
            )
        )

    def _is_bad(
        self, step: StepView, weights: TensorRows, gradients: TensorRows
    ) -> npt.NDArray[np.bool_]:
        """Tell of each weight whether it has no gradient, or one of zero, though it should."""
        # A gradient without finite elements is there all the same: NaN is no zero.
        pairs = list(zip(weights.names, weights.workers, strict=True))
        sizes = dict(
            zip(
                zip(gradients.names, gradients.workers, strict=True),
                gradients.column("l2"),
                strict=True,
            )
        )
        found = [sizes.get((f"gradient/{name}", worker)) for name, worker in pairs]
        judged = self._is_judged(step, weights) & ~(weights.column("size") == 0)
        absent = np.array([size is None for size in found], dtype=bool) & judged
        zero = np.array([size == 0 for size in found], dtype=bool) & judged
        for worker in set(weights.workers):
            own = judged & np.array([at == worker for at in weights.workers], dtype=bool)
            if 100 * np.count_nonzero(absent & own) < self.absent_percent * np.count_nonzero(own):
                absent &= ~own
        bad: npt.NDArray[np.bool_] = absent | zero
        return bad

    def _is_judged(self, step: StepView, weights: TensorRows) -> npt.NDArray[np.bool_]:
        """Tell of each weight whether it should have a gradient."""
        ignored = set(step.tensors(regex=self.ignore_regex).names if self.ignore_regex else ())
        trained = declared(step, "gradients")
        return np.array(
            [
                name not in ignored
                and (worker not in trained or f"gradient/{name}" in trained[worker])
                for name, worker in zip(weights.names, weights.workers, strict=True)
            ],
            dtype=bool,
        )
