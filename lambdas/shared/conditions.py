"""Writes of the table that are refused because somebody else came first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

__all__ = ["is_condition_refused"]

_REFUSED: Final = "ConditionalCheckFailedException"


def is_condition_refused(error: ClientError) -> bool:
    """Return whether DynamoDB refused a write because the item does not meet its condition."""
    return error.response["Error"]["Code"] == _REFUSED
