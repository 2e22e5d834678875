"""The stack of one deployment: it wires the constructs, and defines no resource itself."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.evaluation_state import EvaluationState
from infra.constructs.function import FunctionSource
from infra.constructs.rule_evaluation import RuleEvaluation, WatchedState
from infra.constructs.stop_job import StopJob
from infra.constructs.tensor_storage import TensorStorage
from infra.packaging import stage_function, stage_layer

__all__ = ["StepwatchStack"]


class StepwatchStack(cdk.Stack):
    """Everything of one deployment, in any account and region.

    Attributes:
        storage: The tensor bucket.
        state: The state table.
        evaluations: The evaluation of each configured rule, by its name.
        stop_job: What stops training jobs.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        config: StepwatchConfig,
        with_wheels: bool = True,
        **stack_options: Any,
    ) -> None:
        """Create the resources of one deployment.

        Args:
            scope: Parent construct.
            id_: Id of this stack.
            config: Settings of the deployment.
            with_wheels: Whether the layer holds third-party packages, which Lambda needs.
            stack_options: Options of `aws_cdk.Stack`.
        """
        super().__init__(scope, id_, stack_name=config.stack_name, **stack_options)
        self.storage = TensorStorage(
            self,
            "TensorStorage",
            bucket_name=config.tensor_bucket_name,
            expiration_days=config.tensor_expiration_days,
        )
        self.state = EvaluationState(self, "EvaluationState")
        source = self._source(config, with_wheels=with_wheels)
        watched = WatchedState(self.storage.bucket, self.state.table)
        shared: dict[str, Any] = {"config": config, "source": source, "watched": watched}
        self.evaluations = {
            rule.name: RuleEvaluation(self, f"Rule-{rule.name}", rule=rule, **shared)
            for rule in config.rules
        }
        self.stop_job = StopJob(self, "StopJob", **shared)
        self._outputs()

    def _source(self, config: StepwatchConfig, *, with_wheels: bool) -> FunctionSource:
        return FunctionSource(
            self,
            "Functions",
            function_folder=stage_function(),
            layer_folder=stage_layer(config.architecture, with_wheels=with_wheels),
            architecture=config.architecture,
            log_retention_days=config.retention_days,
        )

    def _outputs(self) -> None:
        bucket = self.storage.bucket.bucket_name
        outputs = {
            "TensorBucketName": (bucket, "Bucket that training jobs write their tensors to"),
            "StateTableName": (self.state.table.table_name, "Table of verdicts and registrations"),
            "StopJobFunctionName": (
                self.stop_job.function.function_name,
                "Function that stops training jobs",
            ),
            "StopJobFailuresUrl": (
                self.stop_job.failures.queue_url,
                "Queue of the stops that failed",
            ),
        }
        for name, (value, description) in outputs.items():
            cdk.CfnOutput(self, name, value=value, description=description)
