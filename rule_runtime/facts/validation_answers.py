"""Answers of a model beside the labels, in training and in validation, where both were saved."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hook_layer.format.modes import ModeKeys
from rule_runtime.facts.evaluation_phases import SIDES_OF_TREES
from rule_runtime.facts.selection import is_training
from rule_runtime.numerics.agreement import Agreement
from rule_runtime.numerics.class_pairs import class_pairs

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["PREDICTIONS", "Answers", "added_answers", "agreement_of"]

PREDICTIONS: Final = "predictions"
_LABELS: Final = "labels"
_OF_TREES: Final = "train-"
_NUM_LATEST: Final = 20
_NUM_PASSES: Final = 3
_PATIENCE: Final = 2
_DEVIATIONS: Final = 3.0
_DEVIATIONS_OF_TREES: Final = 2.0
_NO_SHARE: Final = 0.15
_NO_SHARE_OF_TREES: Final = 0.1
_SEEN: Final = 0.2
_ROUNDS: Final = 20
_STEPS: Final = 100
_SURELY: Final = 6.0
_MORE: Final = 0.1
_ROWS: Final = 100
_NEARLY_ALL: Final = 0.9
_FAR: Final = 0.3
_ERRORS: Final = 4.0


class Answers(NamedTuple):
    """How right a model is.

    Attributes:
        training: In the latest 20 saved steps of training together; no rows for boosted trees.
        passes: In each of the latest 3 passes of validation.
        num_steps: Steps of training since the first one with answers.
        of_trees: Whether these are boosted trees, a pass in each round.
    """

    training: Agreement
    passes: list[Agreement]
    num_steps: int
    of_trees: bool

    @property
    def have_nothing_to_do_with_labels(self) -> bool:
        """Whether validation is not better than chance, though training is, or had the time."""
        share, most = _NO_SHARE_OF_TREES, _DEVIATIONS_OF_TREES
        if not self.of_trees:
            share, most = _NO_SHARE, _DEVIATIONS
        if len(self.passes) < _NUM_PASSES or not all(
            of.shows(_SEEN, _DEVIATIONS) and of.share <= share and of.z <= most
            for of in self.passes
        ):
            return False
        if self.of_trees:
            return self.num_steps >= _ROUNDS
        best = max(of.share for of in self.passes)
        is_learned = self.training.z >= _SURELY and self.training.share >= best + _MORE
        return self.num_steps >= _STEPS and is_learned

    @property
    def are_right_in_training_only(self) -> bool:
        """Whether training is nearly always right, and validation far from that."""
        if self.training.rows < _ROWS or self.training.share < _NEARLY_ALL:
            return False
        latest = self.passes[-_PATIENCE:]
        return len(latest) == _PATIENCE and all(
            self.training.share - of.share > max(_FAR, _ERRORS * _error(of)) for of in latest
        )


def added_answers(step: StepView, memory: dict[str, Any]) -> Answers | None:
    """Add the answers of a step; return how right they are when a pass of validation has ended.

    A pass is the EVAL steps with answers between two training steps with answers. It ends when
    training continues, or with its last step, once it is as long as the one before. With XGBoost,
    which saves answers of validation beside the losses of training, each round is one. Answers are
    the tensor `predictions` of the first worker that has it, labels the tensor `labels`.

    Args:
        step: The step.
        memory: `training`, agreements of the latest 20 steps; `passes`, of the latest 3; `open`, of
            the pass that continues, `steps` and `length`, steps of it and of the one before;
            `begin`, the first step.
    """
    found = agreement_of(step)
    if found is None:
        return None
    of_training = step.tensors(collections=SIDES_OF_TREES[:1], regex=(f"^{_OF_TREES}",))
    of_trees = step.mode is ModeKeys.GLOBAL and len(of_training) > 0
    if step.mode is ModeKeys.EVAL or of_trees:
        memory["open"] = list(Agreement.total([memory.get("open", Agreement.total([])), found]))
        memory["steps"] = memory.get("steps", 0) + 1
        if not of_trees and memory["steps"] != memory.get("length"):
            return None
    elif not is_training(step):
        return None
    if of_trees or is_training(step):
        memory["now"] = step.mode_step
        memory.setdefault("begin", step.mode_step)
    if not of_trees and is_training(step):
        memory["training"] = [*memory.get("training", []), list(found)][-_NUM_LATEST:]
    if "open" not in memory:
        return None
    memory["passes"] = [*memory.get("passes", []), memory.pop("open")][-_NUM_PASSES:]
    memory["length"] = memory.pop("steps")
    return Answers(
        Agreement.total(memory.get("training", [])),
        [Agreement(*of) for of in memory["passes"]],
        memory.get("now", 0) - memory.get("begin", 0),
        of_trees,
    )


def agreement_of(step: StepView) -> Agreement | None:
    """Return the agreement of a step's answers; None if they are no classes, or not saved.

    Args:
        step: The step; answers are those of the first worker that has any.
    """
    rows = step.tensors(regex=(f"^({_LABELS}|{PREDICTIONS})$",))
    pairs = set(zip(rows.names, rows.workers, strict=True))
    for worker in sorted(set(rows.workers)):
        if not {(_LABELS, worker), (PREDICTIONS, worker)} <= pairs:
            continue
        values = step.values((_LABELS, PREDICTIONS), worker)
        if not {_LABELS, PREDICTIONS} <= values.keys():
            return None
        try:
            found = class_pairs(values[_LABELS], values[PREDICTIONS])
        except ValueError:
            return None
        return Agreement.of(found.labels, found.predictions)
    return None


def _error(of: Agreement) -> float:
    """Return the standard error of the share beyond chance."""
    right = of.right / of.rows if of.rows else 0.0
    left = of.rows - of.by_chance
    return math.sqrt(right * (1 - right) * of.rows) / left if left > 0 else math.inf
