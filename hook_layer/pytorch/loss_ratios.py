"""Compares a loss with the value of the function call that it was computed from.

A constant ratio, as for accumulation, means that the call is the loss. With a varying factor, such
as a reward, it is not. On a device, a ratio is read at the next saved step, so that training never
waits for it.
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
"""Maximum first ratio of a loss with other terms to its call that stands for it."""


class LossRatios:
    """Decides from the ratio of loss and value whether a call stands for the loss."""

    def __init__(self) -> None:
        self._first: dict[Hashable, float] = {}
        self._rejected: set[Hashable] = set()
        self._coming: dict[Hashable, list[HostCopy]] = {}

    def accepts(
        self, key: Hashable, loss: Tensor, value: Tensor, *, is_part: bool, may_vary: bool
    ) -> bool:
        """Return whether the known ratios allow that a call stands for the loss.

        Args:
            key: Identifies the call.
            loss: Start of the backward pass, one element.
            value: Value that the call returned, one element.
            is_part: Whether the loss has other terms.
            may_vary: Whether a factor from 0 to 1 may change between steps.
        """
        with torch.no_grad():
            whole, part = loss.detach().double().reshape(()), value.detach().double().reshape(())
            # NaN then means 0 / 0, or a value that is NaN itself.
            ratio = whole.nan_to_num(inf, inf, -inf) / part
        coming = self._coming.setdefault(key, [])
        coming.append(HostCopy(ratio) if ratio.is_cuda else HostCopy.of_host(ratio.cpu()))
        while coming and coming[0].has_arrived():
            number = float(coming.pop(0).array())
            if not self._is_of_loss(key, number, is_part=is_part, may_vary=may_vary):
                self._rejected.add(key)
        return key not in self._rejected

    def first(self, key: Hashable) -> float:
        """Return the first ratio of a call; 1 if none is known."""
        return self._first.get(key, 1.0)

    def _is_of_loss(self, key: Hashable, ratio: float, *, is_part: bool, may_vary: bool) -> bool:
        if isnan(ratio):
            return True
        first = self._first.setdefault(key, ratio)
        if not isfinite(ratio) or not isfinite(first) or not ratio:
            return False
        if is_part:
            # A negative other term, such as a policy's gain, may outweigh the call: reject it.
            return ratio >= 1 - _ROUNDING and first <= _MOST_OF_PART
        if may_vary and 0 < first <= 1 and 0 < ratio <= 1:
            return True
        return isclose(first, ratio, rel_tol=_ROUNDING)
