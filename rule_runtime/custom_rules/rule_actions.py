"""Parses and records the actions in a rule's configuration; does not execute them.

The program that runs the evaluation sees the finding, and stops jobs and sends messages itself. So
an evaluation for inspection stops nothing.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Actions", "MessageAction", "StopTrainingAction"]

_ENDPOINTS: Final = ("email", "sms")

_logger = logging.getLogger("stepwatch")


@dataclass
class StopTrainingAction:
    """Requests to stop the training job whose name has a prefix.

    Attributes:
        rule_name: The rule that asks.
        training_job_prefix: Prefix of the job's name, as configured.
        messages: The message of each time that the rule fired.
    """

    rule_name: str
    training_job_prefix: str
    messages: list[str] = field(default_factory=list)

    def invoke(self, message: str = "") -> None:
        """Record that the rule fired."""
        self.messages.append(message)


@dataclass
class MessageAction:
    """Requests to send a message.

    Attributes:
        rule_name: The rule that asks.
        message_type: `email` or `sms`.
        message_endpoint: Address or number.
        messages: The message of each time that the rule fired.
    """

    rule_name: str
    message_type: str
    message_endpoint: str
    messages: list[str] = field(default_factory=list)

    def invoke(self, message: str = "") -> None:
        """Record that the rule fired."""
        self.messages.append(message)


class Actions:
    """The actions of a rule.

    Args:
        actions_str: JSON of an action or a list of actions, each with its `name` (`stoptraining`,
            `email`, `sms`) and `training_job_prefix` or `endpoint`. Invalid actions are skipped
            with a log line, as in the original.
        rule_name: Name of the rule.

    Attributes:
        actions: The actions in order.

    Raises:
        ValueError: If it is not JSON.
    """

    def __init__(self, actions_str: str | None = "", rule_name: str = "") -> None:
        self.actions: list[StopTrainingAction | MessageAction] = []
        text = (actions_str or "").strip()
        if not text:
            return
        content = _parsed(text, rule_name)
        for entry in content if isinstance(content, list) else [content]:
            action = _action(entry, rule_name)
            if action is None:
                _logger.info("rule %s: %r is not a valid action", rule_name, entry)
            else:
                self.actions.append(action)

    def invoke(self, message: str = "") -> None:
        """Record in each action that the rule fired."""
        for action in self.actions:
            action.invoke(message)


def _parsed(text: str, rule_name: str) -> Any:
    try:
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(text.replace('\\"', '"'))  # format of the client's actions
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"rule {rule_name}: the actions {text[:200]!r} are not JSON: {error}"
        ) from None


def _action(entry: object, rule_name: str) -> StopTrainingAction | MessageAction | None:
    if not isinstance(entry, dict):
        return None
    name = str(entry.get("name", "")).lower()
    prefix, endpoint = entry.get("training_job_prefix"), entry.get("endpoint")
    if name == "stoptraining" and isinstance(prefix, str):
        return StopTrainingAction(rule_name, prefix)
    if name in _ENDPOINTS and isinstance(endpoint, str):
        return MessageAction(rule_name, name, endpoint)
    return None
