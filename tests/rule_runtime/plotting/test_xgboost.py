"""Pictures of what the real hook for XGBoost saved, compared with the trial's own values."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from rule_runtime import create_trial
from rule_runtime.plotting import IMPORTANCE_TYPES, plot_feature_importance
from rule_runtime.plotting.figures import LINE_COLORS
from rule_runtime.plotting.metrics import split_metric
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.outcomes import make_run
from tests.rule_runtime.real_boosting import SAVED_ROUNDS, write_boosted_trial


def bars_of(axes: Axes) -> dict[str, float]:
    """Return the length of each bar by the name beside it, from above."""
    widths = [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle)]
    names = [label.get_text() for label in axes.get_yticklabels()]
    return dict(zip(names, widths, strict=True))


def saved(trial: Trial, prefix: str, step: int) -> dict[str, float]:
    return {
        name[len(prefix) :]: float(trial.tensor(name).value(step)[0])
        for name in trial.tensor_names(regex=f"^{prefix}")
        if step in trial.tensor(name).steps()
    }


def test_each_metric_has_its_picture_with_a_line_for_each_data(binary: Trial) -> None:
    figure = binary.plot_metrics()
    assert [axes.get_ylabel() for axes in figure.axes] == ["auc", "logloss"]
    for axes in figure.axes:
        assert axes.get_xlabel() == "round"
        lines = {str(line.get_label()): line for line in axes.get_lines()}
        metric = axes.get_ylabel()
        assert set(lines) == {f"train-{metric}", f"validation-{metric}"}
        for name, line in lines.items():
            values = binary.tensor(name).values()
            assert np.asarray(line.get_xdata()).tolist() == list(values) == SAVED_ROUNDS
            np.testing.assert_array_equal(
                np.asarray(line.get_ydata()), [float(value[0]) for value in values.values()]
            )


def test_an_odd_number_of_metrics_leaves_no_empty_picture() -> None:
    builder = make_run(
        {f"train-{metric}": np.array([1.0]) for metric in "abc"}, collections={"metrics": ("-",)}
    )
    figure = Trial(builder.store, name="t").plot_metrics()
    assert [axes.get_ylabel() for axes in figure.axes] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", IMPORTANCE_TYPES)
def test_importances_are_those_of_the_last_round(binary: Trial, kind: str) -> None:
    axes = binary.plot_feature_importance(kind).axes[0]
    expected = saved(binary, f"feature_importance/{kind}/", SAVED_ROUNDS[-1])
    bars = bars_of(axes)
    assert bars == pytest.approx(expected)
    assert list(bars.values()) == sorted(expected.values(), reverse=True)
    assert kind in axes.get_xlabel()


def test_importances_of_another_round_and_the_first_few(binary: Trial) -> None:
    axes = plot_feature_importance(binary, step=0, max_features=1).axes[0]
    expected = saved(binary, "feature_importance/weight/", 0)
    assert list(bars_of(axes).values()) == [max(expected.values())]
    assert f"1 of {len(expected)} features, round 0" in axes.get_title(loc="left")


def test_an_unknown_type_is_refused_with_the_valid_ones(binary: Trial) -> None:
    valid = "weight, gain, cover, total_gain, total_cover"
    with pytest.raises(ValueError, match=f"no importance_type 'wight'; valid are {valid}"):
        binary.plot_feature_importance("wight")


def test_average_shap_without_the_bias(binary: Trial) -> None:
    axes = binary.plot_average_shap(max_features=100).axes[0]
    expected = saved(binary, "average_shap/", SAVED_ROUNDS[-1])
    assert expected.pop("bias")
    assert bars_of(axes) == pytest.approx(expected)


def test_the_colours_of_shap_values_are_named(binary: Trial) -> None:
    for figure in (binary.plot_average_shap(), binary.plot_full_shap()):
        legend = figure.axes[0].get_legend()
        assert legend is not None
        reported = [label.get_text() for label in legend.get_texts()]
        assert reported == ["lowers the prediction", "raises the prediction"]
        colors = [patch.get_facecolor() for patch in legend.get_patches()]
        assert colors[0] == to_rgba(LINE_COLORS[0])
        assert colors[1] == to_rgba(LINE_COLORS[1])
    bars = [b for b in binary.plot_average_shap().axes[0].patches if isinstance(b, Rectangle)]
    assert {b.get_width() < 0 for b in bars if b.get_facecolor() == colors[0]} <= {True}


def shap_points(axes: Axes) -> list[Any]:
    clouds = [child for child in axes.collections if isinstance(child, PathCollection)]
    return [np.asarray(cloud.get_offsets()) for cloud in clouds]


def test_full_shap_shows_every_row_beside_its_feature(binary: Trial) -> None:
    axes = binary.plot_full_shap(max_features=100).axes[0]
    matrix = binary.tensor("full_shap/mean_area").value(SAVED_ROUNDS[-1])
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(names) == matrix.shape[1] - 1
    means = saved(binary, "average_shap/", SAVED_ROUNDS[-1])
    sizes = []
    for at, (name, points) in enumerate(zip(names, shap_points(axes), strict=True)):
        assert len(points) == len(matrix)
        assert points[:, 0].mean() == pytest.approx(means[name], abs=1e-6)
        assert np.abs(points[:, 1] - at).max() <= 0.5
        sizes.append(np.abs(points[:, 0]).mean())
    assert sizes == sorted(sizes, reverse=True)
    assert axes.get_xlabel() == "SHAP value, in units of the prediction's margin"


def test_full_shap_of_one_of_several_classes(multiclass: Trial) -> None:
    axes = multiclass.plot_full_shap(class_index=4, max_features=1).axes[0]
    matrix = multiclass.tensor("full_shap/pixel_0_0").value(SAVED_ROUNDS[-1])[:, 4, :-1]
    (points,) = shap_points(axes)
    largest = np.abs(matrix).mean(axis=0).argmax()
    np.testing.assert_allclose(points[:, 0], matrix[:, largest])
    assert axes.get_title(loc="left").endswith("class 4 of 10")
    with pytest.raises(ValueError, match="no class 10 among 10"):
        multiclass.plot_full_shap(class_index=10)


def test_features_have_names_though_only_one_matrix_was_stored(tmp_path: Path) -> None:
    write_boosted_trial(
        tmp_path / "with",
        "regression",
        include_collections=["average_shap"],
        include_regex="^full_shap/bmi$",
    )
    axes = create_trial(tmp_path / "with").plot_full_shap().axes[0]
    names = {label.get_text() for label in axes.get_yticklabels()}
    assert names == {"age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"}


@pytest.mark.parametrize(
    ("name", "expected"), [("f0", ["f0", "f1", "f2"]), ("x", ["feature 0", "feature 1"])]
)
def test_features_that_no_file_names(name: str, expected: list[str]) -> None:
    builder = TrialBuilder()
    matrix = np.arange(4.0 * (len(expected) + 1)).reshape(4, -1)
    builder.step(0, {f"full_shap/{name}": matrix})
    axes = Trial(builder.store, name="t").plot_full_shap().axes[0]
    assert sorted(label.get_text() for label in axes.get_yticklabels()) == expected


def test_of_very_many_rows_some_are_drawn_and_that_is_reported() -> None:
    builder = make_run({"full_shap/f0": np.random.default_rng(0).normal(size=(5000, 2))})
    axes = Trial(builder.store, name="t").plot_full_shap().axes[0]
    (points,) = shap_points(axes)
    assert len(points) == 1667
    assert axes.get_xlabel().endswith("1667 of 5000 rows")


def test_what_was_not_saved_is_reported_with_what_saves_it() -> None:
    trial = Trial(make_run({"a": np.float64(1)}).store, name="t")
    with pytest.raises(ValueError, match="collection 'feature_importance' saves them"):
        trial.plot_feature_importance()
    with pytest.raises(ValueError, match="collection 'average_shap'"):
        trial.plot_average_shap(step=3)
    with pytest.raises(ValueError, match="collection 'full_shap'"):
        trial.plot_full_shap()
    with pytest.raises(ValueError, match="no metric was saved"):
        trial.plot_metrics()


def test_shap_values_of_a_wrong_shape_are_refused() -> None:
    builder = make_run({"full_shap/a": np.ones(3)})
    with pytest.raises(ValueError, match=r"full_shap/a has the shape \[3\]"):
        Trial(builder.store, name="t").plot_full_shap()


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("train-rmse", ("train", "rmse")),
        ("my-valid-ndcg@3-", ("my-valid", "ndcg@3-")),
        ("validation_0-error@0.7", ("validation_0", "error@0.7")),
        ("rmse", ("", "rmse")),
    ],
)
def test_a_metric_is_what_stands_behind_the_data(name: str, parts: tuple[str, str]) -> None:
    assert split_metric(name) == parts


def test_pictures_can_be_written(binary: Trial) -> None:
    for figure in (binary.plot_metrics(), binary.plot_average_shap(), binary.plot_full_shap()):
        target = BytesIO()
        figure.savefig(target, format="png", dpi=50)
        assert len(target.getvalue()) > 1000
