"""Losses that are written wrongly, or leave classes out: only values tell, saved seldom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rule_runtime.engine.rule import Memory
from rule_runtime.facts.loss_inputs import LossInputs, LossKind
from rule_runtime.facts.loss_mismatch import LossMismatch
from rule_runtime.facts.loss_values import outputs_and_targets
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.numerics.wrong_classes import classes_left_out, other_axis
from rule_runtime.numerics.wrong_formulas import is_size_of_mean, wrong_formula

if TYPE_CHECKING:
    import numpy.typing as npt

    from rule_runtime.trial.step_view import StepView

__all__ = ["wrong_formula_of"]

_OF_MODELS: Final = (r"^[A-Z]\w*_output_[0-9]+$",)
_BOTH: Final = 2
_ROUNDING: Final = 1e-6
_SAME: Final = 1e-4
_MATRIX: Final = 2
_MOST_TOLD: Final = 8


def wrong_formula_of(
    step: StepView, inputs: LossInputs, loss: tuple[str, str, float], memory: Memory
) -> LossMismatch | None:
    """Return what is wrong with the only loss of a worker, if it is of a known wrong formula.

    Beside others a loss may be there for something else, as a penalty.

    Args:
        step: The step.
        inputs: The inputs of its losses.
        loss: Its name, `X_output_0`, the worker and its value.
        memory: Of each of at most 32 losses `formulas`, the latest that it was of, and `signs`,
            those that the mean difference had when its size was the loss: both must be seen, for
            the difference itself is meant by critics.
    """
    name, worker, value = loss
    if list(step.tensors(collections=("losses",)).workers).count(worker) != 1:
        return None
    kind, scores = inputs.kind(name, worker), inputs.of(name, worker, 0)
    values = outputs_and_targets(step, name, worker)
    if values is None or scores is None:
        return None
    if kind is LossKind.BINARY or kind.is_of_numbers:
        return _of_part(step, worker, *values)
    if kind.is_of_classes:
        is_answer = _is_answer_of_model(step, name, worker, scores.shape)
        of_classes = _of_classes(*values, value, is_answer=is_answer)
        is_same = of_classes is not None and _is_same(memory, loss, of_classes.message)
        return of_classes if is_same else None
    found = wrong_formula(*values, value, memory.get("formulas", {}).get(f"{worker}/{name}"))
    if found is not None and _is_same(memory, loss, found[0]):
        return LossMismatch("formula", value, found[1], f"is {found[0]}")
    return _of_mean(values, loss, memory)


def _is_same(memory: Memory, loss: tuple[str, str, float], message: str) -> bool:
    """Keep of which formula a loss is; say whether it was of no other one before, by chance."""
    known: dict[str, str] = memory.setdefault("formulas", {})
    key = f"{loss[1]}/{loss[0]}"
    if key not in known and len(known) >= MAX_SERIES:
        return False
    before, known[key] = known.get(key, message), message
    return before == message


def _of_part(
    step: StepView, worker: str, given: npt.NDArray[Any], targets: npt.NDArray[Any]
) -> LossMismatch | None:
    """Return what is wrong if a loss gets a column of several of a model's answers, or their mean.

    The last column may be the last place of a series, which alone is asked for.
    """
    if given.dtype.kind != "f" or given.shape != targets.shape or np.ptp(targets) == 0 < given.ndim:
        return None
    losses = set(step.tensors(collections=("losses",)).names)
    rows = step.tensors(regex=_OF_MODELS)
    own = [
        of
        for of, by, shape in zip(rows.names, rows.workers, rows.shapes, strict=True)
        if by == worker and of not in losses and len(shape or ()) == _MATRIX
    ]
    for of, answers in step.values(own, worker).items() if own else ():
        columns = answers.shape[1]
        is_whole = answers.size == given.size or answers.dtype.kind != "f"
        if is_whole or not np.isfinite(answers).all():
            continue
        message = f"of the {columns} columns that {of.removesuffix('_output_0')} returns"
        # A number of three decimals is one that somebody wants outputs to have in the mean.
        is_own = not np.isclose(1000 * targets, np.rint(1000 * targets), rtol=0, atol=_SAME).all()
        if given.size == 1 and is_own and _are_close(given, answers.mean(), answers):
            return LossMismatch(
                "means", 1.0, float(answers.size), f"gets nothing but the mean {message}"
            )
        if given.size != len(answers):
            continue
        for at in range(columns - 1):
            if _are_close(given, answers[:, at], answers):
                return LossMismatch("column", float(at), 0.0, f"gets column {at} alone {message}")
    return None


def _are_close(some: npt.NDArray[Any], others: Any, answers: npt.NDArray[Any]) -> bool:
    apart = np.abs(some.astype(np.float64).reshape(-1) - others)
    return bool(apart.max() <= _ROUNDING * np.abs(answers).max() and np.ptp(answers) > 0)


def _of_classes(
    outputs: npt.NDArray[Any], targets: npt.NDArray[Any], loss: float, *, is_answer: bool
) -> LossMismatch | None:
    """Return what is wrong with a cross entropy of classes.

    Only where a model answers each row once no class may be left out: of places of a text or
    picture padding may be, and what is not asked for.
    """
    axes = other_axis(outputs, targets, loss)
    if axes is not None:
        message = (
            f"takes a softmax of scores {list(outputs.shape)} along dimension {axes[0]}, and not"
        )
        message += f" along dimension {axes[1]}, that of the classes"
        return LossMismatch("axis", float(axes[0]), float(axes[1]), message)
    left_out = classes_left_out(outputs, targets, loss) if is_answer else None
    if left_out is None:
        return None
    message = "leaves out all rows of " + ("class " if len(left_out) == 1 else "classes ")
    message += ", ".join(map(str, left_out[:_MOST_TOLD])) + (
        ", ..." if left_out[_MOST_TOLD:] else ""
    )
    return LossMismatch("left_out", float(len(left_out)), 0.0, message)


def _of_mean(
    values: tuple[npt.NDArray[Any], npt.NDArray[Any]], loss: tuple[str, str, float], memory: Memory
) -> LossMismatch | None:
    """Return what is wrong if a loss is the size of the mean difference."""
    name, worker, value = loss
    known: dict[str, list[int]] = memory.setdefault("signs", {})
    key, sign = f"{worker}/{name}", is_size_of_mean(*values, value)
    if not sign or (key not in known and len(known) >= MAX_SERIES):
        return None
    known[key] = sorted({*known.get(key, []), sign})
    if len(known[key]) < _BOTH:
        return None
    message = "is the size of the mean difference, in which errors cancel out"
    return LossMismatch("means", value, 0.0, message)


def _is_answer_of_model(
    step: StepView, name: str, worker: str, shape: tuple[int, ...] | None
) -> bool:
    """Return whether a model returned, and was given, a row for each row of what a loss gets."""
    if shape is None or len(shape) != _MATRIX:
        return False
    owner = name.removesuffix("_output_0")
    losses = set(step.tensors(collections=("losses",)).names)
    rows = step.tensors(regex=_OF_MODELS)
    for of, by, given in zip(rows.names, rows.workers, rows.shapes, strict=True):
        if by != worker or of in losses or of.startswith(f"{owner}_") or given != shape:
            continue
        model = of.rpartition("_output_")[0]
        first = step.tensors(regex=(f"^{model}_input_0$",))
        if any(got and got[0] == shape[0] for got in first.shapes):
            return True
    return False
