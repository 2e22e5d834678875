"""How far the outputs of a model go with their targets, over the latest steps with values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rule_runtime.facts.loss_curves import TrainingLosses
from rule_runtime.facts.losses import Losses, LossKind
from rule_runtime.numerics.association import Association
from rule_runtime.numerics.series_memory import MAX_SERIES, Series

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView

__all__ = ["unrelated_outputs"]

_WITHOUT_TARGETS: Final = (LossKind.UNKNOWN, LossKind.LOOKS_LIKE_CLASSES)
"""Kinds of losses that may get anything: embeddings, advantages, logarithms."""

_NUM_STEPS: Final = 5
"""Latest steps with values that count together."""

_FEWEST_STEPS: Final = 3
"""Steps with values below which one odd batch would decide."""

_CHANCE: Final = 2.0
"""Standard deviations of the correlation by chance; 5 % of unrelated outputs are beyond them."""

_VISIBLE: Final = 0.2
"""Correlation that must be three standard deviations of chance: so weak a relation would show."""

_POWER: Final = 3.0
"""Standard deviations by chance at which a relation is certain."""


def unrelated_outputs(step: StepView, memory: Memory) -> dict[Series, Association]:
    """Add the values of a step; return the losses whose outputs have nothing to do with targets.

    Outputs are compared with their targets and, by the permutation test, with those of other rows.
    The name of the loss must say that it compares the two. It must be the only loss of its worker:
    outputs of a discriminator have nothing to do with their targets if the generator is good.

    Args:
        step: A step of training.
        memory: `associations`: of at most 32 losses, at the latest 5 steps with values.
    """
    facts = step.fact(Losses)
    known: dict[str, list[list[float]]] = memory.setdefault("associations", {})
    found = {}
    losses = step.fact(TrainingLosses).at
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
        total = Association.total(known[key])
        would_show = _POWER * total.deviation <= _VISIBLE and len(known[key]) >= _FEWEST_STEPS
        if would_show and abs(total.share) <= _CHANCE * total.deviation:
            found[name, worker] = total
    return found
