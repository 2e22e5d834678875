"""Finishes the evaluations of ended training jobs, and reports on jobs."""

from __future__ import annotations

from constructs import Construct

from infra.constructs.event_function import EventFunction
from infra.constructs.function import FunctionSettings, FunctionSource
from infra.constructs.rule_evaluation import RuleQueues
from infra.constructs.status_bus import STATUS_BUS, allow_status_events
from lambdas.contracts import environment
from lambdas.contracts.events import (
    JOB_SUMMARY_DETAIL_TYPE,
    evaluated_pattern,
    training_job_changed_pattern,
)

__all__ = ["FinishJob"]

SETTINGS = FunctionSettings(
    handler="lambdas.finish_job.handler.lambda_handler",
    timeout_s=90,
    memory_mb=512,
    description="Finishes the evaluations of ended training jobs, and writes their reports",
)
REPORT_KEYS = "*rule-output/report.html"
READ_KEYS = {
    "*index/*": "the index files, which hold the statistics of its tensors",
    "*collections/*": "the collections files, which say what its tensors are",
    "*job.json": "job.json, which says how it was configured",
    "*stop.json": "stop.json, which says why it was stopped",
    "*training_job_end.ts": "the end marker, which says whether it ended",
}
"""Objects that a report reads."""


class FinishJob(Construct):
    """The function for the platform's events about training jobs."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        source: FunctionSource,
        queues: RuleQueues,
    ) -> None:
        """Create the function and its event rule."""
        super().__init__(scope, id_)
        finish = self.handler = EventFunction(
            self,
            "Finish",
            source=source,
            settings=SETTINGS,
            environment={
                environment.EVENT_BUS_NAME: STATUS_BUS,
                environment.RULE_QUEUE_URLS: queues.urls(),
            },
        )
        finish.watched.allow_items(
            finish, ["dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"]
        )
        queues.allow_sending(finish)
        allow_status_events(finish, JOB_SUMMARY_DETAIL_TYPE)
        self._allow_reports(finish)
        finish.on_event(
            "JobChanged",
            training_job_changed_pattern(),
            description="A training job ended, was interrupted or continues",
        )
        finish.on_event(
            "RuleJudged",
            evaluated_pattern(),
            description="A rule has come to a verdict; when all have, the job is reported on",
        )

    @staticmethod
    def _allow_reports(finish: EventFunction) -> None:
        for keys, what in READ_KEYS.items():
            finish.watched.allow_objects(
                finish,
                ["s3:GetObject"],
                keys,
                reason=f"The report of a job is made of {what}; the names of jobs are not known at "
                "deployment. Tensors cannot be read.",
            )
        finish.watched.allow_objects(
            finish,
            ["s3:PutObject"],
            REPORT_KEYS,
            reason="The report lies beside the results of a job's rules; only objects called "
            "report.html in folders called rule-output can be written.",
        )
        finish.watched.allow_listing(finish)
