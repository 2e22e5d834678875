"""Modes are given as `ModeKeys`, or by their names; anything else is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.tensor_steps import StepState
from rule_runtime.trial.trial import Trial


def two_modes() -> Trial:
    builder = TrialBuilder()
    builder.collections(inputs=("^inputs",), losses=("loss",))
    for step, mode in enumerate([ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.TRAIN]):
        names = ("loss", "labels", "predictions", "inputs_0")
        builder.step(step, {n: np.full((2, 2), step, np.float32) for n in names}, mode=mode)
    builder.end()
    return Trial(builder.store, name="t")


QUERIES: dict[str, Callable[[Trial, Any], Any]] = {
    "steps": lambda trial, mode: trial.steps(mode),
    "global_step": lambda trial, mode: trial.global_step(mode, 1),
    "has_passed_step": lambda trial, mode: trial.has_passed_step(1, mode),
    "wait_for_steps": lambda trial, mode: trial.wait_for_steps([1], mode),
    "tensor_names": lambda trial, mode: trial.tensor_names(mode=mode),
    "names of a step": lambda trial, mode: trial.tensor_names(step=1, mode=mode),
    "inputs": lambda trial, mode: trial.inputs(1, mode),
    "labels": lambda trial, mode: trial.labels(1, mode),
    "predictions": lambda trial, mode: trial.predictions(1, mode),
    "step_files": lambda trial, mode: [file.step for file in trial.step_files(mode)],
    "to_dataframe": lambda trial, mode: trial.to_dataframe(mode=mode).to_csv(),
    "plot": lambda trial, mode: _lines(trial.plot("loss", mode=mode)),
    "plot_collection": lambda trial, mode: _lines(trial.plot_collection("losses", mode=mode)),
    "plot_activations": lambda trial, mode: _label(trial.plot_activations("loss", mode=mode)),
    "plot_kernels": lambda trial, mode: _label(trial.plot_kernels("loss", mode=mode)),
    "tensor.steps": lambda trial, mode: trial.tensor("loss").steps(mode),
    "tensor.prev_steps": lambda trial, mode: trial.tensor("loss").prev_steps(5, mode=mode),
    "tensor.workers": lambda trial, mode: trial.tensor("loss").workers(1, mode),
    "tensor.value": lambda trial, mode: trial.tensor("loss").value(1, mode),
    "tensor.values": lambda trial, mode: trial.tensor("loss").values(mode),
    "tensor.shape": lambda trial, mode: trial.tensor("loss").shape(1, mode),
    "tensor.reduction_value": lambda trial, mode: trial.tensor("loss").reduction_value(
        1, "mean", mode
    ),
    "tensor.reduction_values": lambda trial, mode: trial.tensor("loss").reduction_values(1, mode),
}


def _lines(figure: Any) -> list[Any]:
    axes = figure.axes[0]
    return [axes.get_xlabel(), *(line.get_xydata().tolist() for line in axes.get_lines())]


def _label(figure: Any) -> Any:
    return figure.get_supylabel(), figure.axes[0].get_images()[0].get_array().tolist()


@pytest.mark.parametrize("query", QUERIES)
def test_a_mode_may_be_named(query: str) -> None:
    trial, ask = two_modes(), QUERIES[query]
    expected = ask(trial, ModeKeys.TRAIN)
    for name in ("TRAIN", "train"):
        np.testing.assert_equal(ask(trial, name), expected)


@pytest.mark.parametrize("query", QUERIES)
def test_what_is_no_mode_is_refused_with_what_is(query: str) -> None:
    for wrong in ("x", 1, None):
        with pytest.raises(TypeError, match=r"not a mode.*TRAIN, EVAL, PREDICT, GLOBAL") as raised:
            QUERIES[query](two_modes(), wrong)
        assert repr(wrong) in str(raised.value)


def test_named_modes_find_what_is_there() -> None:
    trial: Any = two_modes()
    assert trial.steps("EVAL") == [0]
    assert trial.has_passed_step(0, "eval") is StepState.AVAILABLE
    assert trial.tensor("loss").value(0, "EVAL").tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("step", ["2", None])
def test_a_step_that_is_no_number_is_refused(step: Any) -> None:
    builder = TrialBuilder()
    builder.step(2, {"a": [1.0]})
    builder.end()
    trial = Trial(builder.store, name="t")
    tensor = trial.tensor("a")
    queries: list[Callable[[Any], object]] = [
        *(tensor.value, tensor.shape, tensor.workers, tensor.prev_steps, trial.has_passed_step)
    ]
    for query in queries:
        assert query(np.int64(2)) is not None
        with pytest.raises(TypeError, match=f"{step!r} is not a step; give a whole number"):
            query(step)
