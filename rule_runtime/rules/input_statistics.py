"""InputStatistics: inputs of a model that were not scaled, or do not vary."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.large_targets import targets_out_of_reach
from rule_runtime.facts.loss_inputs import LOSS_INPUTS
from rule_runtime.facts.model_inputs import (
    FIRST_INPUTS,
    LAYER_INPUTS,
    are_given_to_layers,
    are_on_a_line,
    is_of_keras,
)
from rule_runtime.facts.selection import evidence, finite_means, is_training, worst
from rule_runtime.facts.validation_passes import within_limits
from rule_runtime.numerics.row_memory import RowMemory, row_keys

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["InputStatistics"]

_CLOSE: Final = 1e-6
_NONE: Final = "no input of real numbers, that a layer of the model gets as it is, was saved"
_REMEDY: Final = (
    "Scale each input to mean 0 and variance 1 with numbers of the training data, or divide pixels "
    "by 255; look at a batch of what the data loader returns."
)
_REMEDY_FOR_TARGETS: Final = (
    "Scale the targets to mean 0 and variance 1 with numbers of the training data, and what the "
    "model says back; or begin with the targets' mean as the last layer's bias."
)


class InputStatistics(Rule):
    """Finds inputs of a model that are not scaled, or are the same throughout.

    How it decides:
        The first input of the registered model, `{model}_input_0`, is judged at training steps if
        it is of floating-point numbers with at least two dimensions; numbers of words, masks,
        lengths and states that begin with zeros are not. Neither are inputs of nothing but 0 and 1
        (unless all are 0), as masks and one-hot rows, nor an input that no layer with a weight of
        two dimensions or more gets as it is (size, minimum, maximum, mean, standard deviation and
        l2 norm are equal; of a layer that is called often, as a recurrent cell, those of all of its
        calls together), for then the model scales it by itself; where inputs of layers were not
        saved, that is not known. It fires if sqrt(mean^2 + std^2) of the finite elements is more
        than `max_rms` or less than `min_rms`, or the standard deviation is 0, at `patience` saved
        steps in a row; of a model that is called several times in a step the same must hold of the
        first inputs of all calls together. The model is recognised by its parameters,
        `{model}_...`; `dense0_weight` is that of a layer, as MXNet numbers them. One column of a
        model with one weight, as of a line through points, is bad only while the loss is not below
        the first one.

        Of Keras all of `inputs` are judged, where inputs of layers were saved beside them (by
        default every 10th of the first 100 steps), whole numbers too: those that a layer with a
        matrix of more than one weight gets as they are (to 1e-6), other than an Embedding.

        Targets, `..._input_1` of MSELoss, L1Loss, SmoothL1Loss and HuberLoss, are too large if from
        the 50th training step on, at `patience` saved steps in a row, their root mean square is
        more than ten times `max_rms`, and more than ten times that of the outputs, `..._input_0`.

    Parameters:
        max_rms: Largest root mean square.
        min_rms: Smallest root mean square.
        patience: Saved steps in a row.

    What to try:
        Scale inputs with mean and standard deviation of the training data; a normalisation layer
        at the beginning.
    """

    max_rms: Annotated[float, GreaterThan(0), Unit("root mean square")] = 5.0
    min_rms: Annotated[float, AtLeast(0), Unit("root mean square")] = 1e-3
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = (
        CollectionConfig("model_inputs", {"save_interval": "10"}),
        LAYER_INPUTS,
        CollectionConfig("weights", {"save_interval": "10"}),
        CollectionConfig("losses", {"save_interval": "10"}),
        LOSS_INPUTS,
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look at the model's inputs.

        Args:
            step: What was saved at the step.
            memory: `rows`: for how many saved steps each of at most 2,048 inputs was bad;
                `targets`: for how many the targets of each of at most 32 losses were; `loss`: the
                first one.
        """
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not judged")
        of_targets = self._judge_targets(step, memory)
        return of_targets or self._judge_inputs(step, memory)

    def _judge_targets(self, step: StepView, memory: Memory) -> IssueFound | None:
        """Find targets that the outputs do not get to; None if there are none."""
        losses = step.tensors(collections=("losses",))
        streaks = memory.setdefault("targets", {})
        found = targets_out_of_reach(
            step, losses, streaks, largest=self.max_rms, patience=self.patience
        )
        if found is None:
            return None
        message = f"has targets with a root mean square of {found.targets:.3g}, where outputs are "
        message += f"{found.outputs:.3g}: they are not scaled"
        return IssueFound(
            evidence(
                step,
                losses,
                found.at,
                measure="rms",
                value=found.targets,
                threshold=found.threshold,
                message=message,
                remedy=_REMEDY_FOR_TARGETS,
            )
        )

    def _judge_inputs(self, step: StepView, memory: Memory) -> Outcome:
        """Look at the inputs of models."""
        rows = step.tensors(regex=FIRST_INPUTS)
        mean, std, size = (rows.column(name) for name in ("mean", "std", "size"))
        is_judged = are_given_to_layers(step, rows) & ~np.isnan(std) & (size > 1) & ~_of_bits(rows)
        if not is_judged.any():
            return NotEvaluated(_NONE)
        rms = _rms(mean, std)
        bad = is_judged & self._is_bad(mean, std).any(axis=0)
        bad &= ~(are_on_a_line(step, rows) & _has_fallen(step, memory))
        for place in np.flatnonzero(bad):
            in_all = self._is_bad(*_of_all_calls(step, rows, int(place)))
            bad[place] = (in_all & self._is_bad(mean[place], std[place])).any()
        streaks_of = RowMemory(memory.get("rows", ""))
        keys = row_keys(rows.names, rows.workers)
        streaks = streaks_of.update(keys, np.zeros(len(keys), np.uint32), bad)
        memory["rows"] = streaks_of.to_json()
        found = streaks >= self.patience
        if not found.any():
            return Passed()
        with np.errstate(divide="ignore"):
            at = worst(rows, np.where(found, np.abs(np.log(rms)), np.nan), largest=True)
        limit = self.max_rms if rms[at] > self.max_rms else self.min_rms
        message = (
            f"has a root mean square of {rms[at]:.3g}, and should be between {self.min_rms:g} "
        )
        message += f"and {self.max_rms:g}"
        if std[at] == 0:
            message = f"is {mean[at]:.3g} in all {int(size[at])} elements"
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="rms",
                value=float(rms[at]),
                threshold=limit,
                message=message,
                remedy=_REMEDY,
            )
        )

    def _is_bad(self, mean: npt.ArrayLike, std: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Tell which inputs are too large, too small, or all one number [3, ...]."""
        rms = _rms(mean, std)
        return np.array([rms > self.max_rms, rms < self.min_rms, np.equal(std, 0)])


def _has_fallen(step: StepView, memory: Memory) -> bool:
    """Tell whether the losses of a step, all together, are below those of the first one."""
    means = finite_means(step.tensors(collections=("losses",)))
    if not len(means) or np.isnan(means).any():
        return False
    loss = within_limits(float(means.sum()))
    return loss < float(memory.setdefault("loss", loss))


def _rms(mean: npt.ArrayLike, std: npt.ArrayLike) -> npt.NDArray[np.float64]:
    with np.errstate(over="ignore"):
        rms: npt.NDArray[np.float64] = np.hypot(mean, std)
    return rms


def _of_all_calls(step: StepView, rows: TensorRows, at: int) -> tuple[float, float]:
    """Return mean and standard deviation of a first input, in all calls of its model together.

    Inputs are numbered on in a step. Of a model that returns several tensors, or whose outputs were
    not saved, further inputs of that shape count as the first one of a later call.
    """
    if is_of_keras(rows.names[at]):  # which has them once in a step, and all of them
        return float(rows.column("mean")[at]), float(rows.column("std")[at])
    model, worker = rows.names[at].removesuffix("_input_0"), rows.workers[at]
    inputs, outputs = (
        step.tensors(regex=(f"^{re.escape(model)}_{kind}_[0-9]+$",)) for kind in ("input", "output")
    )
    num_calls = outputs.workers.count(worker)
    num_inputs, rest = divmod(inputs.workers.count(worker), num_calls or 1)
    num_inputs = num_inputs if num_calls and num_inputs and not rest else 1
    shape = (rows.shapes[at] or ())[1:]
    named = zip(inputs.names, inputs.workers, inputs.shapes, strict=True)
    first = [
        place
        for place, (name, of, own) in enumerate(named)
        if of == worker
        and int(name.rpartition("_")[2]) % num_inputs == 0
        and (own or ())[1:] == shape
    ]
    size, mean, std = (inputs.column(name)[first] for name in ("size", "mean", "std"))
    share = np.where(np.isnan(std), 0.0, size / size.sum())
    middle = float(np.nansum(share * mean))
    spread = np.sqrt(share) * _rms(mean - middle, std)
    return middle, math.hypot(*np.nan_to_num(spread).tolist())


def _of_bits(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] have no elements but 0 and 1, and not only 0."""
    low, high, mean, std = (rows.column(name) for name in ("min", "max", "mean", "std"))
    may_be: npt.NDArray[np.bool_] = (low >= 0) & (high == 1)
    mean, std = (np.where(may_be, column, 0.0) for column in (mean, std))
    # Of numbers between 0 and 1 only these are equal to their squares, and so in the mean.
    return may_be & np.isclose(mean, mean**2 + std**2, rtol=_CLOSE, atol=0.0)
