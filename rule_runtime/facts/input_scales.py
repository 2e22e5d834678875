"""Finds model inputs that were not scaled.

Shape legend: R = rows of inputs, one for each (tensor, worker).
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import IssueFound, Outcome, Passed
from rule_runtime.facts.losses import RELATIVE_ERROR, Losses, described
from rule_runtime.facts.model_inputs import (
    FIRST_INPUTS,
    OF_LAYERS,
    are_given_to_layers,
    is_normalised,
    is_of_keras,
)
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "LARGE",
    "are_bits",
    "cut_by_embeddings",
    "float_inputs",
    "has_large_inputs",
    "is_unscaled",
    "issue_or_advice",
    "root_mean_square",
]

LARGE: Final = 5.0
"""Root mean square above which inputs count as not scaled."""
_TABLE: Final = re.compile(r"(.+)/weights/\1/embeddings:0$")
"""Name of the only weight of Keras's Embedding; those inside other layers have longer names."""


def has_large_inputs(step: StepView) -> bool:
    """Return whether a layer gets a model input that was not scaled."""
    rows = step.tensors(regex=FIRST_INPUTS)
    is_large = root_mean_square(rows.column("mean"), rows.column("std")) > LARGE
    return bool((is_large & are_given_to_layers(step, rows)).any())


def float_inputs(step: StepView) -> TensorRows:
    """Return the first inputs of models that are real numbers, and that a layer gets unchanged."""
    rows = step.tensors(regex=FIRST_INPUTS)
    std, size = rows.column("std"), rows.column("size")
    is_judged = are_given_to_layers(step, rows) & ~np.isnan(std) & (size > 1) & ~are_bits(rows)
    return rows.select(is_judged.tolist())


def cut_by_embeddings(step: StepView) -> TensorRows:
    """Return the inputs of Keras's embeddings that have fractions, which these cut off."""
    weights = step.tensors(collections=("weights",)).names
    tables = {f"{table[1]}/inputs" for name in weights if (table := _TABLE.match(name))}
    rows = step.tensors(regex=(OF_LAYERS,))
    inputs = described(rows).items()
    return rows.select([name in tables and of.has_fractions for (name, _), of in inputs])


def issue_or_advice(step: StepView, found: IssueFound) -> Outcome:
    """Return a finding about sizes of numbers, or advice if all losses are regressions."""
    losses = step.fact(Losses).losses
    if not losses or not all(loss.kind.is_of_numbers for loss in losses):
        return found
    return Passed(f"{found.evidence.sentence}. {found.evidence.remedy}")


def root_mean_square(mean: npt.ArrayLike, std: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return root mean squares from means and standard deviations."""
    with np.errstate(over="ignore"):
        rms: npt.NDArray[np.float64] = np.hypot(mean, std)
    return rms


def is_unscaled(step: StepView, rows: TensorRows, at: int, limits: tuple[float, float]) -> bool:
    """Return whether an input is outside of the limits of its root mean square in all calls.

    Constant inputs are outside. Large ones are not, if a normalisation layer follows.
    """
    least, largest = limits
    calls = _all_calls(step, rows, at)
    std = calls.column("std")
    rms = root_mean_square(calls.column("mean"), std)
    is_large = (rms > largest) & (std > 0)
    if is_large.all():
        return not is_normalised(step, rows, at, largest)
    return bool((is_large | (rms < least) | (std == 0)).all())


def _all_calls(step: StepView, rows: TensorRows, at: int) -> TensorRows:
    """Return a first model input in all calls of the step: all inputs of its shape.

    `rows` are inputs named as in `FIRST_INPUTS` [R]. Keras has one row for all calls.
    """
    name, worker, shape = rows.names[at], rows.workers[at], (rows.shapes[at] or ())[1:]
    prefix = re.escape(name.removesuffix("_input_0"))
    pattern = f"^{name}$" if is_of_keras(name) else f"^{prefix}_input_[0-9]+$"
    inputs = step.tensors(regex=(pattern,))
    pairs = zip(inputs.workers, inputs.shapes, strict=True)
    return inputs.select([(of, (own or ())[1:]) == (worker, shape) for of, own in pairs])


def are_bits(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Return which rows [R] have only the elements 0 and 1, and not only 0."""
    low, high, mean, std = (rows.column(name) for name in ("min", "max", "mean", "std"))
    may_be: npt.NDArray[np.bool_] = (low >= 0) & (high == 1)
    mean, std = (np.where(may_be, column, 0.0) for column in (mean, std))
    # Of numbers from 0 to 1, only 0 and 1 equal their squares, so the means are equal.
    return may_be & np.isclose(mean, mean**2 + std**2, rtol=RELATIVE_ERROR, atol=0.0)
