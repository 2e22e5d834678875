"""Ends the evaluations of a training job that ended without saying so."""

from __future__ import annotations

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.event_function import EventFunction
from infra.constructs.function import FunctionSettings, FunctionSource
from infra.constructs.rule_evaluation import RuleQueues
from infra.constructs.watched_state import WatchedState
from lambdas.contracts import environment
from lambdas.contracts.events import training_job_changed_pattern

__all__ = ["FinishJob"]

SETTINGS = FunctionSettings(
    handler="lambdas.finish_job.handler.lambda_handler",
    timeout_s=30,
    memory_mb=256,
    description="Ends the evaluations of training jobs that ended",
)


class FinishJob(Construct):
    """The function that the platform's own news of a training job leads to.

    Attributes:
        function: The function.
        failures: Events that could not be handled.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        source: FunctionSource,
        watched: WatchedState,
        queues: RuleQueues,
    ) -> None:
        """Create the function and its event rule.

        Args:
            scope: Parent construct.
            id_: Id of this construct.
            source: Code of the functions.
            watched: Buckets and table.
            queues: The queues of the evaluators.
        """
        super().__init__(scope, id_)
        finish = EventFunction(
            self,
            "Finish",
            source=source,
            settings=SETTINGS,
            environment={
                **watched.environment(),
                environment.RULE_QUEUE_URLS: queues.urls(),
            },
        )
        watched.allow_items(finish, ["dynamodb:Query", "dynamodb:UpdateItem"])
        queues.allow_sending(finish)
        finish.on_event(
            "JobChanged",
            training_job_changed_pattern(),
            description="A training job ended, was interrupted or goes on",
        )
        self.function: lambda_.Function = finish.function
        self.failures: sqs.Queue = finish.failures
