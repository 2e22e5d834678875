"""Entry point of the functions that evaluate rules."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)

from hook_layer.storage.base import Store
from hook_layer.storage.s3 import S3Store
from lambdas.contracts.events import CUSTOM_RULES, JOB_RULES
from lambdas.evaluate_rule.attempts import DynamoAttempts
from lambdas.evaluate_rule.continuation import Continuations
from lambdas.evaluate_rule.job_evaluation import JobEvaluation
from lambdas.evaluate_rule.job_limits import (
    BURST,
    BURST_OF_ONE_RULE,
    MAX_JOB_BYTES,
    JobLimits,
)
from lambdas.evaluate_rule.job_registry import JobRegistry
from lambdas.evaluate_rule.job_rules import JobRules
from lambdas.evaluate_rule.publication import Publication
from lambdas.evaluate_rule.redelivery import Redelivery
from lambdas.evaluate_rule.rules import BuiltInRules, DeployedRules, RuleSource
from lambdas.evaluate_rule.run_evaluation import RunEvaluation
from lambdas.evaluate_rule.service import EvaluateRuleService
from lambdas.shared import clients
from lambdas.shared.event_bus import EventBus
from lambdas.shared.observability import Telemetry
from lambdas.shared.registration import RegistrationTable
from lambdas.shared.rule_memory import RuleMemories
from lambdas.shared.settings import EvaluateRuleSettings
from lambdas.shared.state_groups import StateGroups
from lambdas.shared.state_table import DynamoStateTable, RuleItems
from lambdas.shared.states import GroupTable
from lambdas.shared.wake import WakeQueue
from rule_runtime.engine.progress import Patience

__all__ = ["lambda_handler"]

_FUNCTION: Final = "evaluate_rule"
_LONGEST_MS: Final = 900_000.0
"""Lambda's maximum timeout, for manual calls, milliseconds."""
_now: Final[Callable[[], float]] = time.time
"""Seconds since the epoch; the simulation of costs has a clock of its own."""
_IN_LAMBDA: Final = "AWS_LAMBDA_INITIALIZATION_TYPE"

_processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)


@cache
def _settings() -> EvaluateRuleSettings:
    return EvaluateRuleSettings.from_environment(os.environ)


@cache
def _telemetry() -> Telemetry:
    return Telemetry(_FUNCTION, rule=_settings().rule_configuration_name)


@cache
def _service() -> EvaluateRuleService:
    settings, telemetry = _settings(), _telemetry()
    registrations = RegistrationTable(clients.dynamodb(), settings.state_table_name)
    name, rule_source = settings.rule_configuration_name, _rule_source()
    return EvaluateRuleService(
        bucket_names=settings.tensor_bucket_names,
        jobs=JobEvaluation(
            rule_source,
            JobRegistry(registrations, telemetry),
            _evaluation(rule_source),
            telemetry,
            group="" if settings.grouped_rules is None else name,
        ),
        attempts=DynamoAttempts(clients.dynamodb(), settings.state_table_name, name),
        open_store=_store_opener(),
        limits=JobLimits(
            settings.job_files_per_minute,
            MAX_JOB_BYTES,
            burst=BURST if name in (JOB_RULES, CUSTOM_RULES) else BURST_OF_ONE_RULE,
        ),
        telemetry=telemetry,
    )


def _rule_source() -> RuleSource:
    settings = _settings()
    name = settings.rule_configuration_name
    if name not in (JOB_RULES, CUSTOM_RULES):
        return DeployedRules({name: settings.rule_parameters})
    of_jobs = JobRules(
        settings.deployed_rules,
        settings.custom_rules,
        runs_files=name == CUSTOM_RULES,
        open_store=_store_opener(),
    )
    if settings.grouped_rules is None:
        return of_jobs
    has_job_rules = bool(settings.deployed_rules)
    return BuiltInRules(DeployedRules(settings.grouped_rules), of_jobs if has_job_rules else None)


def _states() -> GroupTable:
    settings = _settings()
    client, table_name = clients.dynamodb(), settings.state_table_name
    memories = RuleMemories(_store_opener(), table_name)
    rule_items = DynamoStateTable(client, table_name, _now, memories)
    groups = StateGroups(client, table_name, memories=memories, rule_items=rule_items, clock=_now)
    return RuleItems(rule_items, groups) if settings.grouped_rules is None else groups


def _evaluation(rule_source: RuleSource) -> RunEvaluation:
    settings, telemetry = _settings(), _telemetry()
    name, url = settings.rule_configuration_name, settings.queue_url
    queue = None if url is None else WakeQueue(clients.sqs, {name: url})
    return RunEvaluation(
        rule_source=rule_source,
        states=_states(),
        publication=Publication(
            bus=EventBus(clients.eventbridge, settings.event_bus_name),
            open_store=_store_opener(),
            continuations=Continuations(name, queue, telemetry),
            telemetry=telemetry,
            clock=_now,
        ),
        telemetry=telemetry,
        patience=Patience(settings.worker_wait_s, settings.worker_wait_steps),
        clock=_now,
    )


@cache
def _redelivery() -> Redelivery:
    return Redelivery(clients.sqs, _settings().queue_url, _telemetry())


def _store_opener() -> Callable[[str], Store]:
    return partial(S3Store, client=clients.s3())


def lambda_handler(event: dict[str, Any], context: Any) -> Any:
    """Evaluate the function's rules on the jobs of an SQS batch.

    Args:
        event: SQS event whose records are EventBridge events of the tensor bucket, or wakes.
        context: Lambda's context.

    Returns:
        `batchItemFailures` with the records that must be delivered again.
    """
    remaining_ms = getattr(context, "get_remaining_time_in_millis", lambda: _LONGEST_MS)
    with _telemetry().invocation(context, len(event["Records"])):
        failures = _service().evaluate(event["Records"], remaining_ms)
        if failures:
            _redelivery().soon(event["Records"], failures)

        def report(record: Any) -> None:
            failure = failures.get(record.message_id)
            if failure is not None:
                raise failure

        return process_partial_response(
            event=event, record_handler=report, processor=_processor, context=context
        )


if _IN_LAMBDA in os.environ:
    # Create the clients during Lambda's init phase, which runs at full speed.
    _service()
