"""What the images hold is compared with the trial's own values."""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hook_layer.format.modes import ModeKeys
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.errors import TensorUnavailable, TensorUnavailableForStep
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.outcomes import make_run


def opened(builder: TrialBuilder) -> Trial:
    builder.end()
    return Trial(builder.store, name="t")


def grid_of(figure: Figure) -> list[list[Axes]]:
    """Return the axes with images by row: a row begins where the step is written."""
    rows: list[list[Axes]] = []
    for axes in figure.axes:
        if axes.get_label() == "<colorbar>":
            continue
        if axes.get_ylabel():
            rows.append([])
        rows[-1].append(axes)
    return rows


def image_of(axes: Axes) -> Any:
    (image,) = axes.get_images()
    return np.ma.filled(np.ma.asarray(image.get_array(), np.float64), np.nan)


def test_kernels_of_a_real_training_over_its_steps(cnn: Trial) -> None:
    weight = cnn.tensor("Net_conv.weight")
    figure = cnn.plot_kernels("Net_conv.weight", mode=ModeKeys.TRAIN)
    rows = grid_of(figure)
    steps = [int(row[0].get_ylabel()) for row in rows]
    assert steps == weight.steps(ModeKeys.TRAIN)
    for step, row in zip(steps, rows, strict=True):
        value = weight.value(step, ModeKeys.TRAIN)
        assert len(row) == 4
        for kernel, axes in enumerate(row):
            np.testing.assert_array_equal(image_of(axes), value[kernel, 0])
    (low, high) = rows[0][0].get_images()[0].get_clim()
    largest = max(np.abs(weight.value(step, ModeKeys.TRAIN)).max() for step in steps)
    assert (low, high) == pytest.approx((-largest, largest))
    figure.savefig(BytesIO(), format="png")


def test_activations_of_a_real_training(cnn: Trial) -> None:
    output = cnn.tensor("conv_output_0")
    last = output.steps()[-1]
    figure = cnn.plot_activations("conv_output_0", steps=[0, last], example=3, max_channels=2)
    rows = grid_of(figure)
    assert [row[0].get_ylabel() for row in rows] == ["0", str(last)]
    for step, row in zip([0, last], rows, strict=True):
        assert len(row) == 2
        for channel, axes in enumerate(row):
            np.testing.assert_array_equal(image_of(axes), output.value(step)[3, channel])
    title = figure.get_suptitle()
    assert "example 3 of 50" in title
    assert "2 of 4 channels" in title


def test_of_many_steps_six_between_the_first_and_the_last() -> None:
    builder = TrialBuilder()
    for step in range(101):
        builder.step(step, {"w": np.full((2, 1, 3, 3), step)}, save_values=step % 10 == 0)
    figure = opened(builder).plot_kernels("w")
    assert [row[0].get_ylabel() for row in grid_of(figure)] == ["0", "20", "40", "60", "80", "100"]


def test_other_shapes() -> None:
    builder = TrialBuilder()
    rng = np.random.default_rng(0)
    tensors = {
        "linear": rng.normal(size=(4, 6)),
        "deep": rng.normal(size=(2, 3, 5, 5)),
        "last": rng.normal(size=(2, 8, 9, 3)),
        "grey": rng.normal(size=(2, 8, 9)),
    }
    builder.step(0, tensors)
    trial = opened(builder)

    def drawn(figure: Figure) -> list[Any]:
        return [image_of(axes) for row in grid_of(figure) for axes in row]

    np.testing.assert_array_equal(drawn(trial.plot_kernels("linear")), [tensors["linear"]])
    deep = trial.plot_kernels("deep", channel=2)
    np.testing.assert_array_equal(drawn(deep), tensors["deep"][:, 2])
    assert "channel in 2 of 3" in deep.get_suptitle()
    last = trial.plot_activations("last", example=1, channels_last=True)
    np.testing.assert_array_equal(drawn(last), np.moveaxis(tensors["last"][1], -1, 0))
    np.testing.assert_array_equal(drawn(trial.plot_activations("grey")), tensors["grey"][:1])


def test_what_is_not_finite_has_a_colour_of_its_own() -> None:
    builder = make_run(
        {"w": np.array([[1.0, math.nan], [math.inf, 2.0]])}, {"w": np.full((2, 2), math.nan)}
    )
    figure = opened(builder).plot_kernels("w")
    first = image_of(grid_of(figure)[0][0])
    np.testing.assert_array_equal(first, [[1, math.nan], [math.nan, 2]])
    assert "pink: not finite" in figure.get_suptitle()
    figure.savefig(BytesIO(), format="png")


def test_what_is_no_image_is_refused() -> None:
    builder = TrialBuilder()
    tensors = {
        "flat": np.ones(3),
        "none": np.empty((0, 2)),
        "text": np.array(["a"]),
        "deep": np.ones((2, 3, 4, 4)),
    }
    builder.step(0, tensors)
    builder.step(1, {"reported": np.ones((2, 2))}, save_values=False)
    trial = opened(builder)
    for name in ("flat", "none", "text"):
        with pytest.raises(ValueError, match=f"{name} has the shape .* cannot be drawn"):
            trial.plot_kernels(name)
    with pytest.raises(ValueError, match="no channel 3 among 3"):
        trial.plot_kernels("deep", channel=3)
    with pytest.raises(ValueError, match="no example 2 among 2"):
        trial.plot_activations("deep", example=2)
    with pytest.raises(ValueError, match="value of reported was not saved so far; save_raw_tensor"):
        trial.plot_activations("reported")
    with pytest.raises(TensorUnavailableForStep):
        trial.plot_activations("reported", steps=[1])
    with pytest.raises(TensorUnavailable):
        trial.plot_kernels("nothing")
