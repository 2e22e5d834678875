"""The actions that a rule's configuration asks for: read and remembered, not carried out.

Stopping a job and sending messages are the work of anyone who runs the evaluation, which sees the
finding itself. So a rule that somebody evaluates only to look at a run stops nothing.
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
    """Asks to stop the training job whose name begins with a prefix.

    Attributes:
        rule_name: The rule that asks.
        training_job_prefix: Beginning of the job's name, as it was written.
        messages: What came with each time that the rule fired.
    """

    rule_name: str
    training_job_prefix: str
    messages: list[str] = field(default_factory=list)

    def invoke(self, message: str = "") -> None:
        """Remember that the rule fired."""
        self.messages.append(message)


@dataclass
class MessageAction:
    """Asks to send a message.

    Attributes:
        rule_name: The rule that asks.
        message_type: `email` or `sms`.
        message_endpoint: Address or number.
        messages: What came with each time that the rule fired.
    """

    rule_name: str
    message_type: str
    message_endpoint: str
    messages: list[str] = field(default_factory=list)

    def invoke(self, message: str = "") -> None:
        """Remember that the rule fired."""
        self.messages.append(message)


class Actions:
    """The actions of a rule.

    Args:
        actions_str: JSON: an action or a list of them, each with its `name` (`stoptraining`,
            `email`, `sms`) and `training_job_prefix` or `endpoint`. What is no action is left out
            with a log line, as the original does.
        rule_name: Name of the rule.

    Attributes:
        actions: The actions in their order.

    Raises:
        ValueError: If it is no JSON.
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
                _logger.info("rule %s: %r is no action that can be taken", rule_name, entry)
            else:
                self.actions.append(action)

    def invoke(self, message: str = "") -> None:
        """Remember in each action that the rule fired."""
        for action in self.actions:
            action.invoke(message)


def _parsed(text: str, rule_name: str) -> Any:
    try:
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(text.replace('\\"', '"'))  # as the client's actions are serialised
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"rule {rule_name}: the actions {text[:200]!r} are no JSON: {error}"
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
