"""CheckInputImages: images that were not normalised before they entered the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Evidence, IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["CheckInputImages"]

_MAX_TENSORS: Final = 4
_MAX_CHANNELS: Final = 256
_MIN_AXES: Final = 3

_REMEDY: Final = (
    "Subtract each channel's mean over the training images, and divide by its standard deviation, "
    "in training and in evaluation alike."
)


class CheckInputImages(Rule):
    """Finds images whose channels do not have a mean close to zero.

    How it decides:
        The mean of each channel is taken over the elements of all images saved so far, of all
        workers and modes together; the first axis counts images, the axis `channel` channels. From
        `threshold_samples` images on, abs(mean) strictly above `threshold_mean` fires, in any
        channel. The channel farthest from zero is the evidence. Elements that are not finite are
        left out. A variance other than one is no issue. The images are those of the collection
        `input_image` and those that `regex` finds; its default is the name in MXNet, so with other
        frameworks give the name of the first layer's input, e.g. `conv1_input_0`. Tensors with
        fewer than three axes, or of more than 256 channels, are no images. Of more than 4 inputs
        the first that came are judged.

    Parameters:
        threshold_mean: The largest distance of a channel's mean from zero that is no issue.
        threshold_samples: Images that must have been seen.
        regex: Regular expression of the images; the union with the collection `input_image`.
        channel: Axis of the channels; 1 in [N, C, H, W], 3 in [N, H, W, C].

    What to try:
        Normalisation with the mean and standard deviation of the training images.
    """

    threshold_mean: Annotated[float, AtLeast(0)] = 0.2
    threshold_samples: Annotated[int, AtLeast(1), Unit("images")] = 500
    regex: Annotated[tuple[str, ...], Regex()] = (".*hybridsequential0_input_0",)
    channel: Annotated[int, AtLeast(1), Unit("axis")] = 1

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the collection of the images, with their values."""
        parameters = {"save_interval": "500", "save_raw_tensor": "True"}
        if self.regex:
            parameters["include_regex"] = "|".join(self.regex)
        return (CollectionConfig("input_image", parameters),)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Add the images of the step to the means, and judge them.

        Args:
            step: What was saved at the step.
            memory: `inputs`, by name: number of `images`, and of each channel its mean and number
                of elements; of at most 4 inputs with 256 channels.
        """
        rows = step.tensors(collections=("input_image",), regex=self.regex)
        if not len(rows):
            return NotEvaluated(f"no images were saved, named as {', '.join(self.regex)}")
        inputs: dict[str, dict[str, Any]] = memory.setdefault("inputs", {})
        workers: dict[str, str] = {}
        reason = ""
        for name, worker in sorted(zip(rows.names, rows.workers, strict=True)):
            if name not in inputs and len(inputs) >= _MAX_TENSORS:
                continue
            images = step.values((name,), worker).get(name)
            problem = self._problem(images, inputs.get(name))
            if images is None or problem:
                reason = reason or f"{name}: {problem}"
                continue
            of_input = inputs.setdefault(name, {"images": 0, "means": [], "elements": []})
            _add(of_input, images, self.channel)
            workers.setdefault(name, worker)
        if not workers:
            return NotEvaluated(reason or f"more than {_MAX_TENSORS} inputs were saved")
        return self._judge(step, inputs, workers)

    def _problem(self, images: npt.NDArray[Any] | None, known: dict[str, Any] | None) -> str:
        if images is None:
            return "its values were not saved"
        if images.dtype.kind not in "biuf" or images.ndim < _MIN_AXES:
            return f"no images, with {images.ndim} axes of type {images.dtype}"
        if images.ndim <= self.channel:
            return f"no axis {self.channel} of channels: its {images.ndim} axes count from 0"
        num_channels = images.shape[self.channel]
        if not images.size or num_channels > _MAX_CHANNELS:
            return f"no images, of shape {list(images.shape)}"
        if known is not None and len(known["means"]) != num_channels:
            return f"{num_channels} channels, and {len(known['means'])} before"
        return ""

    def _judge(
        self, step: StepView, inputs: dict[str, dict[str, Any]], workers: dict[str, str]
    ) -> Outcome:
        enough = [name for name in workers if inputs[name]["images"] >= self.threshold_samples]
        if not enough:
            most = max(inputs[name]["images"] for name in workers)
            return NotEvaluated(f"only {most} of the {self.threshold_samples} images were saved")
        candidates = [
            (-abs(mean), name, number, mean)
            for name in enough
            for number, mean in enumerate(inputs[name]["means"])
            if inputs[name]["elements"][number]
        ]
        if not candidates:
            return NotEvaluated("no element of the images is finite")
        distance, name, number, mean = min(candidates)
        if -distance <= self.threshold_mean:
            return Passed()
        return IssueFound(
            Evidence(
                step=step.step,
                mode=step.mode.name,
                worker=workers[name],
                tensor=name,
                measure="abs_mean_of_channel",
                value=-distance,
                threshold=self.threshold_mean,
                sentence=(
                    f"{name}: channel {number} has the mean {mean:.4g} over "
                    f"{inputs[name]['images']} images, farther from 0 than {self.threshold_mean:g}"
                ),
                remedy=_REMEDY,
            )
        )


def _add(of_input: dict[str, Any], images: npt.NDArray[Any], channel: int) -> None:
    """Add images to the means of their channels."""
    by_channel = np.moveaxis(images, channel, 0).reshape(images.shape[channel], -1)
    is_finite = np.isfinite(by_channel)
    means = of_input["means"] or [0.0] * len(by_channel)
    elements = of_input["elements"] or [0] * len(by_channel)
    for number, (row, known) in enumerate(zip(by_channel, is_finite, strict=True)):
        finite = row[known].astype(np.float64)
        if not finite.size:
            continue
        elements[number] += finite.size
        share = finite.size / elements[number]
        # Shares of a mean, for a sum of all elements loses bits, or overflows.
        scale = float(np.abs(finite).max()) or 1.0
        mean = float((finite / scale).mean()) * scale
        means[number] = means[number] * (1 - share) + mean * share
    of_input.update(images=of_input["images"] + images.shape[0], means=means, elements=elements)
