"""Parses active evaluations from the index of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lambdas.contracts.events import (
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    UPDATED_AT_ATTRIBUTE,
)
from lambdas.shared.state_item import StateKey

__all__ = ["ActiveEvaluation", "BrokenItemError"]

_ROOT = "s3://"


class BrokenItemError(ValueError):
    """An item of the index is not an evaluation."""


@dataclass(frozen=True)
class ActiveEvaluation:
    """One rule over one run, as in the index.

    Attributes:
        key: Rule and run.
        is_announced: Whether the latest status was announced.
        has_ended: Whether the verdict is final.
        updated_at: Time when files of the run were last processed, seconds since the epoch.
    """

    key: StateKey
    is_announced: bool
    has_ended: bool
    updated_at: float

    @classmethod
    def of_item(cls, item: Mapping[str, Any]) -> ActiveEvaluation:
        """Parse an item.

        Raises:
            BrokenItemError: It is not an evaluation, or is incomplete.
        """
        try:
            root_uri, found, run_id = item[STATE_PARTITION_KEY]["S"].rpartition("#")
            evaluation = cls(
                key=StateKey(root_uri, run_id, item[STATE_SORT_KEY]["S"]),
                is_announced=(
                    int(item["announced_transition"]["N"]) >= int(item["transition"]["N"])
                ),
                has_ended=bool(item["ended"]["BOOL"]),
                updated_at=int(item[UPDATED_AT_ATTRIBUTE]["N"]) / 1000,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenItemError(f"the item is incomplete: {error!r}") from error
        if not found or not root_uri.startswith(_ROOT):
            raise BrokenItemError(f"{item[STATE_PARTITION_KEY]['S']!r:.80} is not a run")
        return evaluation
