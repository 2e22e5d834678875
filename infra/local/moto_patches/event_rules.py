"""EventBridge in moto: matching of patterns, and delivery to the targets of rules."""

from __future__ import annotations

import copy
import datetime as dt
import json
import logging
import uuid
from collections.abc import Mapping
from functools import cache
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.events.models import UNDEFINED, EventPattern, Rule, events_backends
from moto.sqs.models import sqs_backends

from infra.local.asynchronous import queue_name

__all__ = [
    "patch_event_patterns_into_arrays",
    "patch_event_rule_targets",
    "run_schedules",
    "send_to_default_bus",
]

logger = logging.getLogger(__name__)

_send_to_targets = Rule.send_to_targets
_MESSAGE_FIELDS = (
    *("version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail"),
)
_OWN_PAYLOAD = frozenset({"Input", "InputPath", "InputTransformer", "SqsParameters"})


@cache
def patch_event_patterns_into_arrays() -> None:
    """Match a nested pattern against each object of an array.

    Without it a pattern such as `{"Statuses": {"Status": ["Failed"]}}` never matches `{"Statuses":
    [{"Status": "Failed"}]}`. As on AWS, one element must match the whole pattern.
    """

    def matches_event(self: Any, event: Mapping[str, Any]) -> bool:
        return _matches(self, json.loads(json.dumps(event)), self.get_pattern())

    EventPattern.matches_event = matches_event


@cache
def patch_event_rule_targets() -> None:
    """Deliver to each target of each enabled rule, independent of errors of the others.

    Without it disabled rules deliver, and scheduled rules deliver every event; Lambda targets
    raise; and a target that raises keeps the event from all later rules of the bus. Events for a
    function go to its queue for asynchronous invocations; undeliverable ones go to the target's
    dead-letter queue.
    """

    def send_to_targets(self: Any, original_event: Any, transform_input: bool = True) -> None:
        if self.state != "ENABLED" or not self.event_pattern.get_pattern():
            return
        if not self.event_pattern.matches_event(original_event):
            return
        for target in list(self.targets):
            _deliver_or_give_up(self, target, original_event, transform_input)

    Rule.send_to_targets = send_to_targets


def send_to_default_bus(account_id: str, region: str, event: Mapping[str, Any]) -> None:
    """Put an event of an AWS service on the default bus, which alone receives such events.

    It has `detail-type`, `source`, `resources` and `detail`; other fields are optional.
    """
    filled = {"version": "0", "account": account_id, "region": region, "time": _now(), **event}
    for rule in list(events_backends[account_id][region].event_buses["default"].rules.values()):
        rule.send_to_targets(filled, transform_input=False)


def run_schedules(account_id: str, region: str) -> None:
    """Trigger each enabled scheduled rule, like EventBridge."""
    for rule in list(events_backends[account_id][region].event_buses["default"].rules.values()):
        if rule.scheduled_expression and rule.state == "ENABLED":
            for target in list(rule.targets):
                function = lambda_backends[account_id][region].get_function(target["Arn"])
                message = target.get("Input") or _scheduled_event(rule, account_id, region)
                _send_to_function(account_id, region, function, message)


def _scheduled_event(rule: Any, account_id: str, region: str) -> str:
    return _message(
        {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Scheduled Event",
            "source": "aws.events",
            "account": account_id,
            "region": region,
            "time": _now(),
            "resources": [rule.arn],
            "detail": {},
        }
    )


def _matches(matcher: Any, node: Any, pattern: Mapping[str, Any]) -> bool:
    if isinstance(node, list) and node:
        return any(_matches(matcher, element, pattern) for element in node)
    fields = node if isinstance(node, dict) else {}
    for key, wanted in pattern.items():
        if key == "$or":
            matched = any(_matches(matcher, node, choice) for choice in wanted)
        elif isinstance(wanted, dict):
            matched = _matches(matcher, fields.get(key), wanted)
        else:
            # moto compares single values.
            matched = matcher._does_item_match_filters(fields.get(key, UNDEFINED), wanted)  # noqa: SLF001
        if not matched:
            return False
    return True


def _deliver_or_give_up(
    rule: Any, target: Mapping[str, Any], event: Any, transform_input: bool
) -> None:
    try:
        _deliver(rule, target, event, transform_input)
    except Exception as error:  # noqa: BLE001 - one target must not affect the others
        _give_up(rule, target, event, error)


def _deliver(rule: Any, target: Mapping[str, Any], event: Any, transform_input: bool) -> None:
    _, _, service, region, account_id, resource = target["Arn"].split(":", 5)
    if service == "lambda" and not _OWN_PAYLOAD & target.keys():
        function = lambda_backends[account_id][region].get_function(target["Arn"])
        _send_to_function(account_id, region, function, _message(event))
    elif service == "sqs" and not _OWN_PAYLOAD & target.keys():
        sqs_backends[account_id][region].send_message(resource, _message(event))
    else:
        single = copy.copy(rule)
        single.targets = [target]
        _send_to_targets(single, copy.deepcopy(event), transform_input)


def _send_to_function(account_id: str, region: str, function: Any, message: str) -> None:
    backend = sqs_backends[account_id][region]
    name = queue_name(function.function_name)
    if name not in backend.queues:
        backend.create_queue(name)
    backend.send_message(name, message)


def _give_up(rule: Any, target: Mapping[str, Any], event: Any, error: Exception) -> None:
    letters = target.get("DeadLetterConfig", {}).get("Arn")
    logger.error("rule %s cannot reach %s: %s", rule.name, target["Arn"], error)
    if letters:
        _, _, _, region, account_id, name = letters.split(":", 5)
        texts = {"RULE_ARN": rule.arn, "TARGET_ARN": target["Arn"], "ERROR_MESSAGE": str(error)}
        attributes = {
            key: {"DataType": "String", "StringValue": text} for key, text in texts.items()
        }
        sqs_backends[account_id][region].send_message(name, _message(event), attributes)


def _message(event: Mapping[str, Any]) -> str:
    fields = {field: event[field] for field in _MESSAGE_FIELDS if field in event}
    if isinstance(fields.get("time"), int | float):
        moment = dt.datetime.fromtimestamp(fields["time"], dt.timezone.utc)
        fields["time"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps(fields)


def _now() -> float:
    return dt.datetime.now(dt.timezone.utc).timestamp()
