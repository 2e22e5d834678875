"""Requests to stop a job, kept until the job has ended.

They are in the table of evaluation states. Until the end of the job is confirmed, they are also in
its index of active items, in a separate partition: the sweep over evaluations never reads them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lambdas.contracts.events import (
    ACTIVE_ATTRIBUTE,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    STATE_TTL_ATTRIBUTE,
    UPDATED_AT_ATTRIBUTE,
    stop_partition,
)
from lambdas.shared.items import Items, item_key

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = [
    "CONFIRMED",
    "LATE",
    "LOOP",
    "ON_SAGEMAKER",
    "REQUESTED",
    "StopItem",
    "StopReason",
    "StopTable",
    "StopTarget",
]

ON_SAGEMAKER: Final = "sagemaker"
LOOP: Final = "loop"
"""The platform if only the training loop can be asked."""

REQUESTED: Final = "requested"
CONFIRMED: Final = "confirmed"
LATE: Final = "late"

_ACTIVE_STOP: Final = "stop"
_RETENTION_S: Final = 90 * 24 * 3600
"""Seconds after the request when the table deletes it."""
_MAX_TEXT: Final = 1024
_STATUS: Final = "status"  # a reserved word of DynamoDB; always use a placeholder


@dataclass(frozen=True)
class StopReason:
    """Why a job is stopped: one line, for its stop signal."""

    rule: str
    text: str
    evidence: dict[str, Any] | None = None

    @property
    def is_fatal(self) -> bool:
        """Whether the run is known not to recover."""
        return bool((self.evidence or {}).get("is_fatal"))


@dataclass(frozen=True)
class StopTarget:
    """One run to stop.

    Attributes:
        training_job_name: Name of the job.
        platform: `sagemaker`, `batch`, `ecs`, or `loop` for the stop signal alone.
        root_uri: The registered root; empty for an unregistered job.
        run_id: The run.
        arn: The job's ARN on Batch or ECS.
    """

    training_job_name: str
    platform: str
    root_uri: str = ""
    run_id: str = ""
    arn: str | None = None


@dataclass(frozen=True)
class StopItem:
    """A request to stop one run.

    Attributes:
        target: The run.
        reason: Why; without the evidence.
        status: `requested`, `confirmed` or `late`.
        num_requests: Number of stop requests sent to the run.
        requested_at_ms: Time of the first request, milliseconds since the epoch.
        asked_at_ms: Time of the last request.
    """

    target: StopTarget
    reason: StopReason
    status: str
    num_requests: int
    requested_at_ms: int
    asked_at_ms: int


class StopTable:
    """The requests in the state table.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._items = Items(client, table_name)

    def note(self, target: StopTarget, reason: StopReason) -> None:
        """Store a request; the first one of a run stays, with its reason."""
        now_ms = self._now_ms()
        item: dict[str, Any] = {
            **_key(target),
            _STATUS: {"S": REQUESTED},
            ACTIVE_ATTRIBUTE: {"S": _ACTIVE_STOP},
            UPDATED_AT_ATTRIBUTE: {"N": str(now_ms)},
            "requested_at": {"N": str(now_ms)},
            "num_requests": {"N": "1"},
            "platform": {"S": target.platform},
            "rule_configuration_name": {"S": reason.rule},
            "reason": {"S": reason.text[:_MAX_TEXT]},
            STATE_TTL_ATTRIBUTE: {"N": str(now_ms // 1000 + _RETENTION_S)},
        }
        if target.arn is not None:
            item["arn"] = {"S": target.arn}
        self._items.put(item, ConditionExpression="attribute_not_exists(requested_at)")

    def load(self, training_job_name: str, root_uri: str, run_id: str) -> StopItem | None:
        """Return the request to stop a run; None if there is none."""
        item = self._items.get(_key(StopTarget(training_job_name, "", root_uri, run_id)))
        return _stop_item(item) if item else None

    def pending(self) -> Iterator[StopItem]:
        """Yield the unconfirmed requests, the oldest first."""
        for key in self._items.active(_ACTIVE_STOP):
            # The index is eventually consistent, and does not contain all attributes.
            keys = (STATE_PARTITION_KEY, STATE_SORT_KEY)
            stored = self._items.get({name: key[name] for name in keys})
            if stored and stored[_STATUS]["S"] == REQUESTED:
                yield _stop_item(stored)

    def request_again(self, item: StopItem) -> bool:
        """Record a repeated request to the job; return False if another call was first."""
        now = str(self._now_ms())
        return self._update(
            item,
            f"SET {UPDATED_AT_ATTRIBUTE} = :now, num_requests = num_requests + :one",
            {":now": {"N": now}, ":one": {"N": "1"}},
        )

    def close(self, item: StopItem, status: str) -> bool:
        """Record the result of a request; return False if another call was first.

        Args:
            item: The request.
            status: `confirmed` or `late`.
        """
        return self._update(
            item,
            f"SET #status = :closed, {UPDATED_AT_ATTRIBUTE} = :now REMOVE {ACTIVE_ATTRIBUTE}",
            {":closed": {"S": status}, ":now": {"N": str(self._now_ms())}},
        )

    def _update(self, item: StopItem, expression: str, values: dict[str, Any]) -> bool:
        refusal = self._items.update(
            _key(item.target),
            expression,
            ConditionExpression="#status = :requested AND num_requests = :asked",
            ExpressionAttributeNames={"#status": _STATUS},
            ExpressionAttributeValues={
                **values,
                ":requested": {"S": REQUESTED},
                ":asked": {"N": str(item.num_requests)},
            },
        )
        return refusal is None

    def _now_ms(self) -> int:
        return round(time.time() * 1000)


def _key(target: StopTarget) -> dict[str, Any]:
    partition = stop_partition(target.training_job_name)
    return item_key(partition, f"{target.root_uri}#{target.run_id}")


def _stop_item(item: Any) -> StopItem:
    root_uri, _, run_id = item[STATE_SORT_KEY]["S"].rpartition("#")  # a run id has no "#"
    return StopItem(
        target=StopTarget(
            training_job_name=item[STATE_PARTITION_KEY]["S"].removeprefix(stop_partition("")),
            platform=item["platform"]["S"],
            root_uri=root_uri,
            run_id=run_id,
            arn=item["arn"]["S"] if "arn" in item else None,
        ),
        reason=StopReason(item["rule_configuration_name"]["S"], item["reason"]["S"]),
        status=item[_STATUS]["S"],
        num_requests=int(item["num_requests"]["N"]),
        requested_at_ms=int(item["requested_at"]["N"]),
        asked_at_ms=int(item[UPDATED_AT_ATTRIBUTE]["N"]),
    )
