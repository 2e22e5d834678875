"""Start ministack, with what it lacks closed by patches whose docstrings say what it does without.

Run by the Python of `.venv-e2e`, with nothing of this checkout on its path.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from ministack import app
from ministack.core import iam_actions
from ministack.services.cloudformation import provisioners

ALARM = "AWS::CloudWatch::Alarm"


def accept_alarms_on_expressions() -> None:
    """Record alarms on a metric expression, without effect; others are made by ministack itself.

    Without it the first of them, which all of ours but one are, ends the deployment.
    """
    own = provisioners._RESOURCE_HANDLERS[ALARM]

    def create(logical_id: str, properties: Mapping[str, Any], stack: str) -> Any:
        if properties.get("Metrics"):
            return f"{stack}-{logical_id}", {}
        return own["create"](logical_id, properties, stack)

    def delete(physical_id: str, properties: Mapping[str, Any]) -> None:
        if not properties.get("Metrics"):
            own["delete"](physical_id, properties)

    provisioners._RESOURCE_HANDLERS[ALARM] = {**own, "create": create, "delete": delete}


def authorise_batches_as_single_messages() -> None:
    """Let the permission for one message cover a batch of them, as on AWS.

    Without it each batch of SQS is denied. [doc] Amazon SQS batch actions, "Permissions".
    """
    own = iam_actions.extract_iam_action

    def extract_iam_action(*request: Any) -> str | None:
        action = own(*request)
        if action and action.startswith("sqs:"):
            return action.removesuffix("Batch")
        return action

    iam_actions.extract_iam_action = extract_iam_action


def tell_policies_of_put_events() -> None:
    """Let policies have conditions on source and type of the events that are put, as on AWS.

    Without it PutEvents is denied wherever a policy asks for `events:source`.
    """
    own = iam_actions.request_tag_context

    def request_tag_context(service: str, action: str, body: bytes, *rest: Any) -> dict[str, Any]:
        context: dict[str, Any] = own(service, action, body, *rest)
        if action != "events:PutEvents":
            return context
        entries = json.loads(body)["Entries"]
        for key, member in (("events:source", "Source"), ("events:detail-type", "DetailType")):
            values = {entry[member] for entry in entries}
            if len(values) == 1:
                context[key] = values.pop()
        return context

    iam_actions.request_tag_context = request_tag_context


def serve_one_port_only() -> None:
    """Serve the port that was asked for; without it port 443, too, where that is free."""
    app._port_is_bindable = lambda *_: False


def end_with_the_tests() -> None:
    """End at the end of standard input, which the tests hold; functions end at that of theirs."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_tests, daemon=True).start()
    accept_alarms_on_expressions()
    authorise_batches_as_single_messages()
    tell_policies_of_put_events()
    serve_one_port_only()
    app.main()
