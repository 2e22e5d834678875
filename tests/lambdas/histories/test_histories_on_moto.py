"""The same histories over the table in DynamoDB and a bus of EventBridge."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from lambdas.contracts.events import ACTIVE, STATUS_SOURCE
from lambdas.shared.event_bus import EventBus
from lambdas.shared.state_item import key_attributes
from lambdas.shared.state_table import DynamoStateTable, StateKey
from tests.lambdas.histories.effects import RULE, announced_status
from tests.lambdas.histories.tape import Tape
from tests.lambdas.histories.verdicts import check
from tests.lambdas.histories.world import World

NUM_HISTORIES = 50
REGION = "eu-west-1"
TABLE = "states"


class SweptTable(DynamoStateTable):
    """The table, asked as a sweep asks it for the evaluations of one job."""

    def __init__(self, client: Any, root_uri: str, clock: Callable[[], float]) -> None:
        super().__init__(client, TABLE, clock)
        self._root_uri = root_uri

    def active(self) -> list[StateKey]:
        names = [item["run"]["S"].rpartition("#") for item in self._items.active(ACTIVE)]
        return [StateKey(root, run, RULE) for root, _, run in names if root == self._root_uri]


class QueuedBus:
    """A bus with a queue behind it, from which the statuses are read."""

    def __init__(self, events: Any, sqs: Any, queue_url: str) -> None:
        self.publish = EventBus(lambda: events, "default").publish
        self._sqs = sqs
        self._queue_url = queue_url

    @property
    def announced(self) -> list[tuple[StateKey, str]]:
        """Return what arrived since this was last asked."""
        found = []
        while messages := self._sqs.receive_message(
            QueueUrl=self._queue_url, MaxNumberOfMessages=10
        ).get("Messages"):
            for message in messages:
                found.append(announced_status(json.loads(message["Body"])["detail"]))
                self._sqs.delete_message(
                    QueueUrl=self._queue_url, ReceiptHandle=message["ReceiptHandle"]
                )
        return found


@pytest.mark.usefixtures("aws")
def test_histories_over_dynamodb_and_eventbridge_end_in_the_same_verdicts() -> None:
    session = boto3.session.Session(region_name=REGION)
    dynamodb, events, sqs = map(session.client, ("dynamodb", "events", "sqs"))
    url = sqs.create_queue(QueueName="verdicts")["QueueUrl"]
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    events.put_rule(Name="verdicts", EventPattern=json.dumps({"source": [STATUS_SOURCE]}))
    target = {"Id": "verdicts", "Arn": answer["Attributes"]["QueueArn"]}
    events.put_targets(Rule="verdicts", Targets=[target])
    bus = QueuedBus(events, sqs, url)
    for seed in range(NUM_HISTORIES):
        chance = random.Random(f"moto {seed}")
        name = f"job-{seed}"

        def table(clock: Callable[[], float], name: str = name) -> SweptTable:
            return SweptTable(dynamodb, f"memory://{name}/debug-output/", clock)

        tape = Tape(chance.randbytes(chance.randrange(150, 500)))
        world = World(tape, make_table=table, bus=bus, name=name)
        check(world)
        for key in world.table.active():  # runs that were interrupted, and are no matter of others
            dynamodb.delete_item(TableName=TABLE, Key=key_attributes(key))
