"""Warns where a prepared job differs from the behaviour of the SageMaker SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.custom_rules.rule_actions import Actions, MessageAction

if TYPE_CHECKING:
    from rule_runtime.jobs.prepared_job import PreparedJob

__all__ = ["other_place", "unsent_messages"]

_ATTRIBUTES: Final = {"email": "ActionEmail", "sms": "ActionSMS"}
"""Message attributes of a deployment that hold the addresses."""


def other_place(job: PreparedJob) -> tuple[str, ...]:
    """Return a warning if the hook's own path replaces the job's output path."""
    own = (job.configuration.hook and job.configuration.hook.s3_output_path) or job.output_path
    if own.rstrip("/") == job.output_path.rstrip("/"):
        return ()
    text = (
        f"tensors go to {job.debug_output}, because s3_output_path={own!r} in hook_config has "
        f"priority over output_path={job.output_path!r}: remove it, or make sure that a deployment "
        "watches this location"
    )
    return (text,)


def unsent_messages(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a warning with the addresses of actions that get no messages."""
    found = dict.fromkeys(
        [
            *(
                (each.message_endpoint, each.message_type)
                for rule in document.get("DebugRuleConfigurations") or ()
                for each in _messages(rule.get("RuleParameters") or {})
            ),
            *(
                (each["endpoint"], each["name"])
                for each in document.get("Actions") or ()
                if each["name"] in _ATTRIBUTES
            ),
        ]
    )
    if not found:
        return ()
    kinds = {kind for _, kind in found}
    attributes = " and ".join(name for kind, name in _ATTRIBUTES.items() if kind in kinds)
    text = (
        f"unlike SageMaker Debugger, Stepwatch sends nothing to "
        f"{', '.join(each for each, _ in found)}: "
        "only subscribers of the deployment's topic (output AlertTopicArn) get messages. "
        f"Subscribe these addresses, and filter by the message attribute {attributes} to get only "
        "the messages of this job"
    )
    return (text,)


def _messages(parameters: Mapping[str, Any]) -> list[MessageAction]:
    try:
        actions = Actions(parameters.get("action_json")).actions
    except ValueError:
        return []  # as in the deployment, which ignores its actions
    return [each for each in actions if isinstance(each, MessageAction)]
