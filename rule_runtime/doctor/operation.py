"""Checks the operation of a deployed stack: stops, events, subscribers, alarms and load."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from rule_runtime.doctor.asking import asked
from rule_runtime.doctor.finding import Finding, Verdict
from rule_runtime.doctor.load import load_findings
from rule_runtime.jobs.aws import Aws, AwsRequestError
from rule_runtime.jobs.deployment import resolve_names

__all__ = ["operation_findings"]

_FAILURES: Final = {"stop_job": "StopJob", "finish_job": "FinishJob", "notify": "Notify"}
"""Functions with a failure queue, and the prefixes of their stack outputs."""
# The same as in `lambdas.contracts.environment`, which is not part of the installed package.
_STOP_POLICY: Final = "STEPWATCH_STOP_POLICY"
_STOP_RULES: Final = "STEPWATCH_STOP_RULES"
_STOP_SEVERITY: Final = "STEPWATCH_STOP_SEVERITY"
_STOP_OBSERVED_RULES: Final = "STEPWATCH_STOP_OBSERVED_RULES"
_RULE_QUEUE_URLS: Final = "STEPWATCH_RULE_QUEUE_URLS"
_STOPPED: Final = {
    "opt_in": "a job that opted in",
    "watched": "a job that writes to a watched bucket",
    "all": "any training job",
}
"""The jobs that are stopped, by stop policy; an older stack has another policy."""
_PENDING: Final = "PendingConfirmation"
_WAITING: Final = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")


def operation_findings(aws: Aws, stack_name: str, outputs: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings on stops, unhandled events, subscribers, alarms and load.

    Args:
        aws: The account.
        stack_name: Name of the stack.
        outputs: Its outputs; checks of outputs that an older stack lacks are skipped.
    """
    if "StopJobFunctionName" in outputs:
        yield _stops(aws, outputs["StopJobFunctionName"])
    if "FinishJobFunctionName" in outputs:
        yield _waiting(aws, stack_name, outputs)
    if "AlertTopicArn" in outputs:
        yield _subscriptions(aws, outputs["AlertTopicArn"])
    yield _alarms(aws, stack_name)
    yield from load_findings(aws, stack_name)


def _stops(aws: Aws, function: str) -> Finding:
    subject = "stops"
    found, error = asked(aws, "lambda", "get_function_configuration", FunctionName=function)
    if error is not None:
        return _untold(subject, error, "lambda:GetFunctionConfiguration")
    variables = found["Environment"]["Variables"]
    policy = variables.get(_STOP_POLICY, "")
    if policy == "observe":
        return Finding(subject, Verdict.OK, "no finding stops a job: the policy is to observe")
    finding = "fatal finding" if variables.get(_STOP_SEVERITY) == "fatal" else "finding"
    whom = _STOPPED.get(policy, "a job")
    observed = _names(variables.get(_STOP_OBSERVED_RULES))
    stopping = [name for name in _names(variables.get(_STOP_RULES)) if name not in observed]
    if not _names(variables.get(_STOP_RULES)):
        but = f" except {', '.join(observed)}" if observed else ""
        return Finding(subject, Verdict.OK, f"a {finding} of any rule{but} stops {whom}")
    message = f"{finding}s of these rules stop {whom}: {', '.join(stopping) or 'none'}"
    return Finding(subject, Verdict.OK, message)


def _waiting(aws: Aws, stack_name: str, outputs: Mapping[str, str]) -> Finding:
    subject = "events not handled"
    try:
        numbers = {name: _number(aws, url) for name, url in _queues(aws, outputs).items()}
    except AwsRequestError as error:
        rights = "lambda:GetFunctionConfiguration, sqs:GetQueueAttributes"
        return _untold(subject, error, rights)
    waiting = ", ".join(f"{name} {number}" for name, number in numbers.items() if number)
    if not waiting:
        return Finding(subject, Verdict.OK, "none waits")
    stage = stack_name.partition("-")[2]
    remedy = f"in a checkout: .venv/bin/python -m infra.redrive --stage {stage}"
    return Finding(subject, Verdict.PROBLEM, f"some wait: {waiting}", remedy)


def _queues(aws: Aws, outputs: Mapping[str, str]) -> dict[str, str]:
    """Return the failure queues by function and by rule."""
    urls = {
        name: outputs[f"{key}FailuresUrl"]
        for name, key in _FAILURES.items()
        if f"{key}FailuresUrl" in outputs
    }
    function = outputs["FinishJobFunctionName"]
    found = aws.call("lambda", "get_function_configuration", FunctionName=function)
    listed = resolve_names(found["Environment"]["Variables"].get(_RULE_QUEUE_URLS))
    for rule, url in listed.items():
        policy = json.loads(_attributes(aws, url, ["RedrivePolicy"])["RedrivePolicy"])
        # The dead-letter queue is in the same account and Region.
        name = policy["deadLetterTargetArn"].rpartition(":")[2]
        urls[rule] = f"{url.rpartition('/')[0]}/{name}"
    return urls


def _number(aws: Aws, url: str) -> int:
    found = _attributes(aws, url, list(_WAITING))
    return sum(int(found[name]) for name in _WAITING)


def _attributes(aws: Aws, url: str, names: list[str]) -> Mapping[str, str]:
    answer = aws.call("sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=names)
    found: Mapping[str, str] = answer["Attributes"]
    return found


def _subscriptions(aws: Aws, topic: str) -> Finding:
    subject = "mails"
    found, error = asked(aws, "sns", "list_subscriptions_by_topic", TopicArn=topic)
    if error is not None:
        return _untold(subject, error, "sns:ListSubscriptionsByTopic")
    subscriptions = found["Subscriptions"]
    pending = [each["Endpoint"] for each in subscriptions if each["SubscriptionArn"] == _PENDING]
    if pending:
        message = f"not confirmed, so they receive nothing: {', '.join(pending)}"
        return Finding(subject, Verdict.NOTE, message, "confirm the mail that AWS sent there")
    if not subscriptions:
        remedy = "deploy with stepwatch:alert_emails, or subscribe to the topic"
        return Finding(subject, Verdict.NOTE, "no subscriber receives findings and alarms", remedy)
    return Finding(
        subject, Verdict.OK, f"subscriptions of the topic, confirmed: {len(subscriptions)}"
    )


def _alarms(aws: Aws, stack_name: str) -> Finding:
    subject = "alarms"
    prefix = f"{stack_name}-"
    found, error = asked(
        aws, "cloudwatch", "describe_alarms", AlarmNamePrefix=prefix, StateValue="ALARM"
    )
    if error is not None:
        return _untold(subject, error, "cloudwatch:DescribeAlarms")
    names = [each["AlarmName"].removeprefix(prefix) for each in found["MetricAlarms"]]
    if not names:
        return Finding(subject, Verdict.OK, "none is on")
    remedy = "see their descriptions in CloudWatch"
    return Finding(subject, Verdict.PROBLEM, f"on: {', '.join(names)}", remedy)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _untold(subject: str, error: Exception, permission: str) -> Finding:
    return Finding(subject, Verdict.NOTE, str(error), f"{permission} is needed to check this")
