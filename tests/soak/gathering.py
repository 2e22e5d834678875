"""Asks a deployment what became of the jobs: states, status events, stops, queues."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from boto3.dynamodb.types import TypeDeserializer

from hook_layer.format.job_file import parse_stop_file
from hook_layer.format.paths import STOP_FILE
from hook_layer.storage.base import ObjectNotFoundError, Store
from hook_layer.storage.s3 import S3Store
from infra.local import LocalTarget
from infra.local.asynchronous import QUEUE_NAME_PREFIX
from lambdas.contracts.events import (
    JOB_RULES,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    STATUS_DETAIL_TYPE,
    STATUS_SOURCE,
    stop_partition,
)
from lambdas.shared.rule_memory import RuleMemories
from lambdas.shared.state_groups import StateGroups
from lambdas.shared.state_table import DynamoStateTable, StateKey
from lambdas.shared.stop_table import REQUESTED
from rule_runtime.engine.state import EvaluationState
from tests.soak.checking import Announcement, Findings, Outcome, StopOutcome
from tests.soak.expected import expected_verdicts
from tests.soak.plan import Ending, JobPlan
from tests.soak.writing import root_of

QUEUE = "soak-status-events"
COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")

Announcements = Mapping[tuple[str, str, str], Sequence[Announcement]]


class Gathering:
    """Looks at a deployment as its users can; the requests do not fail.

    Args:
        target: The deployment.
        jobs: The jobs.
        rules: The rules and their parameters.
    """

    def __init__(
        self, target: LocalTarget, jobs: Sequence[JobPlan], rules: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._target, self._jobs, self._rules = target, jobs, rules
        self._sqs, self._s3 = target.client("sqs"), target.client("s3")
        self._dynamodb = target.client("dynamodb")
        self._table_name = target.outputs["StateTableName"]
        memories = RuleMemories(self._open_store)
        self._states = DynamoStateTable(self._dynamodb, self._table_name, memories=memories)
        self._groups = StateGroups(self._dynamodb, self._table_name, memories=memories)
        self._queue_url = self._sqs.create_queue(QueueName=QUEUE)["QueueUrl"]

    def subscribe(self) -> None:
        """Have all status events sent to a queue, as anybody can who wants to know of them."""
        found = self._sqs.get_queue_attributes(
            QueueUrl=self._queue_url, AttributeNames=["QueueArn"]
        )
        events = self._target.client("events")
        pattern = {"source": [STATUS_SOURCE], "detail-type": [STATUS_DETAIL_TYPE]}
        events.put_rule(Name=QUEUE, EventPattern=json.dumps(pattern))
        target = {"Id": "queue", "Arn": found["Attributes"]["QueueArn"]}
        events.put_targets(Rule=QUEUE, Targets=[target])

    def unfinished(self) -> list[StateKey]:
        """Return the evaluations without an announced verdict."""
        keys = [
            StateKey(root_of(self._target, job), run.run_id, rule)
            for job in self._jobs
            for run in job.runs
            for rule in self._rules
        ]
        return [key for key in keys if not _is_done(self._state(key))]

    def unconfirmed_stops(self) -> list[str]:
        """Return the jobs of which it is told that they end, and not noted that they have ended."""
        return [
            job.name
            for job in self._jobs
            if job.ending is not Ending.SILENCE
            and any(status == REQUESTED for *_, status in self._stop_requests(job))
        ]

    def findings(self, errors: Sequence[str]) -> Findings:
        """Return what became of everything.

        Args:
            errors: What the writers could not do.
        """
        announcements = self._announcements()
        outcomes = [found for job in self._jobs for found in self._outcomes(job, announcements)]
        stops = [self._stop(job) for job in self._jobs]
        return Findings(outcomes, stops, self._failures(), errors)

    def _outcomes(self, job: JobPlan, announcements: Announcements) -> list[Outcome]:
        root = root_of(self._target, job)
        store = self._open_store(root)
        expected = expected_verdicts(store, self._rules, num_workers=job.num_workers)
        return [
            Outcome(
                job.name,
                run,
                rule,
                expected.get((run.run_id, rule)),
                self._state(StateKey(root, run.run_id, rule)),
                announcements.get((job.name, run.run_id, rule), ()),
            )
            for run in job.runs
            for rule in self._rules
        ]

    def _announcements(self) -> Announcements:
        found: dict[tuple[str, str, str], list[Announcement]] = defaultdict(list)
        while messages := self._sqs.receive_message(
            QueueUrl=self._queue_url, MaxNumberOfMessages=10
        ).get("Messages"):
            for message in messages:
                detail = json.loads(message["Body"])["detail"]
                (status,) = detail["DebugRuleEvaluationStatuses"]
                key = (
                    detail["TrainingJobName"],
                    detail["RunId"],
                    status["RuleConfigurationName"],
                )
                reported = Announcement(status["RuleEvaluationStatus"], detail.get("Evidence"))
                found[key].append(reported)
                self._sqs.delete_message(
                    QueueUrl=self._queue_url, ReceiptHandle=message["ReceiptHandle"]
                )
        return found

    def _stop(self, job: JobPlan) -> StopOutcome:
        return StopOutcome(
            job,
            self._stop_requests(job),
            _signalled_run(self._open_store(root_of(self._target, job))),
            self._platform_status(job) if job.on_sagemaker else None,
        )

    def _stop_requests(self, job: JobPlan) -> list[tuple[str, str, str]]:
        """Return run, rule and status of the requests to stop a job."""
        answer = self._dynamodb.query(
            TableName=self._table_name,
            KeyConditionExpression="#run = :run",
            ExpressionAttributeNames={"#run": STATE_PARTITION_KEY},
            ExpressionAttributeValues={":run": {"S": stop_partition(job.name)}},
        )
        return [
            (
                item[STATE_SORT_KEY].rpartition("#")[2],
                item["rule_configuration_name"],
                item["status"],
            )
            for item in map(_plain, answer["Items"])
        ]

    def _platform_status(self, job: JobPlan) -> str:
        sagemaker = self._target.client("sagemaker")
        described = sagemaker.describe_training_job(TrainingJobName=job.name)
        return str(described["TrainingJobStatus"])

    def _failures(self) -> dict[str, int]:
        """Return the numbers of messages in all queues that neither a function nor we read."""
        listed = self._target.client("lambda").list_event_source_mappings()["EventSourceMappings"]
        fed = {mapping["EventSourceArn"].rpartition(":")[2] for mapping in listed}
        left = {}
        for url in self._sqs.list_queues()["QueueUrls"]:
            name = url.rpartition("/")[2]
            if name in fed or name == QUEUE or name.startswith(QUEUE_NAME_PREFIX):
                continue
            found = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(COUNTS))
            left[name] = sum(int(found["Attributes"][count]) for count in COUNTS)
        return left

    def _state(self, key: StateKey) -> EvaluationState | None:
        stored = self._states.load(key)
        if stored is None:
            stored = self._groups.stored(replace(key, rule=JOB_RULES)).states.get(key.rule)
        return None if stored is None else stored.state

    def _open_store(self, uri: str) -> Store:
        return S3Store(uri, client=self._s3)


def _is_done(state: EvaluationState | None) -> bool:
    return state is not None and state.ended and state.is_announced


def _plain(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: TypeDeserializer().deserialize(value) for name, value in item.items()}


def _signalled_run(store: Store) -> str | None:
    try:
        return parse_stop_file(store.get(STOP_FILE), file=STOP_FILE).run_id
    except ObjectNotFoundError:
        return None
