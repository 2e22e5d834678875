"""Losses whose outputs are unrelated to their targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rule_runtime.facts.loss_curves import training_points
from rule_runtime.facts.losses import Losses, LossKind
from rule_runtime.numerics.association import Association
from rule_runtime.numerics.series_memory import MAX_SERIES, Series

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView

__all__ = ["unrelated_outputs"]

_WITHOUT_TARGETS: Final = (LossKind.UNKNOWN, LossKind.LOOKS_LIKE_CLASSES)
"""Kinds of losses whose inputs may be anything: embeddings, advantages, logarithms."""

_NUM_STEPS: Final = 5
"""Latest steps with values that count together."""

_FEWEST_STEPS: Final = 3
"""Steps with values; fewer may be odd batches."""

_CHANCE: Final = 2.0
"""Standard deviations of the correlation by chance; 5 % of unrelated outputs exceed them."""

_MAX_DEVIATION: Final = 0.067
"""Standard deviation by chance, of which a correlation of 0.2 would be three and so would show."""


def unrelated_outputs(step: StepView, memory: Memory) -> dict[Series, Association]:
    """Add the values of a step; return the losses whose outputs are unrelated to their targets.

    Outputs are compared with their targets and, by the permutation test, with those of other rows.
    The loss must compare the two by its name, and be the only loss of its worker: outputs of a
    discriminator are unrelated to their targets if the generator is good.

    Args:
        step: A step of training.
        memory: `associations`: of at most 32 losses, at the latest 5 steps with values.
    """
    facts = step.fact(Losses)
    known: dict[str, list[list[float]]] = memory.setdefault("associations", {})
    found = {}
    losses = step.fact(training_points).at
    workers = [worker for _, worker in losses]
    for name, worker in losses:
        key = f"{worker}/{name}"
        is_unknown = facts.find(name, worker).kind in _WITHOUT_TARGETS
        if is_unknown or workers.count(worker) > 1:
            continue
        values = facts.values(facts.find(name, worker))
        association = None if values is None else Association.of(*values)
        if association is None or (key not in known and len(known) >= MAX_SERIES):
            continue
        known[key] = [*known.get(key, []), list(association)][-_NUM_STEPS:]
        total = Association(*(sum(column) for column in zip(*known[key], strict=True)))
        would_show = total.deviation <= _MAX_DEVIATION and len(known[key]) >= _FEWEST_STEPS
        if would_show and abs(total.share) <= _CHANCE * total.deviation:
            found[name, worker] = total
    return found
