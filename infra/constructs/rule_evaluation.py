"""One evaluator: event rule -> queue (and its dead letters) -> function."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.function import (
    FunctionSettings,
    FunctionSource,
    StepwatchFunction,
    dead_letters,
)
from infra.constructs.queue_target import QueueTarget
from infra.constructs.status_bus import STATUS_BUS, allow_status_events
from infra.constructs.tensor_bus import tensor_events
from infra.rule_settings import RuleConfiguration
from lambdas.contracts import environment
from lambdas.contracts.events import STATUS_DETAIL_TYPE

__all__ = ["Evaluated", "RuleEvaluation", "RuleQueues", "list_names"]

HANDLER = "lambdas.evaluate_rule.handler.lambda_handler"
MAX_RECEIVE_COUNT = 20
"""Failed records come back after 2 s, 4 s, ... 300 s: an outage may last an hour."""
VISIBILITY_TIMEOUTS = 6  # of the function's timeout: room for retries of a throttled evaluator


MEMORY_KEYS = "*_stepwatch/memory/*"
RESULT_KEYS = "*rule-output/*/status.json"

OWN_PARTITIONS = ("s3://*", "job#*", "attempts#*")
"""Evaluations, registrations and attempts: the items that an evaluator writes."""

MAX_QUEUE_NAME = 80


@dataclass(frozen=True)
class Evaluated:
    """Subject of an evaluator: its name in resource names, and its title for people.

    `is_group` says that the states of all its rules are one item.
    """

    name: str
    title: str
    environment: Mapping[str, str]
    is_group: bool = False

    @classmethod
    def of_rule(cls, rule: RuleConfiguration) -> Evaluated:
        """Return a configured rule."""
        variables = {
            environment.RULE_CONFIGURATION_NAME: rule.name,
            environment.RULE_PARAMETERS: rule.environment_value(),
        }
        return cls(rule.name, f"the rule {rule.name}", variables)


@dataclass(frozen=True)
class RuleQueues:
    """The queues that wake the evaluators, by rule configuration name or placeholder."""

    by_rule: Mapping[str, sqs.Queue]

    def urls(self) -> str:
        """Return the environment variable with the queues."""
        urls = {rule: queue.queue_url for rule, queue in self.by_rule.items()}
        names = {rule: _literal_name(queue) for rule, queue in self.by_rule.items()}
        return list_names(urls, names)

    def allow_sending(self, function: StepwatchFunction) -> None:
        """Allow a function to send messages to all of them."""
        function.allow(["sqs:SendMessage"], [queue.queue_arn for queue in self.by_rule.values()])


class RuleEvaluation(Construct):
    """Evaluates one or several rules whenever a job has written tensors of a step.

    `dead_letters` contains events that failed twenty times, or could not be put into the queue.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        evaluated: Evaluated,
        source: FunctionSource,
    ) -> None:
        """Create the queue, the function and the event rule."""
        super().__init__(scope, id_)
        config, self.name = source.config, evaluated.name
        self.dead_letters = dead_letters(self, "Letters", source.encryption)
        self.queue = self._queue(evaluated, source)
        self.evaluator = StepwatchFunction(
            self,
            "Evaluator",
            source=source,
            settings=FunctionSettings(
                handler=HANDLER,
                timeout_s=config.evaluator_timeout_s,
                memory_mb=config.evaluator_memory_mb,
                description=f"Evaluates {evaluated.title} on the tensors of training jobs",
                name=evaluated.name,
                is_of_a_rule=True,
                wakes_itself=True,
            ),
            environment={**self._environment(config), **evaluated.environment},
        )
        self._allow(evaluated)
        self._consume(config)
        self._subscribe(evaluated, source)

    def _queue(self, evaluated: Evaluated, source: FunctionSource) -> sqs.Queue:
        config = source.config
        visible_s = VISIBILITY_TIMEOUTS * config.evaluator_timeout_s + config.batching_window_s
        return sqs.Queue(
            self,
            "Queue",
            queue_name=_queue_name(config, evaluated.name),
            encryption=source.encryption.of_queues,
            encryption_master_key=source.encryption.data_key,
            visibility_timeout=cdk.Duration.seconds(visible_s),
            dead_letter_queue=sqs.DeadLetterQueue(
                max_receive_count=MAX_RECEIVE_COUNT, queue=self.dead_letters
            ),
        )

    def _allow(self, evaluated: Evaluated) -> None:
        function = self.evaluator
        watched = function.watched
        watched.allow_objects(
            function,
            ["s3:GetObject"],
            "*",
            reason="An evaluator reads the tensors of every training job that writes to this "
            "bucket; the jobs' names, and so the keys, are not known at deployment.",
        )
        watched.allow_objects(
            function,
            ["s3:DeleteObject", "s3:PutObject"],
            MEMORY_KEYS,
            reason="What a rule remembers of a job lies beside the job's tensors when it is large; "
            "only objects in folders called _stepwatch/memory can be written and deleted.",
        )
        watched.allow_objects(
            function,
            ["s3:PutObject"],
            RESULT_KEYS,
            reason="The result of a rule lies beside the job's tensors; only objects called "
            "status.json in folders called rule-output can be written.",
        )
        watched.allow_listing(function)
        actions = ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]
        if evaluated.is_group:  # which moves the items of single rules into its own
            actions += ["dynamodb:DeleteItem", "dynamodb:Query"]
        watched.allow_items(function, actions, partitions=OWN_PARTITIONS)
        allow_status_events(function, STATUS_DETAIL_TYPE)
        function.allow(
            [
                "sqs:ChangeMessageVisibility",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
                "sqs:ReceiveMessage",
                "sqs:SendMessage",
            ],
            [self.queue.queue_arn],
        )

    def _consume(self, config: StepwatchConfig) -> None:
        lambda_.EventSourceMapping(
            self,
            "Source",
            target=self.evaluator.function,
            event_source_arn=self.queue.queue_arn,
            batch_size=config.batch_size,
            max_batching_window=cdk.Duration.seconds(config.batching_window_s),
            max_concurrency=config.maximum_concurrency,
            report_batch_item_failures=True,
        )

    def _subscribe(self, evaluated: Evaluated, source: FunctionSource) -> None:
        events.Rule(
            self,
            "Tensors",
            event_bus=source.tensor_bus.bus if source.tensor_bus else None,
            description=f"Tensors of a step were written: wake what evaluates {evaluated.title}",
            event_pattern=tensor_events(self.evaluator.watched.bucket_names()),
            targets=[QueueTarget(self.queue, self.dead_letters, source.trust)],
        )

    def _environment(self, config: StepwatchConfig) -> dict[str, str]:
        return {
            environment.EVENT_BUS_NAME: STATUS_BUS,
            environment.QUEUE_URL: self.queue.queue_url,
            environment.JOB_FILES_PER_MINUTE: str(config.job_files_per_minute),
            environment.WORKER_WAIT_S: str(config.worker_wait_s),
            environment.WORKER_WAIT_STEPS: str(config.worker_wait_steps),
        }


def list_names(whole: Mapping[str, str], ends: Mapping[str, str]) -> str:
    """Return the value of a variable with a name for each rule, for `lambdas.contracts.name_list`.

    Args:
        whole: Names or URLs by rule, which may be known only to CloudFormation.
        ends: Their last parts, which differ between rules.
    """
    first = next(iter(ends))
    beginning = ends[first].removesuffix(first)
    listed = {rule: "" if end == beginning + rule else end for rule, end in ends.items()}
    return json.dumps({**listed, first: whole[first]})


def _literal_name(queue: sqs.Queue) -> str:
    """Return the name of a queue as text, not as a reference."""
    resource = queue.node.default_child
    if not isinstance(resource, sqs.CfnQueue):  # pragma: no cover - a change in CDK
        raise TypeError(f"the resource of the queue is {resource!r}, not a CfnQueue")
    return str(resource.queue_name)


def _queue_name(config: StepwatchConfig, evaluated: str) -> str:
    """Return a short name, because other functions' environments contain all queue names."""
    name = f"{config.stack_name}-{evaluated}"
    if len(name) <= MAX_QUEUE_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: MAX_QUEUE_NAME - len(digest) - 1]}-{digest}"
