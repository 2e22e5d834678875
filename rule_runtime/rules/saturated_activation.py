"""SaturatedActivation: a tanh or sigmoid layer most of whose units are driven to their limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import AtLeast, AtMost, Memory, Regex, Rule, Unit
from rule_runtime.facts.last_activations import gives_good_answers
from rule_runtime.facts.linear_layers import MODULE_IO
from rule_runtime.facts.loss_inputs import LOSS_INPUTS
from rule_runtime.facts.recurrent_slopes import recurrent_slopes
from rule_runtime.facts.selection import evidence, is_training, selected_collections, worst
from rule_runtime.numerics.unit_shares import unit_axes, unit_percentages
from rule_runtime.trial.value_pairs import row_values

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SaturatedActivation"]

_LAYERS: Final = ("tanh", "sigmoid")

_EVERY_500: Final = {"save_interval": "500"}
_OUTPUTS: Final = tuple(CollectionConfig(f"{layer}_output", _EVERY_500) for layer in _LAYERS)
_REGEX: Final = (".*tanh_input|.*sigmoid_input",)
_REMEDY: Final = (
    "Use an initialisation made for the activation (Xavier), normalise inputs and activations, "
    "lower the learning rate, or use an activation that does not saturate."
)


class SaturatedActivation(Rule):
    """Finds tanh and sigmoid layers most of whose units are saturated.

    How it decides:
        At each training step (modes TRAIN and GLOBAL), for the inputs of all layers in the
        collections `tanh_input` and `sigmoid_input`, which the hook for PyTorch fills by the type
        of the layers and with what functions such as torch.tanh get, and for the selected tensors,
        on each worker. The limits are those of the
        collection a tensor is in, else of the word, tanh or sigmoid, in its name; without either it
        is not judged. A unit is a feature of [N, U] or a channel of [N, U, H, W], and the
        percentage is that of its inputs, over the batch and the positions, strictly between the
        limits. In three dimensions the units may be the second axis or the last; the one with the
        larger share of saturated units counts. Layers without a batch are not judged. NaN counts as
        lying within the limits. The layer with the largest share is the evidence. Where minimum and
        maximum lie within the limits nothing else is read; else the values are needed. The default
        limits are those of the original; the gradient there is 2e-8 (tanh), 4e-8 and 1e-10
        (sigmoid), which is less than the 1e-7 that its documentation names. Without `judge_answers`
        a layer is left out whose output a loss compares and finds better than guessing: below ln 2
        for BCELoss, below the variance of the targets, or its root, for losses of numbers.

        What goes into the activations of a recurrent layer of torch nobody gets. If
        `threshold_slope` is not 0 each layer that has a `weight_hh` is judged at step 0 of mode
        TRAIN or GLOBAL, if its outputs (`{layer}_output_...`) lie between -1 and 1. The slope of
        tanh where it returns h is 1 - h^2; the mean over the outputs must not be below
        `threshold_slope`. Nor must that of the gates of a GRU or LSTM, 1 / sqrt(1 + pi s^2 / 8),
        where s^2 is the variance of what goes into them: the mean square of the inputs times that
        of their weights times their number, and the same for states.

    Parameters:
        collection_names: Collections to look at besides `tanh_input` and `sigmoid_input`.
        tensor_regex: Regular expressions of further inputs to look at.
        threshold_tanh_min: Lower limit of the inputs of tanh.
        threshold_tanh_max: Upper limit of the inputs of tanh.
        threshold_sigmoid_min: Lower limit of the inputs of sigmoid.
        threshold_sigmoid_max: Upper limit of the inputs of sigmoid.
        threshold_inactivity: Percentage of inputs within the limits below which a unit is
            saturated.
        threshold_layer: Share of saturated units above which a layer is an issue.
        judge_answers: Whether a last layer that is sure, and mostly right, is judged as others are.
        threshold_slope: Mean slope at step 0, as a share of the largest, below which the tanh or
            the gates of a recurrent layer are an issue; 0 to leave them alone.

    What to try:
        A Xavier initialisation, normalisation of inputs and activations, a smaller learning rate,
        or ReLU, GELU and the like. Limits of -5 and 5 find saturation much earlier.
    """

    collection_names: tuple[str, ...] = ()
    tensor_regex: Annotated[tuple[str, ...], Regex()] = _REGEX
    threshold_tanh_min: Annotated[float, Unit("input")] = -9.4999
    threshold_tanh_max: Annotated[float, Unit("input")] = 9.4999
    threshold_sigmoid_min: Annotated[float, Unit("input")] = -23.0
    threshold_sigmoid_max: Annotated[float, Unit("input")] = 16.99999
    threshold_inactivity: Annotated[float, AtLeast(0), AtMost(100), Unit("%")] = 1.0
    threshold_layer: Annotated[float, AtLeast(0), AtMost(100), Unit("%")] = 50.0
    judge_answers: bool = True
    threshold_slope: Annotated[float, AtLeast(0), AtMost(1)] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for layer, (low, high) in self._limits.items():
            if low >= high:
                raise ParameterError(
                    f"SaturatedActivation: threshold_{layer}_min is {low:g}, but must be less than "
                    f"threshold_{layer}_max, which is {high:g}"
                )

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the collections with the inputs' values."""
        of_layers = tuple(
            CollectionConfig(f"{layer}_input", {**_EVERY_500, "save_raw_tensor": "True"})
            for layer in _LAYERS
        )
        named = [n for n in self.collection_names if n not in {c.name for c in of_layers}]
        regex = () if self.tensor_regex == _REGEX else self.tensor_regex
        values = {**_EVERY_500, "save_raw_tensor": "True"}
        recurrent = (MODULE_IO, CollectionConfig("weights", _EVERY_500))
        answers = (MODULE_IO, *_OUTPUTS, LOSS_INPUTS, CollectionConfig("losses", _EVERY_500))
        return (
            *of_layers,
            *selected_collections("SaturatedActivation", named, regex, values),
            *(recurrent if self.threshold_slope else ()),
            *(() if self.judge_answers else answers),
        )

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the largest share of saturated units of the step with the threshold.

        Args:
            step: What was saved at the step.
            memory: Not used.
        """
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not judged")
        of_signals = self._of_signals(step)
        of_layers = self._of_layers(step)
        if isinstance(of_signals, IssueFound) and not isinstance(of_layers, IssueFound):
            return of_signals
        return of_signals or of_layers if isinstance(of_layers, NotEvaluated) else of_layers

    def _of_signals(self, step: StepView) -> Outcome | None:
        """Judge what recurrent layers of an untrained model gave; None without any."""
        if not self.threshold_slope or step.mode_step:
            return None
        rows = step.tensors(regex=(r"_(input|output)_[0-9]+$",))
        slopes = recurrent_slopes(step, rows)
        if not slopes:
            return None
        least = min(slopes, key=lambda slope: (slope.mean, rows.names[slope.at]))
        if least.mean >= self.threshold_slope:
            return Passed()
        message = (
            f"the mean slope of its activations is {least.mean:.3g} of the largest before the "
            f"first step of training, less than {self.threshold_slope:g}"
        )
        return IssueFound(
            evidence(
                step,
                rows,
                least.at,
                measure="mean_slope",
                value=least.mean,
                threshold=self.threshold_slope,
                message=message,
                remedy=_REMEDY,
            )
        )

    def _of_layers(self, step: StepView) -> Outcome:
        """Judge what goes into layers of tanh and sigmoid."""
        of_layers = tuple(f"{layer}_input" for layer in _LAYERS)
        rows = step.tensors(
            collections=(*of_layers, *self.collection_names), regex=self.tensor_regex
        )
        if not len(rows):
            return NotEvaluated(
                "no input of a tanh or sigmoid layer was saved in the collections "
                f"{', '.join((*of_layers, *self.collection_names))}, nor by tensor_regex: ask for "
                "these collections, which tanh and sigmoid fill, layers and functions"
            )
        layers = _layers_of(step, rows)
        saturated = self._percentages(step, rows, layers)
        if np.isnan(saturated).all():
            return NotEvaluated(
                f"no input of a tanh or sigmoid layer, such as {min(rows.names)}, was saved with "
                "the values of a batch and is known to be the one or the other"
            )
        if not self.judge_answers and np.nanmax(saturated) > self.threshold_layer:
            saturated[gives_good_answers(step, rows)] = 0.0
        at = worst(rows, saturated, largest=True)
        if saturated[at] <= self.threshold_layer:
            return Passed()
        low, high = self._limits[layers[at]]
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="saturated_units_percent",
                value=saturated[at],
                threshold=self.threshold_layer,
                message=(
                    f"{saturated[at]:.4g} % of the units have less than "
                    f"{self.threshold_inactivity:g} % of their inputs between {low:g} and "
                    f"{high:g}, the limits of {layers[at]}; more than {self.threshold_layer:g} %"
                ),
                remedy=_REMEDY,
            )
        )

    @property
    def _limits(self) -> dict[str, tuple[float, float]]:
        return {
            "tanh": (self.threshold_tanh_min, self.threshold_tanh_max),
            "sigmoid": (self.threshold_sigmoid_min, self.threshold_sigmoid_max),
        }

    def _percentages(
        self, step: StepView, rows: TensorRows, layers: Iterable[str]
    ) -> npt.NDArray[np.float64]:
        """Return the share of saturated units of each row [R], NaN where it is not known."""
        limits = np.array([self._limits.get(layer, (np.nan, np.nan)) for layer in layers])
        low, high = limits[:, 0], limits[:, 1]
        saturated = np.full(len(rows), np.nan)
        is_within = (rows.column("min") > low) & (rows.column("max") < high)
        saturated[is_within & (rows.column("inf") == 0)] = 0.0
        unknown = np.flatnonzero(np.isnan(saturated) & ~np.isnan(low))
        for i, value in row_values(step, rows.select(unknown)):
            if value.dtype.kind not in "biuf":
                continue
            at = unknown[i]
            is_inside = ~((value <= low[at]) | (value >= high[at]))
            for axis in unit_axes(value.shape):
                is_saturated = unit_percentages(is_inside, axis) < self.threshold_inactivity
                percent = 100.0 * np.count_nonzero(is_saturated) / len(is_saturated)
                saturated[at] = np.fmax(saturated[at], percent)
        return saturated


def _layers_of(step: StepView, rows: TensorRows) -> list[str]:
    """Return tanh or sigmoid for each row [R]; "" where neither collection nor name tells it."""
    of_layer = {}
    for layer in _LAYERS:
        members = step.tensors(collections=(f"{layer}_input",))
        of_layer[layer] = set(zip(members.names, members.workers, strict=True))
    found = []
    for name, worker in zip(rows.names, rows.workers, strict=True):
        by_type = [layer for layer in _LAYERS if (name, worker) in of_layer[layer]]
        by_name = [layer for layer in _LAYERS if layer in name.casefold()]
        found.append(next(iter([*by_type, *by_name]), ""))
    return found
