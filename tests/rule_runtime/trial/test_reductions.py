from __future__ import annotations

import numpy as np
import pytest

from hook_layer.format.index import STATISTICS_COLUMNS
from hook_layer.format.reductions import REDUCTION_NAMES
from rule_runtime.trial.reductions import reduce_tensor, reduction_from_statistics
from rule_runtime.trial.tensor_statistics import tensor_statistics

TENSOR = np.array([[1.0, -2.0], [3.0, -4.5]])


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("name", REDUCTION_NAMES)
def test_statistics_tell_what_the_values_tell(name: str, absolute: bool) -> None:
    expected = reduce_tensor(TENSOR, name, absolute=absolute)
    statistics = dict(zip(STATISTICS_COLUMNS, tensor_statistics(TENSOR), strict=True))
    reported = reduction_from_statistics(statistics, name, absolute=absolute)
    untold = {("min", True), ("std", True), ("variance", True)}
    if name in {"median", "prod"} or (name, absolute) in untold:
        assert reported is None
    else:
        assert reported == pytest.approx(float(expected))


def test_norms_are_those_of_the_flat_tensor() -> None:
    assert reduce_tensor(TENSOR, "l1", absolute=False) == 10.5
    assert reduce_tensor(TENSOR, "l2", absolute=False) == pytest.approx(
        float(np.linalg.norm(TENSOR.reshape(-1)))
    )


def test_nothing_is_told_of_a_tensor_with_elements_that_are_not_finite() -> None:
    statistics = dict(
        zip(STATISTICS_COLUMNS, tensor_statistics(np.array([1.0, np.inf])), strict=True)
    )
    assert reduction_from_statistics(statistics, "mean", absolute=False) is None


def test_unknown_reduction() -> None:
    with pytest.raises(ValueError, match="there is no reduction 'mode'; valid are l1, l2"):
        reduce_tensor(TENSOR, "mode", absolute=False)
