"""Losses of texts, and whether a model sees what it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from rule_runtime.facts.loss_inputs import LossInputs, LossKind
from rule_runtime.facts.loss_owners import input_target_pairs, loss_owners
from rule_runtime.facts.model_inputs import MODEL_INPUT
from rule_runtime.numerics.told_texts import are_masked, are_next, are_seen, is_source

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["are_losses_judged", "losses_of_texts"]

_REAL: Final = ("float", "bfloat")
_OF_LAYERS: Final = r"_input_[0-9]+$"
_FIRST_INPUTS: Final = r"_input_0$"
_OF_MODELS: Final = r"^[A-Z]\w*_output_[0-9]+$"
_OF_FUNCTIONS: Final = ("Loss_output_0", LossKind.LOOKS_LIKE_CLASSES)
_SAME: Final = ("size", "min", "max", "mean", "l2")


def losses_of_texts(step: StepView) -> dict[str, float]:
    """Return losses of places of a text, and whether the model sees the answer.

    Args:
        step: The step.

    Returns:
        1 for `next/{loss}` if its targets are an input of a model, one place further on, and there
        is no other input that they may follow from;
        for `seen/{loss}`, of classes, 1 if its targets stand in an input, which a layer is given
        first as it is, else 0: a model that shifts or hides parts of it itself has no such layer.
        Some places of the input must not be asked, or no layer lose sight of them: a text that is
        rebuilt of less than itself may be the target.
    """
    inputs = step.tensors(regex=(MODEL_INPUT,))
    found: dict[str, float] = {}
    for at, of_targets in input_target_pairs(step, inputs):
        if (inputs.dtypes[at] or "").startswith(_REAL):
            continue  # values are read only where they may be a text
        name, worker = inputs.names[at], inputs.workers[at]
        both = step.values((name, of_targets), worker)
        values, targets = both.get(name), both.get(of_targets)
        if values is None or targets is None or targets.dtype.kind not in "iu":
            continue
        loss = of_targets.replace("_input_1", "_output_0")
        if are_next(values, targets) and not _has_source(step, inputs, at, values, targets):
            found[f"next/{loss}"] = 1.0
        kind = step.fact(LossInputs).kind(loss, worker)
        if kind is LossKind.CLASSES or (loss, kind) == _OF_FUNCTIONS:
            is_seen = are_seen(values, targets) and _is_among(step, inputs, at, _FIRST_INPUTS)
            if is_seen and not are_masked(values, targets):
                is_seen = _keep_places(step, worker, values.shape)
            found[f"seen/{loss}"] = max(found.get(f"seen/{loss}", 0.0), float(is_seen))
    return found


def _keep_places(step: StepView, worker: str, shape: tuple[int, ...]) -> bool:
    """Return whether all that layers are given of the rows [B, L] of an input has its L places."""
    num_rows, length = shape
    rows = step.tensors(regex=(_OF_LAYERS,))
    given = [s or () for s, of in zip(rows.shapes, rows.workers, strict=True) if of == worker]
    is_kept = [length in s or num_rows * length in s for s in given if num_rows in s]
    return num_rows != length and all(is_kept)


def _is_among(step: StepView, inputs: TensorRows, at: int, regex: str) -> bool:
    """Return whether an input of a model is such a tensor of others, by its statistics."""
    rows = step.tensors(regex=(regex,))
    itself = f"{inputs.names[at].rpartition('_input_')[0]}_"
    own = [inputs.column(name)[at] for name in _SAME]
    columns = [rows.column(name) for name in _SAME]
    models = set(inputs.names)
    return any(
        [c[row] for c in columns] == own and worker == inputs.workers[at] and name not in models
        for row, (name, worker) in enumerate(zip(rows.names, rows.workers, strict=True))
        if not name.startswith(itself)
    )


def _has_source(step: StepView, inputs: TensorRows, at: int, *text: npt.NDArray[Any]) -> bool:
    """Return whether a model is given a source that a text and its targets may follow from."""
    of_losses, worker = loss_owners(step), inputs.workers[at]
    return any(
        other != at
        and inputs.workers[other] == worker
        and (name.rpartition("_input_")[0], worker) not in of_losses
        and not _is_among(step, inputs, other, _OF_MODELS)
        and is_source(step.values((name,), worker).get(name), *text)
        for other, name in enumerate(inputs.names)
    )


def are_losses_judged(memory: Memory) -> bool:
    """Return whether any loss that was just judged is of boosted trees, or of texts.

    Args:
        memory: What `ValidationRule` keeps.
    """
    pairs = [key.split("\n") for key in memory["streaks"]]
    beside = memory.get("beside", {})
    return any(
        first != last or not beside.keys().isdisjoint((f"next/{last}", f"seen/{last}"))
        for first, _, last in pairs
    )
