"""Pairs of inputs of models and targets of losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rule_runtime.facts.losses import Losses
from rule_runtime.facts.model_inputs import is_of_keras

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["input_target_pairs"]

_LABELS: Final = "labels"
_OF_TREES: Final = "input_values"


def input_target_pairs(step: StepView, inputs: TensorRows) -> Iterator[tuple[int, str]]:
    """Yield the rows of inputs of models, and the names of the targets of the same rows.

    Args:
        step: The step.
        inputs: Its inputs of models, and those of boosted trees.
    """
    losses = step.fact(Losses).losses
    of_losses = sorted({(loss.owner, loss.worker) for loss in losses if loss.owner})
    labels = step.tensors(regex=(f"^{_LABELS}$",)).workers
    of_keras = step.tensors(regex=(f"^{_LABELS}(_[0-9]+)?$",))
    weights = step.tensors(collections=("weights",)).names
    for at in sorted(range(len(inputs)), key=lambda at: (inputs.names[at], inputs.workers[at])):
        name, worker = inputs.names[at], inputs.workers[at]
        if is_of_keras(name):
            pairs = zip(of_keras.names, of_keras.workers, strict=True)
            yield from ((at, of_targets) for of_targets, of in sorted(pairs) if of == worker)
            continue
        owner = name.rpartition("_input_")[0]
        is_model = not weights or any(weight.startswith(f"{owner}_") for weight in weights)
        is_model &= (owner, worker) not in of_losses
        for loss, of_worker in of_losses:
            if is_model and of_worker == worker:
                yield at, f"{loss}_input_1"
        if worker in labels and (is_model or name == _OF_TREES):
            yield at, _LABELS
