"""Whether what a model says in training has anything to do with its targets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rule_runtime.facts.loss_inputs import LossInputs, LossKind
from rule_runtime.facts.loss_values import outputs_and_targets
from rule_runtime.facts.selection import finite_means
from rule_runtime.numerics.association import Association
from rule_runtime.numerics.recomputed_loss import best_constant

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["Unrelated", "added_unrelated"]

_NUM_LATEST: Final = 3
_DEVIATIONS: Final = 2.0
_SEEN: Final = 0.15
_POWER: Final = 3.0


class Unrelated(NamedTuple):
    """What the outputs of the latest 3 steps with values have to do with their targets.

    Attributes:
        row: The loss, by its row among the losses of the step.
        share: The correlation over all columns.
        deviation: Its standard deviation by chance.
        is_recent: Whether the latest of these steps is not longer ago than those before it lay
            apart: later nothing is known.
    """

    row: int
    share: float
    deviation: float
    is_recent: bool

    @property
    def is_sure(self) -> bool:
        """Whether outputs have nothing to do with targets, and it would show if they had."""
        is_chance = abs(self.share) <= _DEVIATIONS * self.deviation
        return self.is_recent and is_chance and _POWER * self.deviation <= _SEEN


def added_unrelated(step: StepView, memory: dict[str, Any]) -> Unrelated | None:
    """Add the only loss of each worker; return what is known of 3 steps behind the first.

    Args:
        step: A step of training.
        memory: Changed in place: `steps` and `latest`, numbers and associations of the latest 4
            steps with values, the very first of which has no association: there nothing is learned.
    """
    rows = step.tensors(collections=("losses",))
    of_worker = dict(zip(rows.workers, range(len(rows)), strict=True))
    if len(of_worker) != len(rows) or not of_worker:
        return None
    losses = finite_means(rows)
    known = [_association(step, rows.names[at], of, losses[at]) for of, at in of_worker.items()]
    found = [one for one in known if one is not None]
    if found:
        steps = memory.setdefault("steps", [])
        added = [list(Association.total(found))] if steps else []
        memory["latest"] = [*memory.get("latest", []), *added][-_NUM_LATEST:]
        memory["steps"] = [*steps, step.mode_step][-_NUM_LATEST - 1 :]
    if len(memory.get("latest", ())) < _NUM_LATEST:
        return None
    total = Association.total(memory["latest"])
    *_, before, last = memory["steps"]
    is_recent = step.mode_step - last <= last - before
    return Unrelated(of_worker[min(of_worker)], total.share, total.deviation, is_recent)


def _association(step: StepView, name: str, worker: str, loss: float) -> Association | None:
    """Return how outputs go with targets, of losses that are known to be of both."""
    values = outputs_and_targets(step, name, worker)
    if values is None or not math.isfinite(loss):
        return None
    outputs, targets = values
    kind = step.fact(LossInputs).kind(name, worker)
    # Places of embeddings, which look like scores, are no classes: as of triplets.
    if kind is LossKind.LOOKS_LIKE_CLASSES:
        return None
    if kind is LossKind.UNKNOWN and best_constant(outputs, targets, loss) is None:
        return None
    return Association.of(outputs, targets)
