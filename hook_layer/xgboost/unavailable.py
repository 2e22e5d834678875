"""The error of tensors that do not exist in a training."""

from __future__ import annotations

__all__ = ["UnavailableError"]


class UnavailableError(Exception):
    """A group does not exist in this training; says why, and what to do."""
