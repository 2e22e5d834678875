"""A running mean stored as JSON: a list of the mean and the number of values."""

from __future__ import annotations

__all__ = ["RunningMean", "add_to_mean"]

RunningMean = list[float]
"""The mean, and the number of values that it is of; [0, 0] at the start."""


def add_to_mean(mean: RunningMean, value: float, count: int = 1) -> None:
    """Add values to a running mean, in place; their sum, which could overflow, is not computed.

    Args:
        mean: The running mean.
        value: The mean of the new values.
        count: The number of new values.
    """
    mean[1] += count
    share = count / mean[1]
    mean[0] = mean[0] * (1 - share) + value * share
