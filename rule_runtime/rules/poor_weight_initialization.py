"""PoorWeightInitialization: first steps that show that the initial weights do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import (
    Evidence,
    IssueFound,
    NotApplicable,
    NotEvaluated,
    Outcome,
    Passed,
)
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Regex, Rule, Unit
from rule_runtime.facts.cancelled_gradients import cancelled_biases
from rule_runtime.facts.initial_weights import (
    INITIAL_WEIGHTS,
    weights_too_large,
    weights_too_much_alike,
)
from rule_runtime.facts.selection import evidence, finite_means, is_training, worst
from rule_runtime.trial.value_pairs import row_values

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["PoorWeightInitialization"]

_MAX_LOSSES: Final = 32
"""Losses that are followed; further ones are not."""

_REMEDY: Final = (
    "Initialise weights so that signals keep their size from layer to layer, as the layers' own "
    "defaults do, normalise inputs and activations, scale residual branches down, and check the "
    "learning rate."
)

_CONDITIONS: Final = ("variances", "gradients", "losses", "scale", "symmetry")
_AT_START: Final = frozenset({"scale", "symmetry"})

_Answer = Evidence | str | None
"""What one of the conditions says: a finding, why it could not be judged, or that all is well."""


class PoorWeightInitialization(Rule):
    """Finds first steps that show badly initialised weights.

    How it decides:
        The first `steps` saved training steps (modes TRAIN and GLOBAL) that have what is judged, on
        each worker; each condition suffices, and is told in this order:
        1. `variances`. Of the inputs of ReLU layers, which are those of the collection
        `relu_input`, filled by the hook for PyTorch by the type of the layers, and those whose name
        matches `activation_inputs_regex`: the largest variance divided by the smallest, strictly
        more than `threshold`. The variance is that of the finite elements. At least two layers are
        needed.
        2. `gradients`. Of each gradient: the distance of its 95th and 5th percentile, strictly less
        than `distribution_range`. Gradients with fewer than two elements, or with elements that are
        not finite, are passed over, and so are those of biases that cancel out in front of a
        normalisation layer. Needs values; without them, only a maximum and minimum that are as
        close prove the condition, and nothing excludes it.
        3. `losses`. Of each loss: no value below the smallest one so far for `patience` of these
        steps in a row. A loss that is not finite is passed over (ExplodingTensor finds it). Of more
        than 32 losses the first are judged.
        4. `scale`. Of the weights of linear layers, convolutions, recurrent layers and attention
        that have a gradient, at step 0 of the mode: at least half are too large, or one that takes
        the state of a recurrent layer to the next one is. A weight is too large if its root mean
        square times the root of the smaller one of its numbers of inputs and outputs, which is
        between 0.5 and 2 in usual initialisations, is more than `max_gain`; and the root mean
        square of the layer's output is more than half of `max_gain` times that of its input, where
        these were saved.
        5. `symmetry`. Of the same weights that have several inputs and outputs, at the same step:
        in at least half all elements are equal, and not 0, or in all, if one of them goes into
        another; and there is another layer. Then all units of such a layer are the same, get the
        same gradients and remain the same. In some layers zeros are on purpose.
        Saved steps are counted: `requires()` has the first `steps` of them saved one by one, of
        gradients and losses by a collection of its own, `first_steps`.

    Parameters:
        activation_inputs_regex: Regular expressions of the inputs of activations.
        threshold: Ratio of the largest variance to the smallest above which layers are too unlike.
        distribution_range: Distance of percentiles below which a gradient's elements are too alike.
        patience: Steps without a smaller loss that are too many.
        steps: Number of first saved steps that are judged.
        conditions: Names of the conditions that are judged; the original has the first three.
        max_gain: Gain of a weight from which on it is too large, for `scale`.

    What to try:
        An initialisation made for the activation (Kaiming for ReLU, Xavier for tanh and sigmoid),
        normalisation, smaller residual branches, another learning rate.
    """

    activation_inputs_regex: Annotated[tuple[str, ...], Regex()] = (".*relu_input",)
    threshold: Annotated[float, GreaterThan(0), Unit("largest / smallest variance")] = 10.0
    distribution_range: Annotated[float, AtLeast(0), Unit("gradient")] = 0.001
    patience: Annotated[int, AtLeast(1), Unit("steps")] = 5
    steps: Annotated[int, AtLeast(1), Unit("saved steps")] = 10
    conditions: tuple[str, ...] = ("variances", "gradients", "losses")
    max_gain: Annotated[float, GreaterThan(0), Unit("gain")] = 3.0

    collections = (CollectionConfig("relu_input", {"save_interval": "500"}),)

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.conditions if name not in _CONDITIONS]
        if unknown or not self.conditions:
            raise ParameterError(
                f"PoorWeightInitialization: conditions is {', '.join(self.conditions) or 'empty'}, "
                f"but must be some of {', '.join(_CONDITIONS)}"
            )

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return what the conditions look at: values of first gradients only if they need them."""
        at_start = set(self.conditions) & _AT_START
        of_weights = INITIAL_WEIGHTS if at_start else ()
        return (*of_weights, *(self._of_first_steps() if set(self.conditions) - _AT_START else ()))

    def _of_first_steps(self) -> tuple[CollectionConfig, ...]:
        """Return the inputs of activations, and the gradients with values, and the losses."""
        parameters = dict(self.collections[0].parameters)
        if self.activation_inputs_regex:
            parameters["include_regex"] = "|".join(self.activation_inputs_regex)
        rarely = {"save_interval": parameters["save_interval"]}
        first = {"save_interval": "1", "end_step": str(self.steps)}
        values = {"save_raw_tensor": "True"}
        return (
            CollectionConfig("relu_input", {**parameters, **first}),
            # Other rules may want these for the whole run, which must not be saved step by step.
            CollectionConfig("first_steps", {**first, **values}),
            CollectionConfig("gradients", rarely),
            CollectionConfig("losses", rarely),
        )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Judge the step by all three conditions if it is one of the first.

        Args:
            step: What was saved at the step.
            memory: `num_judged` steps, and of at most 32 `losses` the smallest value and how often
                in a row it was not undercut; `at_start`, what was said of step 0.
        """
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not judged")
        if memory.get("num_judged", 0) >= self.steps:
            return NotApplicable(f"only the first {self.steps} saved training steps are judged")
        judges: dict[str, Callable[[], _Answer]] = {
            "variances": lambda: self._of_variances(step),
            "gradients": lambda: self._of_gradients(step),
            "losses": lambda: self._of_losses(step, memory),
            "scale": lambda: weights_too_large(step, memory, self.max_gain, _REMEDY),
            "symmetry": lambda: weights_too_much_alike(step, memory, _REMEDY),
        }
        answers = [judge() for name, judge in judges.items() if name in self.conditions]
        reasons = [answer for answer in answers if isinstance(answer, str)]
        if len(reasons) == len(answers):
            return NotEvaluated("; ".join(dict.fromkeys(reasons)))
        memory["num_judged"] = memory.get("num_judged", 0) + 1
        for answer in answers:
            if isinstance(answer, Evidence):
                return IssueFound(answer)
        return Passed()

    def _of_variances(self, step: StepView) -> _Answer:
        rows = step.tensors(collections=("relu_input",), regex=self.activation_inputs_regex)
        num_bad = np.nan_to_num(rows.column("nan")) + np.nan_to_num(rows.column("inf"))
        with np.errstate(over="ignore"):
            variance = np.where(rows.column("size") - num_bad > 1, rows.column("std") ** 2, np.nan)
        ratios = np.full(len(rows), np.nan)
        smallest: dict[str, int] = {}
        for worker in step.workers:
            is_own = np.array([name == worker for name in rows.workers], dtype=np.bool_)
            own = np.where(is_own, variance, np.nan)
            if np.count_nonzero(~np.isnan(own)) > 1:
                smallest[worker] = worst(rows, own, largest=False)
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratios = np.where(is_own, own / own[smallest[worker]], ratios)
        if not smallest:
            return "no two inputs of activations (collection relu_input) were saved with statistics"
        if np.isnan(ratios).all():  # all variances are zero, or none is finite
            return None
        at = worst(rows, ratios, largest=True)
        if not ratios[at] > self.threshold:
            return None
        other = smallest[rows.workers[at]]
        return evidence(
            step,
            rows,
            at,
            measure="variance_ratio",
            value=ratios[at],
            threshold=self.threshold,
            message=(
                f"variance {variance[at]:.3g} is {ratios[at]:.3g} times the {variance[other]:.3g} "
                f"of {rows.names[other]}, more than {self.threshold:g} times"
            ),
            remedy=_REMEDY,
        )

    def _of_gradients(self, step: StepView) -> _Answer:
        rows = step.tensors(collections=("gradients",))
        num_bad = np.nan_to_num(rows.column("nan")) + np.nan_to_num(rows.column("inf"))
        is_cancelled = cancelled_biases(step, rows, rows.column("abs_mean"), least=0.0)
        is_judged = (rows.column("size") > 1) & (num_bad == 0) & ~is_cancelled
        rows = rows.select(is_judged)
        distance = np.full(len(rows), np.nan)
        widest = rows.column("max") - rows.column("min")
        for at, value in row_values(step, rows):
            if value.dtype.kind in "iuf":
                distance[at] = _spread(value)
        # Percentiles are no farther apart than the extremes.
        is_close = np.isnan(distance) & (widest < self.distribution_range)
        distance = np.where(is_close, widest, distance)
        if np.isnan(distance).all():
            return "no gradient was saved with its values"
        at = worst(rows, distance, largest=False)
        if not distance[at] < self.distribution_range:
            return None
        return evidence(
            step,
            rows,
            at,
            measure="percentile_range",
            value=distance[at],
            threshold=self.distribution_range,
            message=(
                f"95th and 5th percentile of the gradient are {distance[at]:.3g} apart, less than "
                f"{self.distribution_range:g}"
            ),
            remedy=_REMEDY,
        )

    def _of_losses(self, step: StepView, memory: Memory) -> _Answer:
        rows = step.tensors(collections=("losses",))
        means = finite_means(rows)
        known: dict[tuple[str, str], tuple[float, int]] = {
            (name, worker): (best, count) for name, worker, best, count in memory.get("losses", ())
        }
        waited = np.full(len(rows), np.nan)
        finite = [int(at) for at in np.flatnonzero(np.isfinite(means))]
        for at in sorted(finite, key=lambda at: (rows.names[at], rows.workers[at])):
            pair, loss = (rows.names[at], rows.workers[at]), float(means[at])
            if pair not in known and len(known) >= _MAX_LOSSES:
                continue
            best, count = known.get(pair, (np.inf, 0))
            known[pair] = (loss, 0) if loss < best else (best, count + 1)
            waited[at] = known[pair][1]
        memory["losses"] = [[*pair, *value] for pair, value in sorted(known.items())]
        if np.isnan(waited).all():
            return "no finite loss was saved"
        at = worst(rows, waited, largest=True)
        if waited[at] < self.patience:
            return None
        best = known[rows.names[at], rows.workers[at]][0]
        return evidence(
            step,
            rows,
            at,
            measure="steps_without_decrease",
            value=waited[at],
            threshold=self.patience,
            message=f"no loss below {best:.4g} for {waited[at]:.0f} steps",
            remedy=_REMEDY,
        )


def _spread(value: npt.NDArray[Any]) -> float:
    """Return the distance of the 95th and 5th percentile."""
    low, high = np.percentile(value, (5, 95))
    return float(high - low)
