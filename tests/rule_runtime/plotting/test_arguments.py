"""What all functions that draw take, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from hook_layer.format.modes import ModeKeys
from rule_runtime.trial.trial import Trial

TRAIN = ModeKeys.TRAIN
KERNELS = "Net_conv.weight"

OF_A_NETWORK: dict[str, Callable[..., Figure]] = {
    "plot": lambda trial, **options: trial.plot(**options),
    "plot_collection": lambda trial, **options: trial.plot_collection("losses", **options),
    "plot_activations": lambda trial, **options: trial.plot_activations(KERNELS, **options),
    "plot_kernels": lambda trial, **options: trial.plot_kernels(KERNELS, **options),
}
OF_BOOSTING: dict[str, Callable[..., Figure]] = {
    "plot_metrics": lambda trial, **options: trial.plot_metrics(**options),
    "plot_feature_importance": lambda trial, **options: trial.plot_feature_importance(**options),
    "plot_average_shap": lambda trial, **options: trial.plot_average_shap(**options),
    "plot_full_shap": lambda trial, **options: trial.plot_full_shap(**options),
}


def titles(figure: Any) -> list[str]:
    """Return all titles of a figure, also within its parts."""
    parts = [figure, *figure.subfigs]
    found = [part.get_suptitle() for part in parts]
    return found + [axes.get_title(loc="left") for axes in figure.axes]


@pytest.mark.parametrize("name", [*OF_A_NETWORK, *OF_BOOSTING])
def test_every_picture_has_a_title_and_a_place(name: str, cnn: Trial, binary: Trial) -> None:
    trial = cnn if name in OF_A_NETWORK else binary
    draw = {**OF_A_NETWORK, **OF_BOOSTING}[name]
    assert any("mine, $5_a" in t.replace("\\", "") for t in titles(draw(trial, title="mine, $5_a")))
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    right.plot([1, 2])
    assert draw(trial, ax=left, title="mine") is figure
    assert any("mine" in title for title in titles(figure))
    assert right in figure.axes
    assert any(axes.has_data() for axes in figure.axes if axes is not right)
    figure.savefig(BytesIO(), format="png")


def test_several_pictures_need_axes_of_a_grid(binary: Trial) -> None:
    axes = Figure().add_axes((0.1, 0.1, 0.5, 0.5))
    with pytest.raises(ValueError, match=r"ax must be created by subplots\(\)"):
        binary.plot_metrics(ax=axes)


def test_the_title_may_be_left_out(cnn: Trial) -> None:
    assert cnn.plot(title="").axes[0].get_title(loc="left") == ""


def test_tensors_are_taken_as_their_names_are(cnn: Trial) -> None:
    weight, bias = cnn.tensor(KERNELS), cnn.tensor("Net_fc.weight")

    def drawn(figure: Figure) -> list[Any]:
        return [line.get_xydata().tolist() for line in figure.axes[0].get_lines()]

    assert drawn(cnn.plot(weight)) == drawn(cnn.plot(KERNELS))
    assert drawn(cnn.plot([weight, "Net_fc.weight"])) == drawn(cnn.plot([KERNELS, bias]))
    for plot in (cnn.plot_kernels, cnn.plot_activations):
        images = [
            plot(tensor, mode=TRAIN).axes[0].get_images()[0].get_array()
            for tensor in (weight, KERNELS)
        ]
        np.testing.assert_array_equal(*images)
    for wrong in (3, [weight, None]):
        with pytest.raises(TypeError, match=r"is not a tensor; give its name, or trial\.tensor"):
            cnn.plot(wrong)
        with pytest.raises(TypeError, match="is not a tensor"):
            cnn.plot_kernels(wrong)


@pytest.mark.parametrize("kind", [int, np.int64])
def test_a_single_step_is_taken(cnn: Trial, kind: Callable[[int], int]) -> None:
    step = cnn.tensor(KERNELS).steps()[0]
    for plot in (cnn.plot_kernels, cnn.plot_activations):
        figure = plot(KERNELS, steps=kind(step))
        labels = [axes.get_ylabel() for axes in figure.axes]
        assert [label for label in labels if label.isdigit()] == [str(step)]
        with pytest.raises(ValueError, match="steps is empty"):
            plot(KERNELS, steps=[])


@pytest.mark.parametrize("count", [0, -1, 1.5, "3", None])
def test_to_draw_nothing_is_refused(cnn: Trial, binary: Trial, count: Any) -> None:
    for name in ("plot_feature_importance", "plot_average_shap", "plot_full_shap"):
        with pytest.raises(ValueError, match=r"max_features must be an integer >= 1, not "):
            getattr(binary, name)(max_features=count)
    with pytest.raises(ValueError, match="max_channels must be an integer >= 1"):
        cnn.plot_activations(KERNELS, max_channels=count)
    with pytest.raises(ValueError, match="max_kernels must be an integer >= 1"):
        cnn.plot_kernels(KERNELS, max_kernels=count)


def test_a_picture_has_one_statistic(cnn: Trial) -> None:
    statistics: Any = ["mean", "std"]
    with pytest.raises(ValueError, match=r"valid are value, .*a picture shows one of them"):
        cnn.plot(statistic=statistics)
    with pytest.raises(ValueError, match=r"no statistic 'avg'; valid are value, size.*l2$"):
        cnn.plot(statistic="avg")
