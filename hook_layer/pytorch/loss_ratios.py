"""By what a script multiplies the value of a call to get its loss.

A constant, as for accumulation, stays the same. A reward differs from step to step: then the call
is not the loss. On a device the ratio of a step is known at the next saved step, so that training
never waits for it.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf, isclose, isfinite, isnan
from typing import Final

import torch
from torch import Tensor

from hook_layer.pytorch.host_copy import HostCopy

__all__ = ["LossRatios"]

_ROUNDING: Final = 1e-3
_MOST_OF_PART: Final = 5.0
"""A call stands for a loss that has other parts, too, if the loss was at first at most so many
times its value."""


class LossRatios:
    """Decides by the ratio of loss and value whether a call stands for the loss."""

    def __init__(self) -> None:
        self._first: dict[Hashable, float] = {}
        self._rejected: set[Hashable] = set()
        self._coming: dict[Hashable, list[HostCopy]] = {}

    def accepts(
        self, key: Hashable, loss: Tensor, value: Tensor, *, is_part: bool, may_vary: bool
    ) -> bool:
        """Return whether the ratios of a call, as far as they are known, are those of a loss.

        Args:
            key: The call.
            loss: What the backward pass starts from, one element.
            value: What the call returned, one element.
            is_part: Whether the loss has other parts.
            may_vary: Whether a factor from 0 to 1 may be another one in each step.
        """
        with torch.no_grad():
            whole, part = loss.detach().double().reshape(()), value.detach().double().reshape(())
            # NaN is left for 0 / 0, and for values that are NaN themselves.
            ratio = whole.nan_to_num(inf, inf, -inf) / part
        coming = self._coming.setdefault(key, [])
        coming.append(HostCopy(ratio) if ratio.is_cuda else HostCopy.of_host(ratio.cpu()))
        while coming and coming[0].has_arrived():
            number = float(coming.pop(0).array())
            if not self._is_of_loss(key, number, is_part=is_part, may_vary=may_vary):
                self._rejected.add(key)
        return key not in self._rejected

    def first(self, key: Hashable) -> float:
        """Return the first ratio of a call; 1 while none is known."""
        return self._first.get(key, 1.0)

    def _is_of_loss(self, key: Hashable, ratio: float, *, is_part: bool, may_vary: bool) -> bool:
        if isnan(ratio):
            return True
        first = self._first.setdefault(key, ratio)
        if not isfinite(ratio) or not isfinite(first) or not ratio:
            return False
        if is_part:
            # What may be negative, as the gain of a policy, is no prior: little may be the most.
            return ratio >= 1 - _ROUNDING and first <= _MOST_OF_PART
        if may_vary and 0 < first <= 1 and 0 < ratio <= 1:
            return True
        return isclose(first, ratio, rel_tol=_ROUNDING)
