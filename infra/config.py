"""The settings of one deployment: CDK context, validated into a frozen dataclass.

Users write them in cdk.json or on the command line: `cdk deploy -c stepwatch:stage=prod`. The
prefix separates them from CDK's own keys. Each field of `StepwatchConfig` is one setting, with the
function that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from infra import setting_patterns as patterns
from infra.custom_rule_settings import CustomRuleFile, read_custom_rules
from infra.rule_settings import (
    RuleConfiguration,
    pack_of,
    read_rules,
    rule_configuration_names,
)
from infra.setting_checks import PREFIX, contradictions, stack_tag_mistakes, wrong
from infra.settings import (
    Reader,
    SettingError,
    SeveralMistakesError,
    nearest_name,
    read_choice,
    read_flag,
    read_list,
    read_names,
    read_number,
    read_text,
)
from lambdas.contracts.stopping import (
    ANY,
    FATAL,
    OPT_IN,
    STOP_POLICIES,
    STOP_SEVERITIES,
    STOP_TAG,
)

__all__ = [
    "BOUNDARY",
    "PREFIX",
    "READERS",
    "ConfigurationError",
    "RuleConfiguration",
    "StepwatchConfig",
]

EPHEMERAL_STAGE = "dev"
"""The stage whose data is deleted with its stack by default."""

BOUNDARY = "@aws-cdk/core:permissionsBoundary"
"""CDK's key for a managed policy that limits all roles of a stack."""

# Keys of CDK itself: feature flags, settings of its command, results of its lookups.
CDK_KEY = re.compile(
    r"@|aws:|aws-cdk:|(availability-zones|vpc-provider|hosted-zone|ssm|ami|load-balancer"
    r"|load-balancer-listener|security-group|key-provider|cc-api-provider|plugin"
    r"|endpoint-service-availability-zones):|(acknowledged-issue-numbers|cli-telemetry)$"
)


class ConfigurationError(ValueError):
    """The settings have mistakes; the message lists all of them."""

    def __init__(self, mistakes: list[str]) -> None:
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        lines = "\n".join(f"  {mistake}" for mistake in mistakes)
        super().__init__(
            f"{count} in the settings (cdk.json, or -c {PREFIX}<key>=<value>):\n{lines}"
        )
        self.mistakes = tuple(mistakes)


@dataclass(frozen=True)
class StepwatchConfig:
    """Settings of one deployment.

    `tools/settings_documentation.py` writes these lines into docs/reference/stack.md.

    Attributes:
        rules: The deployed rules. A pack (`recommended` or
            `original`), names, an object of names and parameters, a list of these, or
            `DebugRuleConfiguration` objects; also as JSON text. `rule_to_invoke` names the rule if
            the key is another name. Parameters next to a pack override the pack's.
        evaluators: `per_rule`: a queue and a function for each rule. `grouped`: one queue and one
            function for all built-in rules, which costs less. Custom rules stay apart.
        per_job_rules: Whether jobs may bring rules of their own in `job.json`. They share one queue
            and one function.
        custom_rules: Python files that jobs may use as `Rule.custom`: an object of keys and their
            SHA-256. They have a queue and a function of their own.
        custom_rule_bucket: Existing bucket that holds these files. By default, the stack creates
            one if there are files.
        stage: Name of the deployment. The stack is called `Stepwatch-<stage>`.
        data_retention: What happens to buckets, table, key and logs when the stack is deleted:
            `retain` or `destroy`.
        stop_policy: Which jobs may be stopped. `opt_in`: jobs whose `job.json` requests it, or
            whose tag `stop_tag` names a folder above their tensors. `observe`: none. `watched`:
            jobs that write to a watched bucket, unless they opted out. `all`: any SageMaker
            training job of the account and Region, unless it opted out.
        stop_rules: Names of the rules whose findings stop a job, SageMaker's own rules included.
            Empty: all.
        stop_severity: Which findings of these rules stop a job. `fatal`: those from which a run
            does not recover. `any`: all. Default: `fatal` for a pack, `any` if you name the rules,
            in `rules` or in `stop_rules`.
        stop_observed_rules: Names of rules that never stop a job.
        stop_min_rules: Number of rules that must have a finding before a job is stopped. At most
            the number of rules that may stop jobs.
        stop_confirm_s: Seconds that a job may take to end after a stop request. Then an alarm
            reports it.
        stop_platforms: Further platforms whose jobs may be stopped: `batch`, `ecs`.
        stop_tag: Name of the tag by which a SageMaker job, Batch job or ECS task opts in. Its value
            is a folder, `s3://<bucket>/<folder>/`. Findings on tensors below it may stop the job.
            `never` opts out.
        alert_emails: Addresses that get findings and alarms. Each must confirm an email.
        notify_statuses: Statuses that are reported: `IssuesFound`, `NoIssuesFound`, `Error`,
            `Stopped`.
        notify_not_judged: Whether to report a rule without data to evaluate, even if the job did
            not request the rule by name.
        alarms: `all`, or `essential`, which omits the alarms of each rule's function.
        cost_alarm_usd_per_day: Dollars that the functions may cost in a day, as they estimate it at
            list prices. Above it, an alarm starts. By default, there is no such alarm and estimate.
        verdict_latency_s: Seconds from a tensor to its verdict above which an alarm starts.
        canary: Whether a new version of `stop_job`, `finish_job` and `notify` gets a tenth of the
            events for five minutes, and is rolled back if it fails.
        event_bus: Bus of the event rules that wake evaluators: `default`, or `own`, which has room
            for 300 rules of its own. Then each event is paid twice.
        tracing: Whether AWS X-Ray traces the functions.
        retention_days: Days that the functions' logs are kept.
        tensor_expiration_days: Days after which tensors are deleted.
        tensor_bucket_name: Name of the tensor bucket. By default, CloudFormation chooses it.
        new_tensor_buckets: Names of further tensor buckets to create.
        tensor_buckets: Names of existing buckets to watch. Each must send its events to
            EventBridge.
        encryption: `managed`: keys of the services. `kms`: buckets, queues, table, logs and topic
            with a key of your own.
        kms_key_arn: ARN of that key. By default, the stack creates one.
        architecture: Instruction set of the functions, `arm64` or `x86_64`.
        evaluator_timeout_s: Time limit of one evaluation in seconds. Queues hide a message six
            times as long.
        evaluator_memory_mb: Memory of an evaluator in MB.
        batch_size: Largest number of events in one evaluation.
        batching_window_s: Seconds that an evaluation waits for more events. Must be above 0 for a
            batch size above 10.
        maximum_concurrency: Evaluations of one rule that may run at the same time.
        job_files_per_minute: Files of a job that a process of an evaluator evaluates as they come.
            At once, 64 of 300 may come for a function of one rule, 16 for a function of several.
            Above it, steps are evaluated in batches every 30 s, and the verdict says so.
        worker_wait_s: Seconds that a step waits for a rank before it is evaluated without it.
        worker_wait_steps: Number of later steps that must also wait before a rank is given up.
        max_silence_s: Seconds without output after which a run counts as ended.
        event_schema: Whether the schemas of Stepwatch's events are put into EventBridge's registry,
            which some Regions lack.
    """

    rules: Annotated[tuple[RuleConfiguration, ...], read_rules]
    evaluators: Annotated[str, read_choice("per_rule", "grouped")] = "per_rule"
    per_job_rules: Annotated[bool, read_flag] = True
    custom_rules: Annotated[tuple[CustomRuleFile, ...], read_custom_rules] = ()
    custom_rule_bucket: Annotated[str | None, read_text(*patterns.EXISTING_BUCKET_NAME)] = None
    stage: Annotated[str, read_text(*patterns.STAGE)] = "dev"
    data_retention: Annotated[str | None, read_choice("retain", "destroy")] = None
    stop_policy: Annotated[str, read_choice(*STOP_POLICIES)] = OPT_IN
    stop_rules: Annotated[tuple[str, ...], read_names] = ()
    stop_severity: Annotated[str, read_choice(*STOP_SEVERITIES)] = ANY
    stop_observed_rules: Annotated[tuple[str, ...], read_names] = ()
    stop_min_rules: Annotated[int, read_number(1, 100)] = 1
    stop_confirm_s: Annotated[int, read_number(60, 86400)] = 600
    stop_platforms: Annotated[tuple[str, ...], read_list("batch|ecs", "batch, ecs")] = ()
    stop_tag: Annotated[str, read_text(*patterns.TAG_NAME)] = STOP_TAG
    alert_emails: Annotated[tuple[str, ...], read_list(*patterns.EMAIL)] = ()
    notify_statuses: Annotated[tuple[str, ...], read_list(*patterns.STATUSES, at_least=1)] = (
        "IssuesFound",
        "Error",
    )
    notify_not_judged: Annotated[bool, read_flag] = False
    alarms: Annotated[str, read_choice("all", "essential")] = "all"
    cost_alarm_usd_per_day: Annotated[int | None, read_number(1, 1_000_000)] = None
    verdict_latency_s: Annotated[int, read_number(1, 86400)] = 60
    canary: Annotated[bool | None, read_flag] = None
    event_bus: Annotated[str, read_choice("default", "own")] = "default"
    tracing: Annotated[bool, read_flag] = False
    retention_days: Annotated[int, read_number(1, 3653, only=patterns.LOG_RETENTION_DAYS)] = 30
    tensor_expiration_days: Annotated[int, read_number(1, 3650)] = 90
    tensor_bucket_name: Annotated[str | None, read_text(*patterns.BUCKET_NAME)] = None
    new_tensor_buckets: Annotated[tuple[str, ...], read_list(*patterns.BUCKET_NAME)] = ()
    tensor_buckets: Annotated[tuple[str, ...], read_list(*patterns.EXISTING_BUCKET_NAME)] = ()
    encryption: Annotated[str, read_choice("managed", "kms")] = "managed"
    kms_key_arn: Annotated[str | None, read_text(*patterns.KEY_ARN)] = None
    architecture: Annotated[str, read_choice("arm64", "x86_64")] = "arm64"
    evaluator_timeout_s: Annotated[int, read_number(1, 900)] = 60
    evaluator_memory_mb: Annotated[int, read_number(128, 10240)] = 512
    batch_size: Annotated[int, read_number(1, 10000)] = 10
    batching_window_s: Annotated[int, read_number(0, 300)] = 1
    maximum_concurrency: Annotated[int, read_number(2, 1000)] = 10
    job_files_per_minute: Annotated[int, read_number(1, 1_000_000)] = 300
    worker_wait_s: Annotated[int, read_number(1, 86400)] = 600
    worker_wait_steps: Annotated[int, read_number(1, 10000)] = 20
    max_silence_s: Annotated[int, read_number(300, 30 * 86400)] = 86400
    event_schema: Annotated[bool, read_flag] = True

    @property
    def stack_name(self) -> str:
        """Name of the CloudFormation stack."""
        return f"Stepwatch-{self.stage}"

    @property
    def log_group_prefix(self) -> str:
        """Beginning of the names of the functions' log groups."""
        return f"/stepwatch/{self.stage}/"

    @property
    def has_canary(self) -> bool:
        """Whether new versions of functions get few events at first."""
        return self.stage != EPHEMERAL_STAGE if self.canary is None else self.canary

    @property
    def is_grouped(self) -> bool:
        """Whether one function evaluates all built-in rules."""
        return self.evaluators == "grouped"

    @property
    def retains_data(self) -> bool:
        """Whether buckets, table, key and logs stay when the stack is deleted."""
        default = "destroy" if self.stage == EPHEMERAL_STAGE else "retain"
        return (self.data_retention or default) == "retain"

    @classmethod
    def from_context(cls, context: Mapping[str, Any], tags: object = None) -> StepwatchConfig:
        """Read the settings from CDK context.

        Args:
            context: The application's context, including CDK's own keys.
            tags: Tags of the stack, from the top level of cdk.json.

        Raises:
            ConfigurationError: There are mistakes; the message lists all of them.
            RuleCheckError: The parameters of the rules cannot be checked.
        """
        own = {key.removeprefix(PREFIX): v for key, v in context.items() if key.startswith(PREFIX)}
        mistakes = [
            _unknown(key, value)
            for key, value in context.items()
            if not key.startswith(PREFIX) and not CDK_KEY.match(key)
        ]
        mistakes += [_unknown(PREFIX + key, v) for key, v in own.items() if key not in READERS]
        mistakes += _boundary_without_effect(context)
        mistakes += stack_tag_mistakes([] if tags is None else tags)
        values: dict[str, Any] = {}
        for key in READERS.keys() & own.keys():
            mistakes += _read_into(values, key, own[key], READERS[key])
        if "rules" not in own:
            mistakes.append(f"{PREFIX}rules: missing; allowed: at least one rule")
        if "stop_rules" not in own and pack_of(own.get("rules")) is not None:
            values.setdefault("stop_severity", FATAL)
        mistakes += contradictions(values, rule_configuration_names(own.get("rules")))
        if mistakes:
            raise ConfigurationError(sorted(mistakes))
        return cls(**values)


READERS: dict[str, Reader] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(StepwatchConfig, include_extras=True).items()
}
"""The reader of each setting."""


def _read_into(values: dict[str, Any], key: str, given: Any, reader: Reader) -> list[str]:
    """Read one setting into `values`, or return its mistakes."""
    try:
        values[key] = reader(given)
    except SettingError as error:
        return [wrong(key, given, error)]
    except SeveralMistakesError as several:
        return [wrong(key, given, error) for error in several.errors]
    return []


def _unknown(key: str, value: Any) -> str:
    nearest = nearest_name(key.rpartition(":")[2], READERS)
    everywhere = "docs/reference/stack.md lists all settings"
    hint = f"did you mean {PREFIX}{nearest}?" if nearest else everywhere
    return f"{key} = {value!r}: unknown key; {hint}"


def _boundary_without_effect(context: Mapping[str, Any]) -> list[str]:
    """Reject a permissions boundary that CDK would ignore silently."""
    given = context.get(BOUNDARY)
    if given is None or (isinstance(given, Mapping) and {"name", "arn"} & given.keys()):
        return []
    allowed = '{"name": "<policy>"} or {"arn": "<ARN>"} in cdk.json; -c gives text, not an object'
    return [f"{BOUNDARY} = {given!r}: allowed: {allowed}"]
