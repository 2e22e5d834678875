"""Shows events that could not be handled, and redelivers them.

`python -m infra.redrive` lists the rules and functions of a deployment with such events. For each
event it shows the job, the rule, the waiting time, and the error if known. With names as arguments,
it redelivers their events: a rule's to its queue, a function's by calling it. Do that after you
fixed the cause: events that fail again return. Redelivering twice does no harm.

It uses your own credentials; docs/how-to/alarms.md has the required policy.
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
from infra.event_summary import counted, described, event_of
from infra.setting_checks import PREFIX
from lambdas.contracts.environment import RULE_QUEUE_URLS
from lambdas.contracts.name_list import resolve_names

__all__ = ["Waiting", "main"]

FUNCTIONS = {"stop_job": "StopJob", "finish_job": "FinishJob", "notify": "Notify"}
"""The functions by name, with the prefix of their stack outputs."""

WAIT_S = 1
HIDDEN_S = 60
"""Seconds that a redelivered event is hidden from other callers."""
LOOKED_AT_S = 2
"""Seconds that a displayed event is hidden from other callers."""
LARGEST_BATCH = 10
MAX_SHOWN = 20
"""Maximum number of displayed events per rule or function."""


@dataclass(frozen=True)
class Waiting:
    """The events in a queue; `hand_over` takes the body of a message."""

    queue_url: str
    hand_over: Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the waiting events, or redeliver them; return 1 if some are left."""
    parser = _parser()
    options = parser.parse_args(arguments)
    stack = f"Stepwatch-{options.stage}"
    try:
        found = _waiting(stack)
        wanted = list(found) if options.names == ["all"] else options.names
        if unknown := sorted(set(wanted) - found.keys()):
            parser.error(f"unknown: {', '.join(unknown)}; give one of {', '.join(sorted(found))}")
        for name in wanted:
            print(f"{name}: {counted(_hand_over_all(found[name]))} delivered again")  # noqa: T201
        num_left = sum([_tell(name, waiting.queue_url) for name, waiting in found.items()])
    except (ClientError, BotoCoreError) as error:
        sys.exit(f"infra: {error}")
    if not num_left:
        print(f"no event waits in {stack}")  # noqa: T201
    return int(num_left > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.redrive",
        description="Show which events could not be handled, or deliver them again. "
        "Exit status 0: no event waits, 1: some do.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="rule or function whose events are delivered again, or `all`; default: only show",
    )
    parser.add_argument(
        "--stage",
        default=project_context().get(f"{PREFIX}stage", "dev"),
        help="stage of the deployment, whose stack is Stepwatch-STAGE; default: %(default)s",
    )
    return parser


def _tell(name: str, queue_url: str) -> int:
    """Show the events of a rule or a function, and return their number."""
    number = _num_waiting(queue_url)
    if number:
        print(f"{name}: {counted(number, 'wait')}")  # noqa: T201
        told = _looked_at(queue_url)
        for message in told:
            print(f"    {described(message)}")  # noqa: T201
        if number > len(told):
            print(f"    and {number - len(told)} more")  # noqa: T201
    return number


def _waiting(stack: str) -> dict[str, Waiting]:
    """Return the waiting events of a deployment, by rule and by function."""
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
    """Return the rules' queues, from the environment of a function that wakes evaluators."""
    settings = boto3.client("lambda").get_function_configuration(FunctionName=function)
    return resolve_names(json.loads(settings["Environment"]["Variables"][RULE_QUEUE_URLS]))


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
    """Redeliver the events that wait now; return their number."""
    num_done = 0
    for message in _messages(waiting.queue_url, HIDDEN_S):
        try:
            waiting.hand_over(message["Body"])
        except ValueError as error:
            print(  # noqa: T201
                f"not delivered, because it is not an event: {message['Body']:.200} ({error})",
                file=sys.stderr,
            )
            continue
        boto3.client("sqs").delete_message(
            QueueUrl=waiting.queue_url, ReceiptHandle=message["ReceiptHandle"]
        )
        num_done += 1
    return num_done


def _looked_at(queue_url: str) -> list[Any]:
    """Return the first waiting events, which stay in the queue."""
    found: dict[str, Any] = {}
    for message in _messages(queue_url, LOOKED_AT_S):
        if message["MessageId"] in found:
            break  # it is visible again
        found[message["MessageId"]] = message
        if len(found) == MAX_SHOWN:
            break
    return list(found.values())


def _messages(queue_url: str, hidden_s: int) -> Iterator[Any]:
    client = boto3.client("sqs")
    while True:
        answer = client.receive_message(
            QueueUrl=queue_url,
            MaxNumberOfMessages=LARGEST_BATCH,
            VisibilityTimeout=hidden_s,
            WaitTimeSeconds=WAIT_S,
            AttributeNames=["SentTimestamp"],
            MessageAttributeNames=["All"],
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
