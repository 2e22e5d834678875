"""An evaluation that somebody has to come back to, as the index of the table lists it."""

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
    """An item of the index that is no evaluation."""


@dataclass(frozen=True)
class ActiveEvaluation:
    """What the index says of one rule over one run.

    Attributes:
        key: Which rule and run.
        is_announced: Whether the latest status was announced.
        has_ended: Whether the verdict is drawn.
        updated_at: When files of the run were last taken in, seconds since the epoch.
    """

    key: StateKey
    is_announced: bool
    has_ended: bool
    updated_at: float

    @classmethod
    def of_item(cls, item: Mapping[str, Any]) -> ActiveEvaluation:
        """Return what an item says.

        Raises:
            BrokenItemError: It is no evaluation's, or not whole.
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
            raise BrokenItemError(f"the item is not whole: {error!r}") from error
        if not found or not root_uri.startswith(_ROOT):
            raise BrokenItemError(f"{item[STATE_PARTITION_KEY]['S']!r:.80} is no run")
        return evaluation
