"""SaturatedActivation: a tanh or sigmoid layer most of whose units are at their limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.saturation import saturated_units
from rule_runtime.engine.findings import finding
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import AtLeast, AtMost, Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import saved_every, selected_collections
from rule_runtime.facts.layer_names import LayerKinds
from rule_runtime.facts.layers import Signals, tensor_fingerprints
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.tensor_rows import worst
from rule_runtime.trial.value_pairs import row_values

__all__ = ["SaturatedActivation"]

_SATURATING: Final = ("tanh", "sigmoid")
"""The activations that saturate; the hook fills the collections `{kind}_input` by type."""
_OF_OUTPUTS: Final = (
    *saved_every(10, "module_io"),
    *saved_every(500, "tanh_output", "sigmoid_output"),
    *saved_every(10, "loss_inputs"),
)
"""Collections for a rule that uses outputs of activations."""
_OF_RECURRENT_LAYERS: Final = (*saved_every(10, "module_io"), *saved_every(500, "weights"))
"""Collections for a rule that uses recurrent layers."""
_HIDDEN: Final = ".weight_hh"
_WEIGHTS: Final = r"^(?!gradient/).*\.weight_hh(_l[0-9]+)?(_reverse)?$"
_OUTPUTS: Final = r"_output(_[0-9]+|/[0-9]+)$"
_INPUT: Final = re.compile(r"_input(?=[_/][0-9]+$)")
_OF_LOSS: Final = r"[Ll]oss_input_0$"
_INPUTS: Final = tuple(f"{kind}_input" for kind in _SATURATING)
_VALUES: Final = {"save_interval": "500", "save_raw_tensor": "True"}
_REGEX: Final = (".*tanh_input|.*sigmoid_input",)
_INSIDE: Final = (
    "only the output of the layer {} was saved, which applies {} inside: give the activation a "
    "layer of its own"
)
_NONE: Final = "no values of inputs of tanh or sigmoid layers were saved (collections {})"
_SAVE: Final = "the model has none, or save their values (save_raw_tensor)"


class SaturatedActivation(Rule):
    """Detects tanh and sigmoid layers most of whose units are saturated.

    How it decides:
        A unit is saturated if less than `threshold_inactivity` percent of its inputs lie between
        the limits of its activation. The rule reports the layer with the largest share of them, if
        that is above `threshold_layer`.

    Parameters:
        collection_names: Collections to evaluate besides `tanh_input` and `sigmoid_input`.
        tensor_regex: Regular expressions of further inputs to evaluate.
        threshold_tanh_min: Lower limit of inputs of tanh.
        threshold_tanh_max: Upper limit of inputs of tanh.
        threshold_sigmoid_min: Lower limit of inputs of sigmoid.
        threshold_sigmoid_max: Upper limit of inputs of sigmoid.
        threshold_inactivity: Minimum share of inputs within the limits.
        threshold_layer: Maximum share of saturated units.
        check_outputs: True to evaluate activations whose output goes into a loss.
        threshold_slope: Minimum mean slope of a recurrent layer at step 0; 0 for any.

    What to try:
        Use a Xavier initialisation, normalise inputs and activations, lower the learning rate, or
        use ReLU or GELU.
    """

    collection_names: tuple[str, ...] = ()
    tensor_regex: Annotated[tuple[str, ...], Regex()] = _REGEX
    threshold_tanh_min: Annotated[float, Unit("input")] = -9.4999
    threshold_tanh_max: Annotated[float, Unit("input")] = 9.4999
    threshold_sigmoid_min: Annotated[float, Unit("input")] = -23.0
    threshold_sigmoid_max: Annotated[float, Unit("input")] = 16.99999
    threshold_inactivity: Annotated[float, AtLeast(0), AtMost(100), Unit("%")] = 1.0
    threshold_layer: Annotated[float, AtLeast(0), AtMost(100), Unit("%")] = 50.0
    check_outputs: bool = True
    threshold_slope: Annotated[float, AtLeast(0), AtMost(1)] = 0.0

    only_training = "steps of mode {} are not evaluated"
    former_names = (("judge_answers", "check_outputs"),)

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
        of_layers = [CollectionConfig(n, _VALUES) for n in _INPUTS]
        named = [name for name in self.collection_names if name not in _INPUTS]
        regex = () if self.tensor_regex == _REGEX else self.tensor_regex
        return (
            *of_layers,
            *selected_collections("SaturatedActivation", named, regex, _VALUES),
            *(_OF_RECURRENT_LAYERS if self.threshold_slope else ()),
            *(() if self.check_outputs else _OF_OUTPUTS),
        )

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the largest share of saturated units of the step with the threshold."""
        of_layers, limit = self._of_layers(step), self.threshold_slope
        if not limit or step.mode_step or isinstance(of_layers, IssueFound):
            return of_layers
        rows, slopes = step.fact(Signals).rows, _recurrent_slopes(step)
        if np.isnan(slopes).all():
            return of_layers
        at = worst(rows, slopes, largest=False)
        if slopes[at] >= limit:
            return Passed()
        message = f"the mean slope of its activations is {slopes[at]:.3g}, below {limit:g}"
        return finding(self, step, (rows, at), ("mean_slope", slopes[at], limit), message)

    def _of_layers(self, step: StepView) -> Outcome:
        """Evaluate the inputs of tanh and sigmoid."""
        names = (*_INPUTS, *self.collection_names)
        rows = step.tensors(collections=names, regex=self.tensor_regex)
        limit, least = self.threshold_layer, self.threshold_inactivity
        bounds = _bounds_of(step, rows, self._limits)
        low, high = bounds.T
        is_fine = (rows.column("min") > low) & (rows.column("max") < high)
        is_fine &= rows.column("inf") == 0
        if not self.check_outputs:
            is_fine |= _are_answers(step, rows)
        saturated = np.where(is_fine, 0.0, np.nan)
        beyond = np.flatnonzero(~is_fine & ~np.isnan(low))
        for number, value in row_values(step, rows.select(beyond)):
            saturated[beyond[number]] = saturated_units(value, bounds[beyond[number]], least)
        if np.isnan(saturated).all():
            inside = step.fact(LayerKinds).with_activation_inside(_SATURATING)
            none = f"{_NONE.format(', '.join(names))}: {step.how_to_save(rows.names, _SAVE)}"
            return NotEvaluated(_INSIDE.format(*inside[0]) if inside else none)
        at = worst(rows, saturated, largest=True)
        share = saturated[at]
        if share <= limit:
            return Passed()
        message = f"{share:.4g} % of the units have less than {least:g} % of their inputs between "
        message += f"{low[at]:g} and {high[at]:g}; more than {limit:g} %"
        return finding(self, step, (rows, at), ("saturated_units_percent", share, limit), message)

    @property
    def _limits(self) -> dict[str, tuple[float, float]]:
        tanh = (self.threshold_tanh_min, self.threshold_tanh_max)
        return {"tanh": tanh, "sigmoid": (self.threshold_sigmoid_min, self.threshold_sigmoid_max)}


def _bounds_of(
    step: StepView, rows: TensorRows, limits: Mapping[str, tuple[float, float]]
) -> npt.NDArray[np.float64]:
    """Return the limits of each input; NaN if it is not an input of tanh or sigmoid [R, 2].

    The collection, otherwise the name, shows the activation. `tanh` and `sigmoid` are not saturated
    for inputs between the limits.
    """
    pairs = {kind: {*step.tensors(collections=(f"{kind}_input",)).pairs} for kind in _SATURATING}
    found = np.full((len(rows), 2), np.nan)
    for at, pair in enumerate(rows.pairs):
        by_type = [kind for kind in _SATURATING if pair in pairs[kind]]
        by_name = [kind for kind in _SATURATING if kind in pair[0].casefold()]
        for kind in (by_type or by_name)[:1]:
            found[at] = limits[kind]
    return found


def _are_answers(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Return for which inputs of modules and functions the output goes into a loss [R]."""
    outputs, compared = step.tensors(regex=(_OUTPUTS,)), step.tensors(regex=(_OF_LOSS,))
    of_outputs, of_losses = tensor_fingerprints(outputs), tensor_fingerprints(compared)
    answers = {*outputs.select(np.isin(of_outputs, of_losses)).pairs}
    named = [(_INPUT.sub("_output", name), worker) for name, worker in rows.pairs]
    return np.array([pair in answers for pair in named], dtype=np.bool_)


def _recurrent_slopes(step: StepView) -> npt.NDArray[np.float64]:
    """Return the mean slope of the activations of recurrent layers, relative to the largest [S].

    The step is the first of its mode. The slope is NaN for `Signals` that no recurrent layer
    returned. A tanh with the output h has the slope 1 - h^2. Outputs between -1 and 1 count as
    outputs of tanh: those of a GRU are, and those of an LSTM are smaller.
    """
    signals, weights = step.fact(Signals), step.tensors(regex=(_WEIGHTS,))
    rows = signals.rows
    slopes = 1 - rows.column("mean") ** 2 - rows.column("std") ** 2
    owners = {name.rpartition(_HIDDEN)[0] for name in weights.names}
    is_recurrent = [
        place.kind == "output"
        and any(o == place.module or o.endswith(f"_{place.module}") for o in owners)
        for place in signals.places
    ]
    is_tanh = (rows.column("min") >= -1) & (rows.column("max") <= 1)
    return np.where(is_tanh & np.array(is_recurrent, dtype=np.bool_), slopes, np.nan)
