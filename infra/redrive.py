"""Events that could not be handled: how many wait, and handing them over once more.

`python -m infra.redrive` tells for which rules and functions of a deployment such events wait.
With names behind it, it hands those over: a rule's into its queue, a function's by calling it. Do
that once the cause is gone: what fails again comes back. Handing over twice does no harm.

It uses your own credentials, which need cloudformation:DescribeStacks,
lambda:GetFunctionConfiguration and lambda:InvokeFunction, and of the queues sqs:GetQueueAttributes,
sqs:GetQueueUrl, sqs:ReceiveMessage, sqs:SendMessage and sqs:DeleteMessage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.app import project_context
from infra.setting_checks import PREFIX
from lambdas.contracts.environment import RULE_QUEUE_URLS

__all__ = ["Waiting", "event_of", "main"]

FUNCTIONS = {"stop_job": "StopJob", "finish_job": "FinishJob", "notify": "Notify"}
"""The functions by name, and what their outputs of the stack begin with."""

WAIT_S = 1
HIDDEN_S = 60
"""How long an event that is being handed over is hidden from others who do the same."""
LARGEST_BATCH = 10


@dataclass(frozen=True)
class Waiting:
    """The events that wait for a rule or a function.

    Attributes:
        queue_url: Where they wait.
        hand_over: Hands one of them over, by the body of its message.
    """

    queue_url: str
    hand_over: Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Tell what waits, or hand it over; return the exit status, 1 if something is left."""
    parser = argparse.ArgumentParser(prog="python -m infra.redrive", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="rules and functions; all: `all`")
    parser.add_argument("--stage", default=project_context().get(f"{PREFIX}stage", "dev"))
    options = parser.parse_args(arguments)
    try:
        found = _waiting(f"Stepwatch-{options.stage}")
        wanted = list(found) if options.names == ["all"] else options.names
        if unknown := sorted(set(wanted) - found.keys()):
            parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(sorted(found))}")
        for name in wanted:
            print(f"{name}: {_hand_over_all(found[name])} events handed over")  # noqa: T201
        left = {name: _num_waiting(waiting.queue_url) for name, waiting in found.items()}
    except (ClientError, BotoCoreError) as error:
        sys.exit(f"infra: {error}")
    for name, number in left.items():
        if number:
            print(f"{name}: {number} events wait")  # noqa: T201
    return int(any(left.values()))


def event_of(body: str) -> Any:
    """Return the event that a message in the queue of a function's failures is about.

    Args:
        body: What EventBridge could not deliver, the event itself; or Lambda's record of a call
            that failed, which has the event in it.

    Raises:
        ValueError: It is neither.
    """
    content = json.loads(body)
    if not isinstance(content, dict):
        raise ValueError("no event")  # noqa: TRY004 - the caller asks for one kind of error
    is_record = "requestContext" in content and "requestPayload" in content
    return content["requestPayload"] if is_record else content


def _waiting(stack: str) -> dict[str, Waiting]:
    """Return where events of a deployment wait, by rule and by function."""
    (described,) = boto3.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in described["Outputs"]}
    found = {
        name: Waiting(outputs[f"{key}FailuresUrl"], _calling(outputs[f"{key}FunctionName"]))
        for name, key in FUNCTIONS.items()
    }
    for rule, url in _rule_queues(outputs["FinishJobFunctionName"]).items():
        found[rule] = Waiting(_dead_letters_of(url), _sending(url))
    return found


def _rule_queues(function: str) -> Mapping[str, str]:
    """Return the rules' queues, which a function that wakes evaluators is told."""
    told = boto3.client("lambda").get_function_configuration(FunctionName=function)
    urls: dict[str, str] = json.loads(told["Environment"]["Variables"][RULE_QUEUE_URLS])
    return urls


def _dead_letters_of(queue_url: str) -> str:
    client = boto3.client("sqs")
    answer = client.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["RedrivePolicy"])
    arn = json.loads(answer["Attributes"]["RedrivePolicy"])["deadLetterTargetArn"]
    return client.get_queue_url(QueueName=arn.rpartition(":")[2])["QueueUrl"]


def _calling(function: str) -> Callable[[str], None]:
    def call(body: str) -> None:
        boto3.client("lambda").invoke(
            FunctionName=function,
            InvocationType="Event",
            Payload=json.dumps(event_of(body)).encode(),
        )

    return call


def _sending(queue_url: str) -> Callable[[str], None]:
    def send(body: str) -> None:
        boto3.client("sqs").send_message(QueueUrl=queue_url, MessageBody=body)

    return send


def _hand_over_all(waiting: Waiting) -> int:
    """Hand over what waits now; return how many events that were."""
    num_done = 0
    for message in _messages(waiting.queue_url):
        try:
            waiting.hand_over(message["Body"])
        except ValueError as error:
            print(f"left, for it is no event: {message['Body']:.200} ({error})", file=sys.stderr)  # noqa: T201
            continue
        boto3.client("sqs").delete_message(
            QueueUrl=waiting.queue_url, ReceiptHandle=message["ReceiptHandle"]
        )
        num_done += 1
    return num_done


def _messages(queue_url: str) -> Iterator[Any]:
    client = boto3.client("sqs")
    while True:
        answer = client.receive_message(
            QueueUrl=queue_url,
            MaxNumberOfMessages=LARGEST_BATCH,
            VisibilityTimeout=HIDDEN_S,
            WaitTimeSeconds=WAIT_S,
        )
        if not answer.get("Messages"):
            return
        yield from answer["Messages"]


def _num_waiting(queue_url: str) -> int:
    names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    answer = boto3.client("sqs").get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)
    return sum(int(answer["Attributes"][name]) for name in names)


if __name__ == "__main__":
    sys.exit(main())
