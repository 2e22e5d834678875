"""What a tensor gives: arrays that are the user's own, and reductions of any tensor."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.tensor import Tensor
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.outcomes import make_run

VALUES: dict[str, Any] = {
    "float": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.float64(3.5),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "empty": np.empty((0, 4), np.float32),
}


def tensor_of(name: str, *, cache: bool = False, run: str | None = "run-1") -> Tensor:
    builder = TrialBuilder(run=run)
    for step in range(3):
        builder.step(step, {**VALUES, "text": np.array(["a", "bc"])})
    builder.end()
    return Trial(builder.store, name="t", cache=cache).tensor(name)


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("name", VALUES)
def test_values_can_be_changed_and_are_nobody_elses(name: str, cache: bool) -> None:
    tensor = tensor_of(name, cache=cache)
    expected = np.asarray(VALUES[name])
    for values in (tensor.values(), tensor.values(), {0: tensor.value(0), 2: tensor.value(2)}):
        for value in values.values():
            np.testing.assert_array_equal(value, expected)
            assert (value.shape, value.dtype) == (expected.shape, expected.dtype)
            assert value.flags.writeable
            value[...] = 0
    np.testing.assert_array_equal(tensor.value(2), expected)


def test_text_can_be_changed_too() -> None:
    tensor = tensor_of("text", cache=True)
    tensor.value(0)[...] = "x"
    assert tensor.value(0).tolist() == ["a", "bc"]


def test_stored_reductions_can_be_changed() -> None:
    builder = make_run({"smdebug/reductions/mean/w": np.float32([0.5])})
    tensor = Trial(builder.store, name="t").tensor("w")
    reductions = tensor.reduction_values(0)
    reductions["mean", False] += 1
    stored = tensor.reduction_value(0, "mean")
    stored += 1
    assert tensor.reduction_value(0, "mean").tolist() == [0.5]


# Reductions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["run-1", None])
@pytest.mark.parametrize("reduction", ["mean", "l2", "prod", "median"])
def test_text_has_no_reduction(reduction: str, run: str | None) -> None:
    with pytest.raises(ValueError, match=r"'text' holds .*, which have no .*numbers"):
        tensor_of("text", run=run).reduction_value(0, reduction, abs=True)


@pytest.mark.parametrize("run", ["run-1", None])
@pytest.mark.parametrize("absolute", [False, True])
def test_of_no_elements_a_reduction_is_nan_without_a_word(absolute: bool, run: str | None) -> None:
    tensor = tensor_of("empty", run=run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for reduction in ("min", "max", "mean", "median", "std", "variance"):
            assert np.isnan(tensor.reduction_value(0, reduction, abs=absolute)), reduction
        for reduction, neutral in {"sum": 0, "l1": 0, "l2": 0, "prod": 1}.items():
            assert tensor.reduction_value(0, reduction, abs=absolute) == neutral
