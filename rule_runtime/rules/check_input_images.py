"""CheckInputImages: detects images that are not normalised to a mean of zero."""

from __future__ import annotations

from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import Missing, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.layers import IMAGE
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.value_pairs import row_values

__all__ = ["CheckInputImages"]

_MAX_INPUTS: Final = 4
_MAX_CHANNELS: Final = 256
"""Maximum number of inputs, and of channels of each, whose means are stored."""


class CheckInputImages(Rule):
    """Detects images that are not normalised to a mean of zero.

    How it decides:
        After `threshold_samples` images, the rule reports the channel whose mean is farthest from
        zero, if that is farther than `threshold_mean`. It ignores the variance.

    Parameters:
        threshold_mean: Largest distance of a channel's mean from zero that passes.
        threshold_samples: Number of images before the rule decides.
        regex: Regular expressions of images besides `input_image`; the default is MXNet's name.
        channel: Axis of the channels; 1 in [N, C, H, W], 3 in [N, H, W, C].

    What to try:
        Subtract the mean of each channel over the training images and divide by its standard
        deviation, in training and in validation.
    """

    threshold_mean: Annotated[float, AtLeast(0)] = 0.2
    threshold_samples: Annotated[int, AtLeast(1), Unit("images")] = 500
    regex: Annotated[tuple[str, ...], Regex()] = (".*hybridsequential0_input_0",)
    channel: Annotated[int, AtLeast(1), Unit("axis")] = 1

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the collection of the images, with their values."""
        names = "|".join(self.regex)
        return saved_every(500, "input_image", save_raw_tensor=True, include_regex=names)

    def needs(self) -> Needs:
        """Return `threshold_samples` images."""
        return Needs(elements=self.threshold_samples, noun="image")

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Add the images of the step to the means, and evaluate them.

        Memory: `inputs` by name: number of `images`; running means and `elements` by channel.
        """
        rows = step.tensors(collections=("input_image",), regex=self.regex)
        if not len(rows):
            raise Missing(f"no images named {', '.join(self.regex)} were saved: set regex")
        inputs: dict[str, Any] = memory.setdefault("inputs", {})
        added: dict[str, int] = {}
        missing = Missing("no values of images were saved", step.how_to_save(rows.names))
        for row, images in row_values(step, rows):
            name = rows.names[row]
            has_room = name in inputs or len(inputs) < _MAX_INPUTS
            if not (has_room and self._are_images(images, inputs.get(name))):
                problem = f"{name}: shape {list(images.shape)} of {images.dtype} is not that of "
                problem += f"images, or their channels changed or are more than {_MAX_CHANNELS}"
                missing = Missing(problem, "set regex and channel")
                continue
            num_channels = images.shape[self.channel]
            new = {"images": 0, "means": [0.0] * num_channels, "elements": [0] * num_channels}
            by_channel = np.moveaxis(images, self.channel, 0).reshape(num_channels, -1)
            _add(inputs.setdefault(name, new), by_channel, len(images))
            added.setdefault(name, row)
        if not added:
            raise missing
        most = max(inputs[name]["images"] for name in added)
        if most < self.threshold_samples:
            raise self.needs().too_few(most)
        return self._judge(step, rows, added, inputs)

    def _judge(
        self, step: StepView, rows: TensorRows, added: dict[str, int], inputs: dict[str, Any]
    ) -> Outcome:
        """Evaluate the inputs of the step; `rows` has their rows by name."""
        means = [
            (abs(mean), name, channel, mean)
            for name in sorted(added, reverse=True)
            if inputs[name]["images"] >= self.threshold_samples
            for channel, mean in enumerate(inputs[name]["means"])
            if inputs[name]["elements"][channel]
        ]
        if not means:
            return NotEvaluated("no element of the images is finite: see the rule NonFinite")
        distance, name, channel, mean = max(means)
        if distance <= self.threshold_mean:
            return Passed()
        message = f"channel {channel} has a mean of {mean:.4g} over {inputs[name]['images']} "
        message += f"images, farther from 0 than {self.threshold_mean:g}"
        measured = ("abs_mean_of_channel", distance, self.threshold_mean)
        return finding(self, step, (rows, added[name]), measured, message)

    def _are_images(self, images: npt.NDArray[Any], known: dict[str, Any] | None) -> bool:
        """Return whether a tensor matches earlier images of its name."""
        is_shaped = images.ndim >= max(IMAGE, self.channel + 1) and images.size > 0
        if not is_shaped or images.dtype.kind not in "biuf":
            return False
        num_channels = images.shape[self.channel]
        num_before = num_channels if known is None else len(known["means"])
        return bool(num_channels == num_before <= _MAX_CHANNELS)


def _add(known: dict[str, Any], by_channel: npt.NDArray[Any], num_images: int) -> None:
    """Add the finite elements of images to the running means of their channels."""
    known["images"] += num_images
    is_finite = np.isfinite(by_channel)
    counts, before = is_finite.sum(1), np.array(known["means"])
    sums = np.where(is_finite, by_channel, 0).sum(1, dtype=np.float64)
    totals = np.maximum(counts + known["elements"], 1)
    known["means"] = (before + (sums - counts * before) / totals).tolist()
    known["elements"] = (counts + known["elements"]).tolist()
