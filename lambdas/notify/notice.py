"""The message about one change: its subject, its text and its attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lambdas.contracts.events import CUSTOM_RULES, JOB_RULES
from lambdas.notify.untrusted_text import ascii_line, plain_line
from lambdas.shared.stop_table import LOOP, ON_SAGEMAKER
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.jobs.console_links import log_group_page, training_job_page

if TYPE_CHECKING:
    from lambdas.shared.settings import NotifySettings
    from lambdas.shared.stop_table import StopItem
    from rule_runtime.engine.outcome import Evidence

__all__ = ["OVERDUE", "Notice", "StatusFacts", "overdue_notice", "status_notice"]

OVERDUE: Final = "StopOverdue"
"""Status attribute of a message about a job that does not end."""

_MAX_SUBJECT: Final = 99
"""SNS limits subjects to less than 100 ASCII characters."""
_MAX_RULE_IN_SUBJECT: Final = 35
_MAX_NAME: Final = 256
_MAX_LINE: Final = 600
_HEADLINES: Final = {
    RuleStatus.ISSUES_FOUND: "{rule} found an issue in {job}",
    RuleStatus.NO_ISSUES_FOUND: "{rule} found no issue in {job}",
    RuleStatus.ERROR: "{rule} could not evaluate {job}",
    RuleStatus.IN_PROGRESS: "{rule} watches {job}",
    RuleStatus.STOPPING: "{rule} is being stopped for {job}",
    RuleStatus.STOPPED: "{rule} was stopped for {job}",
}
_SCHEME: Final = "s3://"
_OVERDUE_HEADLINE: Final = "{job} continues although it was asked to stop"
_SILENT_HEADLINE: Final = "{job} does not say that it stopped"
"""For jobs where only the training loop was asked, which may have died silently."""


@dataclass(frozen=True)
class Notice:
    """A message.

    Attributes:
        subject: Its subject, at most 99 ASCII characters.
        body: Its text, lines of plain words.
        attributes: Attributes for filters of subscriptions, in the format of Publish.
    """

    subject: str
    body: str
    attributes: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class StatusFacts:
    """Facts about a change of a rule's status.

    Attributes:
        training_job_name: Name of the job.
        rule: Configuration name of the rule.
        status: Its status.
        details: `StatusDetails`.
        evidence: Evidence of a finding.
        root_uri: Location of the tensors; empty if unknown.
        run_id: The run; empty if unknown.
        is_sagemaker_job: Whether the console has a page for the job.
        emails: Addresses of the job's `Email` actions.
        phones: Numbers of the job's `SMS` actions.
    """

    training_job_name: str
    rule: str
    status: RuleStatus
    details: str
    evidence: Evidence | None = None
    root_uri: str = ""
    run_id: str = ""
    is_sagemaker_job: bool = False
    emails: Sequence[str] = field(default_factory=list)
    phones: Sequence[str] = field(default_factory=list)


def status_notice(facts: StatusFacts, settings: NotifySettings) -> Notice:
    """Return the message about a change of a rule's status.

    Args:
        facts: The facts.
        settings: The function's settings, for links.
    """
    headline = _HEADLINES[facts.status]
    job, rule = facts.training_job_name, facts.rule
    lines = [
        headline.format(
            rule=plain_line(rule, _MAX_NAME), job=f"the training job {plain_line(job, _MAX_NAME)}"
        )
        + ".",
        "",
        *_findings(facts),
        "",
        *_places(job, facts.root_uri, facts.run_id),
    ]
    if facts.is_sagemaker_job:
        lines.append(f"Job: {training_job_page(settings.region, job)}")
    lines += _logs(facts, settings)
    attributes = _attributes(job, rule, facts.status.value)
    for name, endpoints in (("ActionEmail", facts.emails), ("ActionSMS", facts.phones)):
        if endpoints:
            listed = json.dumps(list(endpoints))
            attributes[name] = {"DataType": "String.Array", "StringValue": listed}
    return Notice(_subject(headline, rule, job), _text([*lines, *_silencing(rule)]), attributes)


def overdue_notice(item: StopItem, settings: NotifySettings) -> Notice:
    """Return the message about a job that does not end.

    Args:
        item: The request to stop it.
        settings: The function's settings, for links.
    """
    target, rule = item.target, item.reason.rule
    job = target.training_job_name
    headline = _SILENT_HEADLINE if target.platform == LOOP else _OVERDUE_HEADLINE
    lines = [
        headline.format(job=f"The training job {plain_line(job, _MAX_NAME)}") + ".",
        "",
        f"It was asked {item.num_requests} times, because {plain_line(rule, _MAX_NAME)} found: "
        + plain_line(item.reason.text, _MAX_LINE),
        f"Platform: {target.platform}",
        "What to do: check whether it still runs, and stop it manually.",
        "",
        *_places(job, target.root_uri, target.run_id),
    ]
    if target.platform == ON_SAGEMAKER:
        lines.append(f"Job: {training_job_page(settings.region, job)}")
    subject = _subject(headline, rule, job)
    return Notice(subject, _text(lines), _attributes(job, rule, OVERDUE))


def _findings(facts: StatusFacts) -> list[str]:
    evidence = facts.evidence
    if facts.status is not RuleStatus.ISSUES_FOUND or evidence is None:
        return [f"Details: {plain_line(facts.details, _MAX_LINE)}"] if facts.details else []
    seen = f"Seen at step {evidence.first_step}"
    if evidence.count > 1:
        seen += f", and at {evidence.count} steps up to {evidence.last_step}"
    measure = plain_line(evidence.measure, _MAX_NAME)
    lines = [
        f"What was found: {plain_line(evidence.line, _MAX_LINE)}",
        seen,
        f"Evidence: {measure} {evidence.value:.6g}, threshold {evidence.threshold:.6g}",
    ]
    if evidence.remedy:
        lines.append(f"What to try: {plain_line(evidence.remedy, _MAX_LINE)}")
    return lines


def _places(job: str, root_uri: str, run_id: str) -> list[str]:
    lines = [f"Training job: {plain_line(job, _MAX_NAME)}"]
    if run_id:
        lines.append(f"Run: {plain_line(run_id, _MAX_NAME)}")
    if root_uri:
        # No mail program converts this scheme into a link, so it can stay.
        place = plain_line(root_uri.removeprefix(_SCHEME), _MAX_LINE)
        lines.append(f"Tensors: {_SCHEME}{place}")
    return lines


def _logs(facts: StatusFacts, settings: NotifySettings) -> list[str]:
    """Return the logs of a Stepwatch rule; one that a job configured may have either of two."""
    groups = settings.rule_log_groups
    names = (facts.rule,) if facts.rule in groups else (JOB_RULES, CUSTOM_RULES)
    if not facts.root_uri:
        return []  # a rule of SageMaker
    pages = [log_group_page(settings.region, groups[name]) for name in names if name in groups]
    return [f"Log of the rule: {page}" for page in pages]


def _silencing(rule: str) -> list[str]:
    policy = json.dumps(
        {"RuleConfigurationName": [{"anything-but": [plain_line(rule, _MAX_NAME)]}]}
    )
    return [
        "",
        "To get no more messages about this rule, give your subscription the filter policy",
        policy,
        "or leave the rule out of the job's DebugRuleConfigurations.",
    ]


def _subject(headline: str, rule: str, job: str) -> str:
    """Return the headline, and shorten the job's name first if it is too long."""
    short_rule = ascii_line(rule, _MAX_RULE_IN_SUBJECT)
    rest = "Stepwatch: " + headline.format(rule=short_rule, job="")
    return "Stepwatch: " + headline.format(
        rule=short_rule, job=ascii_line(job, _MAX_SUBJECT - len(rest))
    )


def _attributes(job: str, rule: str, status: str) -> dict[str, dict[str, str]]:
    texts = {
        "RuleConfigurationName": rule,
        "RuleEvaluationStatus": status,
        "TrainingJobName": job,
    }
    return {
        name: {"DataType": "String", "StringValue": _attribute(text)}
        for name, text in texts.items()
    }


def _attribute(text: Any) -> str:
    """Return a string that an attribute accepts: not empty, and valid in XML."""
    return "".join(c if c.isprintable() else " " for c in text) or "-"


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
