"""The settings of one deployment: CDK context, validated into a frozen dataclass.

A user writes them in cdk.json or types them: `cdk deploy -c stepwatch:stop_policy=observe`. The
prefix keeps them apart from CDK's own keys, whatever those will be. Each field of
`StepwatchConfig` is one setting; `FIELDS` says how it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from infra.rule_settings import RuleConfiguration, read_rules, rule_configuration_names
from infra.settings import (
    Reader,
    SettingError,
    SeveralMistakesError,
    nearest_name,
    read_choice,
    read_flag,
    read_names,
    read_number,
    read_text,
)

__all__ = ["PREFIX", "ConfigurationError", "RuleConfiguration", "StepwatchConfig"]

PREFIX = "stepwatch:"

LOG_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096),
    *(1827, 2192, 2557, 2922, 3288, 3653),
)
"""The numbers of days that CloudWatch Logs accepts."""

LARGEST_BATCH_WITHOUT_WINDOW = 10
"""Lambda accepts a larger batch of SQS messages only with a batching window."""

# Keys of CDK itself: feature flags, settings of its command, answers of its look-ups.
CDK_KEY = re.compile(
    r"@|aws:|aws-cdk:|(availability-zones|vpc-provider|hosted-zone|ssm|ami|load-balancer"
    r"|load-balancer-listener|security-group|key-provider|cc-api-provider|plugin"
    r"|endpoint-service-availability-zones):|(acknowledged-issue-numbers|cli-telemetry)$"
)


class ConfigurationError(ValueError):
    """The settings hold mistakes; the message names every one of them."""

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

    Attributes:
        rules: The configured rules; each becomes one queue and one function.
        stage: Name of the deployment; the stack is called `Stepwatch-<stage>`.
        stop_policy: `stop`, or `observe`: judge and tell, never stop a job.
        stop_rules: Names of the rules whose finding stops a job; empty: all of them.
        stop_any_native_job: Whether SageMaker's own events and direct invocations may stop jobs
            that were not registered with this deployment.
        retention_days: Days that the functions' logs are kept.
        tensor_expiration_days: Days after which tensors are deleted.
        tensor_bucket_name: Name of the tensor bucket; None lets CloudFormation choose one.
        architecture: Instruction set of the functions, `arm64` or `x86_64`.
        evaluator_timeout_s: Time limit of one evaluation in seconds.
        evaluator_memory_mb: Memory of an evaluator in MB.
        batch_size: Largest number of events in one evaluation.
        batching_window_s: Seconds that an evaluation waits for more events.
        maximum_concurrency: Evaluations of one rule that may run at the same time.
    """

    rules: tuple[RuleConfiguration, ...]
    stage: str = "dev"
    stop_policy: str = "stop"
    stop_rules: tuple[str, ...] = ()
    stop_any_native_job: bool = True
    retention_days: int = 30
    tensor_expiration_days: int = 90
    tensor_bucket_name: str | None = None
    architecture: str = "arm64"
    evaluator_timeout_s: int = 60
    evaluator_memory_mb: int = 512
    batch_size: int = 10
    batching_window_s: int = 1
    maximum_concurrency: int = 10

    @property
    def stack_name(self) -> str:
        """Name of the CloudFormation stack."""
        return f"Stepwatch-{self.stage}"

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> StepwatchConfig:
        """Read the settings out of CDK context.

        Args:
            context: All of the application's context, CDK's own keys among it.

        Raises:
            ConfigurationError: With every mistake, if there is any.
            RuleCheckError: If the rules cannot be asked about their parameters.
        """
        own = {key.removeprefix(PREFIX): v for key, v in context.items() if key.startswith(PREFIX)}
        mistakes = [
            _unknown(key, value)
            for key, value in context.items()
            if not key.startswith(PREFIX) and not CDK_KEY.match(key)
        ]
        mistakes += [_unknown(PREFIX + key, v) for key, v in own.items() if key not in FIELDS]
        values: dict[str, Any] = {}
        for key in FIELDS.keys() & own.keys():
            mistakes += _read_into(values, key, own[key], FIELDS[key])
        if "rules" not in own:
            mistakes.append(f"{PREFIX}rules: missing; allowed: at least one rule")
        mistakes += _contradictions(values, rule_configuration_names(own.get("rules")))
        if mistakes:
            raise ConfigurationError(sorted(mistakes))
        return cls(**values)


FIELDS: dict[str, Reader] = {
    "rules": read_rules,
    "stage": read_text(
        "[a-z][a-z0-9-]{0,19}", "at most 20 lower-case letters, digits and '-', a letter first"
    ),
    "stop_policy": read_choice("stop", "observe"),
    "stop_rules": read_names,
    "stop_any_native_job": read_flag,
    "retention_days": read_number(1, 3653, only=LOG_RETENTION_DAYS),
    "tensor_expiration_days": read_number(1, 3650),
    "tensor_bucket_name": read_text(
        "[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", "3 to 63 lower-case letters, digits and '-'"
    ),
    "architecture": read_choice("arm64", "x86_64"),
    "evaluator_timeout_s": read_number(1, 900),
    "evaluator_memory_mb": read_number(128, 10240),
    "batch_size": read_number(1, 10000),
    "batching_window_s": read_number(0, 300),
    "maximum_concurrency": read_number(2, 1000),
}


def _read_into(values: dict[str, Any], key: str, given: Any, reader: Reader) -> list[str]:
    """Read one setting into `values`, or return what is wrong with it."""
    try:
        values[key] = reader(given)
    except SettingError as error:
        return [_wrong(key, given, error)]
    except SeveralMistakesError as several:
        return [_wrong(key, given, error) for error in several.errors]
    return []


def _unknown(key: str, value: Any) -> str:
    valid = [PREFIX + field.name for field in fields(StepwatchConfig)]
    name = key.rpartition(":")[2]
    nearest = nearest_name(PREFIX + name, valid)
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"{key} = {value!r}: unknown key; allowed: {', '.join(valid)}{hint}"


def _wrong(key: str, value: Any, error: SettingError) -> str:
    shown = value if error.value is None else error.value
    hint = f"; nearest: {error.nearest}" if error.nearest else ""
    return f"{PREFIX}{key}{error.part} = {shown!r}: allowed: {error.allowed}{hint}"


def _contradictions(values: Mapping[str, Any], rule_names: tuple[str, ...]) -> list[str]:
    mistakes = []
    for name in values.get("stop_rules", ()) if rule_names else ():
        if name not in rule_names:
            nearest = nearest_name(name, rule_names)
            error = SettingError(f"the configured rules {', '.join(rule_names)}", nearest=nearest)
            mistakes.append(_wrong("stop_rules", name, error))
    window = values.get("batching_window_s", StepwatchConfig.batching_window_s)
    size = values.get("batch_size", StepwatchConfig.batch_size)
    if size > LARGEST_BATCH_WITHOUT_WINDOW and window == 0:
        error = SettingError(f"at least 1 with a {PREFIX}batch_size above 10 (here {size})")
        mistakes.append(_wrong("batching_window_s", window, error))
    return mistakes
