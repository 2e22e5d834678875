"""What the lines of a picture hold is compared with the trial's own answers."""

from __future__ import annotations

import math
import sys
from io import BytesIO

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from hook_layer.format.modes import ModeKeys
from hook_layer.format.reductions import reduction_tensor_name
from rule_runtime.plotting import plot_collection, plot_tensors
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.errors import InvalidWorker, TensorUnavailable
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.outcomes import make_run

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL


def opened(builder: TrialBuilder) -> Trial:
    builder.end()
    return Trial(builder.store, name="t")


def lines_of(figure: Figure) -> dict[str, tuple[list[float], list[float]]]:
    """Return x and y of every line of the first axes by label."""
    return {
        str(line.get_label()): (
            np.asarray(line.get_xdata()).tolist(),
            np.asarray(line.get_ydata()).tolist(),
        )
        for line in figure.axes[0].get_lines()
    }


def legend_of(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def test_the_losses_are_what_is_drawn_of_a_real_training(cnn: Trial) -> None:
    figure = cnn.plot()
    lines = lines_of(figure)
    assert set(lines) == {"CrossEntropyLoss_output_0 TRAIN", "CrossEntropyLoss_output_0 EVAL"}
    loss = cnn.tensor("CrossEntropyLoss_output_0")
    for mode in (TRAIN, EVAL):
        steps = [cnn.global_step(mode, step) for step in loss.steps(mode)]
        x, y = lines[f"CrossEntropyLoss_output_0 {mode.name}"]
        assert x == steps
        np.testing.assert_allclose(y, [float(loss.value(step)) for step in x])
    axes = figure.axes[0]
    assert axes.get_title(loc="left") == "cnn"
    assert axes.get_xlabel() == "step, of all modes"
    assert axes.get_ylabel() == "value"


def test_of_tensors_with_more_elements_the_mean_or_what_is_asked_for(cnn: Trial) -> None:
    weight = cnn.tensor("Net_conv.weight")
    x, y = lines_of(cnn.plot("Net_conv.weight", mode=TRAIN))["Net_conv.weight"]
    assert x == weight.steps(TRAIN)
    np.testing.assert_allclose(y, [weight.value(s, TRAIN).mean() for s in x], rtol=1e-5)
    figure = cnn.plot(["Net_conv.weight", "Net_fc.weight"], statistic="l2", mode=TRAIN)
    _, y = lines_of(figure)["Net_conv.weight"]
    np.testing.assert_allclose(y, [np.linalg.norm(weight.value(s, TRAIN)) for s in x], rtol=1e-5)
    assert figure.axes[0].get_ylabel() == "Euclidean norm (l2)"
    assert figure.axes[0].get_xlabel() == "step of TRAIN"


def test_a_collection_and_of_it_what_a_pattern_finds(cnn: Trial) -> None:
    figure = cnn.plot_collection("gradients", "weight$", statistic="abs_mean", log=True)
    assert set(lines_of(figure)) == {"gradient/Net_conv.weight", "gradient/Net_fc.weight"}
    assert figure.axes[0].get_yscale() == "log"
    assert figure.axes[0].get_title(loc="left") == "cnn: gradients"
    assert len(lines_of(plot_collection(cnn, "gradients"))) == 4
    both = cnn.plot("gradient/Net_fc.bias", regex="weight", collection="gradients")
    assert set(lines_of(both)) == set(lines_of(figure)) | {"gradient/Net_fc.bias"}
    with pytest.raises(ValueError, match="4 were saved of the collection 'gradients'"):
        plot_collection(cnn, "gradients", "nowhere")


def test_pyplot_neither_knows_nor_keeps_it(cnn: Trial) -> None:
    figures = [cnn.plot() for _ in range(3)]
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()
    data = figures[0]._repr_png_()  # type: ignore[attr-defined]
    assert data.startswith(b"\x89PNG")


def test_it_draws_on_axes_that_are_given(cnn: Trial) -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot_tensors(cnn, ax=left) is figure
    assert cnn.plot_collection("weights", ax=right) is figure
    assert len(left.get_lines()) == 2
    assert len(right.get_lines()) == 4


def test_a_number_that_is_not_finite_is_a_gap_with_a_cross() -> None:
    builder = make_run(
        *({"loss": np.float32(number)} for number in [1.0, math.nan, 3.0, math.inf, -math.inf, 2.0])
    )
    figure = opened(builder).plot("loss")
    lines = lines_of(figure)
    np.testing.assert_array_equal(lines["loss"][1], [1, math.nan, 3, math.nan, math.nan, 2])
    assert lines["not finite"][0] == [1, 3, 4]
    assert figure.axes[0].get_xlabel() == "step"
    assert legend_of(figure.axes[0]) == ["loss", "not finite"]


def test_many_lines_some_have_names_and_the_rest_is_reported() -> None:
    builder = TrialBuilder()
    for step in range(3):
        tensors = {f"t{at:03d}": np.float64(at + step) for at in range(30)}
        builder.step(step, tensors | {"t029": np.float64(math.nan if step == 1 else 7.0)})
    axes = opened(builder).plot(regex="t").axes[0]
    named = [str(line.get_label()) for line in axes.get_lines()]
    assert named == [*(f"t{at:03d}" for at in range(19)), "t029", "not finite"]
    (grey,) = (child for child in axes.collections if isinstance(child, LineCollection))
    segments = grey.get_segments()
    assert len(segments) == 10
    np.testing.assert_array_equal(segments[0], [[0, 19], [1, 20], [2, 21]])
    assert legend_of(axes)[-2:] == ["10 more", "not finite"]


def test_the_grey_lines_are_in_sight() -> None:
    builder = make_run(
        *({f"t{at:03d}": np.float64(at * 100) for at in range(40)} for _ in range(2))
    )
    axes = opened(builder).plot(regex="t").axes[0]
    assert axes.get_ylim()[1] >= 3900


def test_workers_have_lines_of_their_own() -> None:
    builder = TrialBuilder(num_workers=2)
    for step in range(2):
        for worker in (0, 1):
            builder.step(step, {"loss": np.float64(step + 10 * worker)}, worker=f"worker_{worker}")
    trial = opened(builder)
    lines = lines_of(trial.plot("loss"))
    assert lines == {"loss worker_0": ([0, 1], [0, 1]), "loss worker_1": ([0, 1], [10, 11])}
    assert list(lines_of(trial.plot("loss", worker="worker_1"))) == ["loss"]
    with pytest.raises(InvalidWorker):
        trial.plot("loss", worker="worker_2")


def test_what_a_logarithm_cannot_show_is_reported() -> None:
    builder = make_run(*({"loss": np.float64(number)} for number in [1.0, 0.0, -2.0, 10.0]))
    figure = opened(builder).plot("loss", log=True)
    assert legend_of(figure.axes[0]) == ["loss", "2 numbers <= 0 not shown"]
    figure.savefig(BytesIO(), format="png")


@pytest.mark.parametrize("name", ["a$\\frac{$", "_hidden", "x" * 500, "line\nfeed", "<b>&"])
def test_any_name_can_be_drawn(name: str) -> None:
    builder = make_run({name: np.float64(1)}, {name: np.float64(2)})
    figure = Trial(builder.store, name=name).plot(name)
    figure.savefig(BytesIO(), format="svg")
    axes = figure.axes[0]
    assert len(axes.get_lines()) == 1
    assert len(legend_of(axes)) == 1
    assert len(legend_of(axes)[0]) <= 70


def test_what_cannot_be_drawn_is_refused_with_what_can() -> None:
    trial = opened(make_run({"weight": np.ones(3)}))
    with pytest.raises(ValueError, match=r"no loss was saved .* e\.g\. of weight"):
        trial.plot()
    with pytest.raises(ValueError, match="matches 'bias'"):
        trial.plot(regex="bias")
    with pytest.raises(ValueError, match="no statistic 'median'; valid are value"):
        trial.plot("weight", statistic="median")
    with pytest.raises(ValueError, match="no tensor of weight has one element"):
        trial.plot("weight", statistic="value")
    with pytest.raises(TensorUnavailable, match="nothing"):
        trial.plot("nothing")


def test_asked_for_values_it_draws_those_that_have_one() -> None:
    builder = make_run({"weight": np.ones(3), "loss": np.float64(1)})
    assert list(lines_of(opened(builder).plot(regex=".", statistic="value"))) == ["loss"]


def test_statistics_are_drawn_though_no_value_was_saved() -> None:
    builder = make_run(
        *({f"g{at}": np.ones(2) * step for at in range(50)} for step in range(50)),
        save_values=False,
    )
    figure = opened(builder).plot(regex="g", statistic="max")
    assert lines_of(figure)["g0"][1] == list(range(50))


def test_of_a_mode_that_has_not_begun_there_is_a_picture_that_says_so() -> None:
    figure = opened(make_run({"loss": np.float64(1)})).plot("loss", mode=EVAL)
    assert [text.get_text() for text in figure.axes[0].texts] == ["nothing was saved so far"]


def of_reductions(**means: list[float]) -> TrialBuilder:
    """Return a run of the original client that saved mean magnitudes only."""
    builder = TrialBuilder(run=None)
    builder.collections(gradients=("^gradient/",))
    for step in range(2):
        names = {name: f"gradient/{name}" for name in means}
        builder.step(
            step,
            {
                reduction_tensor_name(names[name], "mean", absolute=True): np.float32(mean[step])
                for name, mean in means.items()
            },
        )
    return builder


def test_what_was_not_saved_is_no_infinity() -> None:
    trial = opened(of_reductions(a=[1.0, 2.0], b=[3.0, math.nan]))
    figure = trial.plot_collection("gradients")
    assert figure.axes[0].get_ylabel() == "mean magnitude of the elements"
    lines = lines_of(figure)
    assert lines["gradient/a"] == ([0, 1], [1, 2])
    assert lines["not finite"][0] == [1]
    with pytest.raises(ValueError, match="l2 of gradient/a was not saved; abs_mean was"):
        trial.plot("gradient/a", statistic="l2")
    with pytest.raises(ValueError, match="value of gradient/a was not saved; abs_mean was"):
        trial.plot("gradient/a", statistic="value")


def test_of_several_tensors_those_are_drawn_that_have_the_number() -> None:
    builder = of_reductions(a=[1.0, 2.0])
    for step in range(2):
        builder.step(step, {"x": np.array([3.0, 4.0])}, worker="worker_1")
    axes = opened(builder).plot(regex=".", statistic="l2").axes[0]
    assert list(lines_of(axes.figure)) == ["x worker_1"]
    assert legend_of(axes) == ["x worker_1", "1 more: it was not saved"]


def test_gradients_by_their_magnitudes_and_others_by_their_mean(cnn: Trial) -> None:
    labels = [
        cnn.plot(regex=regex).axes[0].get_ylabel() for regex in ("^gradient/", "weight$", "Loss")
    ]
    assert labels == ["mean magnitude of the elements", "mean of the elements", "value"]


def test_names_with_numbers_are_in_their_order() -> None:
    builder = TrialBuilder(num_workers=11)
    for worker in range(11):
        builder.step(0, {"l10": 1.0, "l2": 1.0, "l": 1.0}, worker=f"worker_{worker}")
    trial = opened(builder)
    one = legend_of(trial.plot(regex=".", worker="worker_0").axes[0])
    assert one == ["l", "l2", "l10"]
    several = legend_of(trial.plot("l").axes[0])
    assert several == [f"l worker_{worker}" for worker in range(11)]


def test_lines_of_several_trials_begin_with_their_names() -> None:
    trials = []
    for name, size in (("a", 1), ("b", 1), ("c", 2)):
        builder = TrialBuilder()
        builder.collections(losses=("loss",))
        builder.step(0, {"loss": [2.0] * size})
        trials.append(Trial(builder.store, name=name))
    figure = plot_tensors(trials[:2])
    assert lines_of(figure) == {"a: loss": ([0], [2.0]), "b: loss": ([0], [2.0])}
    assert figure.axes[0].get_title(loc="left") == ""
    assert set(lines_of(plot_tensors(trials, statistic="mean"))) == {f"{of}: loss" for of in "abc"}
    with pytest.raises(ValueError, match="no tensor of loss has one element"):
        plot_tensors(trials)  # all have the statistic of the first one
