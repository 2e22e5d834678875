"""A custom subscriber: a queue with EventBridge's events about a job's rules.

It needs nothing of Stepwatch: EventBridge and SQS are all that it knows.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import boto3
from typing_extensions import Self

from examples.react_to_rules.output import print_line

__all__ = ["Subscriber"]

SOURCES = ["aws.sagemaker", "stepwatch.debugger"]
DETAIL_TYPE = "SageMaker Training Job State Change"
"""The same for SageMaker's events and for those of Stepwatch."""

_WAIT_S = 1


class Subscriber:
    """Prints and collects every status event of one job.

    Args:
        job_name: Name of the job.

    Attributes:
        events: The events so far, as EventBridge delivered them.
    """

    def __init__(self, job_name: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._name = f"{job_name}-events"[-64:].lstrip("-")  # names of rules have 64 characters
        self._pattern = {
            "source": SOURCES,
            "detail-type": [DETAIL_TYPE],
            "detail": {"TrainingJobName": [job_name]},
        }
        self._bus, self._sqs = boto3.client("events"), boto3.client("sqs")
        self._is_closing = threading.Event()
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        rule = self._bus.put_rule(Name=self._name, EventPattern=json.dumps(self._pattern))
        self._url = self._sqs.create_queue(QueueName=self._name)["QueueUrl"]
        response = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        queue = response["Attributes"]["QueueArn"]
        policy = json.dumps(_may_send(queue, rule["RuleArn"]))
        self._sqs.set_queue_attributes(QueueUrl=self._url, Attributes={"Policy": policy})
        self._bus.put_targets(Rule=self._name, Targets=[{"Id": "queue", "Arn": queue}])
        self._listening = self._thread.submit(self._listen)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what is still on its way, and take rule and queue down; again: nothing."""
        if self._is_closing.is_set():
            return
        self._is_closing.set()
        self._thread.shutdown()
        self._bus.remove_targets(Rule=self._name, Ids=["queue"])
        self._bus.delete_rule(Name=self._name)
        self._sqs.delete_queue(QueueUrl=self._url)
        self._listening.result()  # raises what went wrong

    def _listen(self) -> None:
        while True:
            received = self._sqs.receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=10, WaitTimeSeconds=_WAIT_S
            ).get("Messages", [])
            for message in received:
                event = json.loads(message.get("Body", "{}"))
                self.events.append(event)
                print_line(f"EventBridge: {line(event)}")
                self._sqs.delete_message(
                    QueueUrl=self._url, ReceiptHandle=message.get("ReceiptHandle", "")
                )
            if not received and self._is_closing.is_set():
                return


def line(event: dict[str, Any]) -> str:
    """Return what an event says in one line."""
    detail = event["detail"]
    statuses = [
        f"{status['RuleConfigurationName']} {status['RuleEvaluationStatus']}"
        for status in detail.get("DebugRuleEvaluationStatuses") or ()
    ]
    found = detail.get("Evidence")
    why = f" at step {found['step']}: {found['sentence']}" if found else ""
    what = ", ".join(statuses) or f"the job is {detail['TrainingJobStatus']}"
    return f"{event['source']}: {what}{why}"


def _may_send(queue: str, rule: str) -> dict[str, Any]:
    """Return the queue's policy: without it EventBridge may put nothing into the queue."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
    }
    return {"Version": "2012-10-17", "Statement": [statement]}
