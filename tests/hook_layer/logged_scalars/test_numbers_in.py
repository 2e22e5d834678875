from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from hook_layer.logged_scalars.numbers_in import numbers_in


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1.5, 1.5),
        (2, 2.0),
        (True, 1.0),
        (math.inf, math.inf),
        (Fraction(1, 2), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.array([0.5]), 0.5),
        (torch.tensor([[0.5]], dtype=torch.bfloat16, requires_grad=True), 0.5),
        ("0.5", None),
        (b"0.5", None),
        (None, None),
        (Decimal("0.5"), None),
        (1j, None),
        (np.array("0.5"), None),
        (np.ones(2), None),
        (torch.ones(0), None),
        ([0.5], None),
    ],
)
def test_a_number_or_a_tensor_of_one(value: Any, number: float | None) -> None:
    assert numbers_in({"x": value}) == ({} if number is None else {"x": number})


def test_numbers_in_nested_dictionaries() -> None:
    values: dict[Any, Any] = {"eval": {"loss": 1.0, "by": {"class": 2}}, 3: 4.0}
    values["itself"] = values
    found = numbers_in(values)
    assert {"eval/loss": 1.0, "eval/by/class": 2.0, "3": 4.0}.items() <= found.items()
    assert len(found) < 20
