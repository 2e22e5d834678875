"""Wake messages: one function asks an evaluator to check a run without a new object.

They are in the evaluators' queues, like the bucket's events. They cannot be sent through the event
bus, whose rules accept only events of S3. Anyone with permission to send to a queue is trusted, but
names in a message are validated before they become part of a key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from hook_layer.storage.base import check_key
from lambdas.contracts.events import MAX_ROOT_BYTES, STATUS_SOURCE, WAKE_DETAIL_TYPE
from lambdas.shared.registration import RUN_ID
from rule_runtime.configuration.requested_rules import is_rule_name

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

__all__ = ["InvalidWakeError", "Wake", "WakeNotSentError", "WakeQueue", "WakeReason"]

_MAX_COUNT: Final = 1 << 53
_MAX_BATCH: Final = 10
"""Maximum number of messages per SQS request."""
_MAX_SILENCE_S: Final = 1e10


class InvalidWakeError(ValueError):
    """A message is not a wake, or its run is impossible; the text says why."""


class WakeNotSentError(Exception):
    """A queue did not accept a message; the sender must retry."""


class WakeReason(str, Enum):
    """Why an evaluator must check a run again."""

    CONTINUE = "continue"
    """One call had no time for all files."""
    SWEEP = "sweep"
    """No file arrived for a while, or a status was not announced."""
    ENDED = "ended"
    """The training job has ended, with or without an end marker."""
    SILENT = "silent"
    """No file arrived for so long that the run counts as ended."""


@dataclass(frozen=True)
class Wake:
    """A request to check one run again.

    Attributes:
        root_uri: The trial's root, ending in "/".
        run_id: The run; empty for the original client.
        reason: Why.
        hop: Number of consecutive calls that passed on remaining work.
        silent_s: Seconds since the last files of the run were processed; 0 if silence is
            irrelevant.
        version: The state version with remaining work. A later version means that another call did
            that work, or passes it on. 0 for any version.
        rule: Configuration name of the rule to evaluate; empty for all rules of the evaluator.
    """

    root_uri: str
    run_id: str
    reason: WakeReason
    hop: int = 0
    silent_s: float = 0.0
    version: int = 0
    rule: str = ""

    def to_body(self) -> str:
        """Return the body of the message."""
        detail = {
            "DebugOutputUri": self.root_uri,
            "RunId": self.run_id,
            "Reason": self.reason.value,
            "Hop": self.hop,
            "SilentSeconds": self.silent_s,
            "Version": self.version,
            "Rule": self.rule,
        }
        return json.dumps(
            {"source": STATUS_SOURCE, "detail-type": WAKE_DETAIL_TYPE, "detail": detail}
        )

    @classmethod
    def of_event(cls, event: Mapping[str, Any], bucket_names: Collection[str]) -> Wake:
        """Parse the decoded body of a message.

        Raises:
            InvalidWakeError: It is not a wake, or has impossible names.
        """
        if event.get("source") != STATUS_SOURCE or event.get("detail-type") != WAKE_DETAIL_TYPE:
            raise InvalidWakeError("not an event that wakes an evaluation")
        detail = event.get("detail")
        if not isinstance(detail, dict):
            raise InvalidWakeError("the event has no detail")
        return cls(
            root_uri=_root_uri(detail.get("DebugOutputUri"), bucket_names),
            run_id=_run_id(detail.get("RunId")),
            reason=_reason(detail.get("Reason")),
            hop=_count(detail.get("Hop", 0), "Hop"),
            silent_s=_seconds(detail.get("SilentSeconds", 0.0)),
            version=_count(detail.get("Version", 0), "Version"),
            rule=_rule(detail.get("Rule", "")),
        )


class WakeQueue:
    """The queues of the evaluators.

    Args:
        client: Returns the SQS client; called for the first message.
        urls: The queue URL of each rule, by the rule's configuration name.
    """

    def __init__(self, client: Callable[[], SQSClient], urls: Mapping[str, str]) -> None:
        self._client = client
        self._urls = dict(urls)

    @property
    def rules(self) -> Collection[str]:
        """The rules with a queue."""
        return self._urls.keys()

    def send(self, rule: str, wake: Wake) -> None:
        """Send one message.

        Args:
            rule: Configuration name of the rule.
            wake: The message.

        Raises:
            WakeNotSentError: The queue did not accept it.
            KeyError: The rule has no queue.
        """
        self.send_all(rule, [wake])

    def send_all(self, rule: str, wakes: Iterable[Wake]) -> None:
        """Send messages, ten per request.

        Raises:
            WakeNotSentError: The queue did not accept all of them; some may have been sent.
            KeyError: The rule has no queue.
        """
        url = self._urls[rule]
        rest = iter(wakes)
        while batch := list(islice(rest, _MAX_BATCH)):
            answer = self._client().send_message_batch(
                QueueUrl=url,
                Entries=[
                    {"Id": str(number), "MessageBody": wake.to_body()}
                    for number, wake in enumerate(batch)
                ],
            )
            if failed := answer.get("Failed"):
                first = failed[0]
                raise WakeNotSentError(
                    f"the queue of {rule} refused {len(failed)} of {len(batch)} messages: "
                    f"{first.get('Code')}: {first.get('Message')}"
                )


def _root_uri(value: object, bucket_names: Collection[str]) -> str:
    if not isinstance(value, str) or not value.startswith("s3://"):
        raise InvalidWakeError(f"{value!r:.80} is not the root of a trial")
    bucket, slash, root = value.removeprefix("s3://").partition("/")
    if bucket not in bucket_names:
        raise InvalidWakeError(f"the bucket {bucket!r:.80} is not watched")
    if not slash or (root and not root.endswith("/")):
        raise InvalidWakeError(f"the root {value!r:.80} does not end in /")
    try:
        if root:
            check_key(root[:-1])
    except ValueError as error:
        raise InvalidWakeError(str(error)) from None
    if len(root.encode()) > MAX_ROOT_BYTES:
        raise InvalidWakeError(f"the root is longer than {MAX_ROOT_BYTES} bytes")
    return value


def _run_id(value: object) -> str:
    if not isinstance(value, str) or (value and RUN_ID.fullmatch(value) is None):
        raise InvalidWakeError(f"{value!r:.80} is not a run id")
    return value


def _rule(value: object) -> str:
    if not isinstance(value, str) or (value and not is_rule_name(value)):
        raise InvalidWakeError(f"{value!r:.80} is not the name of a rule")
    return value


def _reason(value: object) -> WakeReason:
    try:
        return WakeReason(value)
    except ValueError:
        raise InvalidWakeError(f"{value!r:.80} is not a reason to wake") from None


def _count(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise InvalidWakeError(f"{name} is {value!r:.80}, which is not a number")
    return value


def _seconds(value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _MAX_SILENCE_S:
        raise InvalidWakeError(f"{value!r:.80} is not a number of seconds")
    return float(value)
