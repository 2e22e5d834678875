"""Settings of the functions, parsed once from the environment into frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from lambdas.contracts import environment
from lambdas.contracts.events import CUSTOM_RULES, JOB_RULES
from lambdas.contracts.name_list import resolve_names
from lambdas.contracts.stopping import ANY, OPT_IN, STOP_POLICIES, STOP_SEVERITIES, STOP_TAG
from lambdas.shared.environment_reader import CustomRules, EnvironmentReader, SettingsError
from rule_runtime.engine.outcome import RuleStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

__all__ = [
    "CustomRules",
    "EvaluateRuleSettings",
    "FinishJobSettings",
    "NotifySettings",
    "SettingsError",
    "StopJobSettings",
    "SweepSettings",
]

DEFAULT_NOTIFY_STATUSES: Final = frozenset({"IssuesFound", "Error"})
STOP_PLATFORMS: Final = ("batch", "ecs")
"""Other platforms than SageMaker whose API can stop jobs."""
_REGION: Final = "AWS_REGION"  # set by Lambda
_DEFAULT_REGION: Final = "AWS_DEFAULT_REGION"
_MAX_SILENCE_S: Final = 24 * 3600.0


@dataclass(frozen=True)
class _Settings:
    """Settings of every function.

    Attributes:
        state_table_name: The table of evaluation states and registrations.
        tensor_bucket_names: Watched buckets; objects of other buckets are rejected.
    """

    state_table_name: str
    tensor_bucket_names: frozenset[str]

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Self:
        """Parse the settings in `variables`.

        Raises:
            SettingsError: Variables are missing or invalid; the message lists all.
        """
        reader = EnvironmentReader(variables)
        settings = cls._read(reader)
        reader.raise_problems()
        return settings

    @classmethod
    def _read(cls, reader: EnvironmentReader) -> Self:
        """Return the settings; mistakes are reported in this order."""
        raise NotImplementedError


@dataclass(frozen=True)
class EvaluateRuleSettings(_Settings):
    """Settings of an evaluator.

    Attributes:
        rule_configuration_name: Configuration name of the rule; `#job-rules` or `#custom-rules` for
            a function that evaluates rules that jobs configure.
        rule_parameters: The rule's parameters as strings, including `rule_to_invoke`; empty for
            such a function.
        event_bus_name: The bus for status events.
        deployed_rules: Names of the deployed rules; for such a function.
        grouped_rules: Parameters of the deployed rules that it evaluates itself, by their names;
            None if each has its own function.
        custom_rules: Files of rules that jobs may use; likewise.
        queue_url: The function's own queue, for work that one call has no time for; None if the
            records themselves must be delivered again.
        worker_wait_s: Seconds that a step waits for a worker, see `Patience`.
        job_files_per_minute: Files of a job that a process evaluates as they come, in a minute.
        worker_wait_steps: Number of later steps that must wait, too, before a worker is given up.
    """

    rule_configuration_name: str
    rule_parameters: Mapping[str, str]
    event_bus_name: str = "default"
    deployed_rules: frozenset[str] = frozenset()
    grouped_rules: Mapping[str, Mapping[str, str]] | None = None
    custom_rules: CustomRules = field(default_factory=CustomRules)
    queue_url: str | None = None
    worker_wait_s: float = 600.0
    worker_wait_steps: int = 20
    job_files_per_minute: int = 300

    @classmethod
    def _read(cls, reader: EnvironmentReader) -> Self:
        name = reader.rule_name(environment.RULE_CONFIGURATION_NAME, (JOB_RULES, CUSTOM_RULES))
        has_rule = name not in (JOB_RULES, CUSTOM_RULES)
        return cls(
            rule_configuration_name=name,
            rule_parameters=reader.rule_parameters(environment.RULE_PARAMETERS) if has_rule else {},
            **_watched(reader),
            event_bus_name=reader.text(environment.EVENT_BUS_NAME, default="default"),
            deployed_rules=reader.names(environment.DEPLOYED_RULES),
            grouped_rules=reader.grouped_rules(environment.GROUPED_RULES),
            custom_rules=reader.custom_rules(
                environment.CUSTOM_RULE_BUCKET, environment.CUSTOM_RULES
            ),
            queue_url=reader.text(environment.QUEUE_URL, default="") or None,
            worker_wait_s=reader.number(environment.WORKER_WAIT_S, default=600.0),
            job_files_per_minute=int(reader.number(environment.JOB_FILES_PER_MINUTE, default=300)),
            worker_wait_steps=int(reader.number(environment.WORKER_WAIT_STEPS, default=20)),
        )


@dataclass(frozen=True)
class StopJobSettings(_Settings):
    """Settings of the function that stops jobs.

    Attributes:
        policy: Which jobs may be stopped, a policy of `lambdas.contracts.stopping`.
        stop_rules: Rules whose finding stops a job; empty for every rule.
        severity: Which of their findings do, a severity of `lambdas.contracts.stopping`.
        observed_rules: Rules whose finding never stops a job.
        deployed_rules: Rules with their own functions; empty if jobs cannot configure others.
        min_rules: Number of different rules that must have found an issue to stop a job.
        platforms: Further platforms whose API may be called: `batch`, `ecs`.
        tag: The tag with which a job names the folder whose findings may stop it.
        confirm_s: Seconds that a job has to end before the request is repeated.
        event_bus_name: The bus for events about jobs that do not end.
    """

    policy: str = OPT_IN
    stop_rules: frozenset[str] = frozenset()
    severity: str = ANY
    observed_rules: frozenset[str] = frozenset()
    deployed_rules: frozenset[str] = frozenset()
    min_rules: int = 1
    platforms: frozenset[str] = frozenset()
    tag: str = STOP_TAG
    confirm_s: float = 600.0
    event_bus_name: str = "default"

    @classmethod
    def _read(cls, reader: EnvironmentReader) -> Self:
        return cls(
            **_watched(reader),
            policy=reader.choice(environment.STOP_POLICY, STOP_POLICIES),
            stop_rules=reader.names(environment.STOP_RULES),
            severity=reader.choice(environment.STOP_SEVERITY, STOP_SEVERITIES),
            observed_rules=reader.names(environment.STOP_OBSERVED_RULES),
            deployed_rules=reader.names(environment.DEPLOYED_RULES),
            min_rules=int(reader.number(environment.STOP_MIN_RULES, default=1)),
            platforms=reader.choices(environment.STOP_PLATFORMS, STOP_PLATFORMS),
            tag=reader.text(environment.STOP_TAG, default=STOP_TAG),
            confirm_s=reader.number(environment.STOP_CONFIRM_S, default=600.0),
            event_bus_name=reader.text(environment.EVENT_BUS_NAME, default="default"),
        )

    def stops(self, rule_configuration_name: str) -> bool:
        """Return whether a finding of this rule stops jobs."""
        name = rule_configuration_name
        return (not self.stop_rules or name in self.stop_rules) and name not in self.observed_rules

    def stops_at(self, *, is_fatal: bool) -> bool:
        """Return whether findings of such a severity stop jobs."""
        return is_fatal or self.severity == ANY

    def is_jobs_own(self, rule_configuration_name: str) -> bool:
        """Return whether only a job can have configured this rule, and may be stopped by it."""
        known = self.deployed_rules | self.observed_rules
        return bool(self.deployed_rules) and rule_configuration_name not in known


@dataclass(frozen=True)
class FinishJobSettings(_Settings):
    """Settings of the function for ended jobs.

    Attributes:
        rule_queue_urls: The evaluators' queues by rule configuration name.
        event_bus_name: The bus for summaries of jobs.
    """

    rule_queue_urls: Mapping[str, str]
    event_bus_name: str = "default"

    @classmethod
    def _read(cls, reader: EnvironmentReader) -> Self:
        return cls(
            **_watched(reader),
            rule_queue_urls=resolve_names(reader.texts(environment.RULE_QUEUE_URLS)),
            event_bus_name=reader.text(environment.EVENT_BUS_NAME, default="default"),
        )


@dataclass(frozen=True)
class SweepSettings(FinishJobSettings):
    """Settings of the function that checks quiet runs.

    Attributes:
        max_silence_s: Seconds without output after which a run counts as ended.
    """

    max_silence_s: float = _MAX_SILENCE_S

    @classmethod
    def _read(cls, reader: EnvironmentReader) -> Self:
        return replace(
            super()._read(reader),
            max_silence_s=reader.number(environment.MAX_SILENCE_S, default=_MAX_SILENCE_S),
        )


@dataclass(frozen=True)
class NotifySettings(_Settings):
    """Settings of the function that sends messages.

    Attributes:
        topic_arn: The topic for messages.
        region: Region of the deployment, for links to the console.
        statuses: Statuses that cause a message.
        tells_not_judged: True to also send a message if a rule that the job did not request was not
            evaluated.
        rule_log_groups: Names of the evaluators' log groups by rule configuration name.
    """

    topic_arn: str
    region: str
    statuses: frozenset[str] = DEFAULT_NOTIFY_STATUSES
    tells_not_judged: bool = False
    rule_log_groups: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def _read(cls, reader: EnvironmentReader) -> Self:
        statuses = reader.choices(environment.NOTIFY_STATUSES, [s.value for s in RuleStatus])
        has_groups = bool(reader.text(environment.RULE_LOG_GROUPS, default=""))
        listed = reader.texts(environment.RULE_LOG_GROUPS) if has_groups else {}
        return cls(
            **_watched(reader),
            topic_arn=reader.text(environment.TOPIC_ARN),
            region=reader.text(_REGION, default=reader.text(_DEFAULT_REGION, default="") or None),
            statuses=statuses or DEFAULT_NOTIFY_STATUSES,
            tells_not_judged=reader.flag(environment.NOTIFY_NOT_JUDGED, default=False),
            rule_log_groups=resolve_names(listed),
        )


def _watched(reader: EnvironmentReader) -> dict[str, Any]:
    return {
        "state_table_name": reader.text(environment.STATE_TABLE_NAME),
        "tensor_bucket_names": reader.bucket_names(environment.TENSOR_BUCKET_NAMES),
    }
