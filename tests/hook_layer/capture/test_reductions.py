from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.capture.reductions import ReductionConfig, reduce_array

VALUES = np.array([[1.0, -2.0], [3.0, -4.0]])


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        (("min", False), -4.0),
        (("max", True), 4.0),
        (("mean", False), -0.5),
        (("median", False), -0.5),
        (("median", True), 2.5),
        (("std", False), np.std(VALUES)),
        (("variance", True), 1.25),
        (("sum", False), -2.0),
        (("prod", False), 24.0),
        (("l1", False), 10.0),
        (("l2", True), np.sqrt(30.0)),
    ],
)
def test_reductions_of_an_array(reduction: tuple[str, bool], expected: float) -> None:
    value = reduce_array(VALUES, reduction)
    assert value.shape == ()
    assert value == pytest.approx(expected, rel=1e-12)


def test_the_l2_norm_is_flat_for_any_number_of_dimensions() -> None:
    assert reduce_array(np.ones((2, 2, 2, 2)), ("l2", False)) == 4.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reductions": ["meen"]}, "did you mean 'mean'"),
        ({"norms": ["l3"]}, "'l3'"),
        ({"reductions": "mean"}, "must be a list"),
        ({"save_raw_tensor": "True"}, "'True'"),
        ({"save_shape": 1}, "save_shape=1"),
        ({"raw_max_elements": 0.5}, "raw_max_elements=0.5"),
        ({"raw_max_elements": -1}, "at least 0"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReductionConfig(**arguments)


def test_a_limit_is_read_back_and_not_written_for_the_original() -> None:
    config = ReductionConfig(save_raw_tensor=True, raw_max_elements=100)
    assert ReductionConfig.from_json(config.to_json()) == config
    assert ReductionConfig.from_dict({"raw_max_elements": "100"}) != ReductionConfig()
    assert "raw_max_elements" not in config.to_file_dict()
    assert "raw_max_elements" not in ReductionConfig().to_json_dict()


def test_the_original_would_refuse_a_collections_file_with_a_median() -> None:
    config = ReductionConfig(["median", "max"], ["median"], ["l1"])
    assert config.to_json_dict()["reductions"] == "median,max,l1_norm,abs_median"
    assert config.to_file_dict()["reductions"] == "max,l1_norm"


def test_unknown_keys_are_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'reductions'"):
        ReductionConfig.from_dict({"reduction": "mean"})
