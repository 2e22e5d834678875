"""Lets failed messages come back after seconds, instead of the queue's long visibility timeout."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from lambdas.evaluate_rule.service import PutBackError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from lambdas.shared.observability import Telemetry

__all__ = ["Redelivery"]

_FIRST_S: Final = 2
"""Longest wait after the first delivery, seconds; it doubles with each further one."""
_LONGEST_S: Final = 300
"""So an outage of an hour uses up fewer deliveries than the queue allows."""
_MAX_BATCH: Final = 10
"""Maximum number of messages per SQS request."""


@dataclass(frozen=True)
class Redelivery:
    """The function's own queue, which hides messages until they are delivered again.

    Attributes:
        client: Returns the SQS client; called for the first failure.
        queue_url: The queue; None leaves its visibility timeout as it is.
        telemetry: Logs.
        jitter: Spreads the messages of several evaluators.
    """

    client: Callable[[], SQSClient]
    queue_url: str | None
    telemetry: Telemetry
    jitter: random.Random = field(default_factory=random.Random)

    def soon(self, records: Iterable[Mapping[str, Any]], failures: Mapping[str, Exception]) -> None:
        """Let failed records come back soon.

        Records that were put back to be evaluated with fewer others keep the longer wait.

        Args:
            records: Records of an SQS event.
            failures: Errors by message id.
        """
        entries: Iterator[Any] = (
            {
                "Id": str(number),
                "ReceiptHandle": record["receiptHandle"],
                "VisibilityTimeout": self._seconds(record),
            }
            for number, record in enumerate(records)
            if not isinstance(failures.get(record["messageId"], PutBackError()), PutBackError)
        )
        try:
            while self.queue_url is not None and (batch := list(islice(entries, _MAX_BATCH))):
                self.client().change_message_visibility_batch(
                    QueueUrl=self.queue_url, Entries=batch
                )
        except (ClientError, BotoCoreError) as error:
            self.telemetry.warning("failed records come back late", problem=str(error))

    def _seconds(self, record: Mapping[str, Any]) -> int:
        count = int(record.get("attributes", {}).get("ApproximateReceiveCount", 1))
        longest = min(_FIRST_S * 2 ** min(count - 1, 10), _LONGEST_S)
        return self.jitter.randint(max(longest // 2, 1), longest)
