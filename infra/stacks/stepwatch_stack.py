"""The stack of one deployment: connects the constructs, and defines no resource itself."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import aws_cdk as cdk
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.encryption import Encryption
from infra.constructs.evaluation_state import EvaluationState
from infra.constructs.event_schema import EventSchema
from infra.constructs.finish_job import FinishJob
from infra.constructs.function import FunctionSource
from infra.constructs.job_rules import JobRules
from infra.constructs.monitoring import Monitored, Monitoring
from infra.constructs.notify import AlertTopic, Notify
from infra.constructs.rule_evaluation import Evaluated, RuleEvaluation, RuleQueues
from infra.constructs.stop_job import StopJob
from infra.constructs.sweep import Sweep
from infra.constructs.tensor_storage import TensorStorage
from infra.constructs.trust import EmergencyRole
from infra.constructs.watched_state import WatchedState
from infra.packaging import stage_function, stage_layer
from lambdas.contracts.events import JOB_RULES

__all__ = ["COMPONENT_TAG", "STAGE_TAG", "StepwatchStack"]

STAGE_TAG, COMPONENT_TAG = "stepwatch:stage", "stepwatch:component"
"""Tags by which the bill can be split: the deployment, and its part or rule."""


class StepwatchStack(cdk.Stack):
    """All resources of one deployment, in any account and Region."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        config: StepwatchConfig,
        with_wheels: bool = True,
        **stack_options: Any,
    ) -> None:
        """Create the resources; `with_wheels` adds the packages that Lambda needs to the layer."""
        super().__init__(scope, id_, stack_name=config.stack_name, **stack_options)
        self.config = config
        cdk.Tags.of(self).add(STAGE_TAG, config.stage)
        self._encryption = Encryption(self, "Encryption", config=config)
        self.storage = TensorStorage(
            self, "TensorStorage", config=config, encryption=self._encryption
        )
        self.state = EvaluationState(
            self, "EvaluationState", config=config, encryption=self._encryption
        )
        self.alerts = AlertTopic(self, "Alerts", encryption=self._encryption, config=config)
        self.emergency = EmergencyRole(
            self, "Emergency", config=config, encryption=self._encryption
        )
        self._add_functions(config, with_wheels=with_wheels)
        self.monitoring = Monitoring(
            self,
            "Monitoring",
            config=config,
            topic=self.alerts.topic,
            monitored=self._monitored(),
        )
        self._outputs(config)
        for construct in self.node.children:
            if isinstance(construct, Construct) and not isinstance(construct, cdk.CfnElement):
                cdk.Tags.of(construct).add(COMPONENT_TAG, construct.node.id)

    def _add_functions(self, config: StepwatchConfig, *, with_wheels: bool) -> None:
        self.layer_folder = stage_layer(config.architecture, with_wheels=with_wheels)
        source = FunctionSource(
            self,
            "Functions",
            function_folder=stage_function(),
            layer_folder=self.layer_folder,
            config=config,
            encryption=self._encryption,
            watched=WatchedState(self.storage.buckets, self.state.table),
        )
        self.job_rules = JobRules(
            self, "JobRules", source=source, access_logs=self.storage.access_logs
        )
        self.evaluations = {
            rule.name: RuleEvaluation(
                self, f"Rule-{rule.name}", evaluated=Evaluated.of_rule(rule), source=source
            )
            for rule in (() if config.is_grouped else config.rules)
        } | self.job_rules.evaluations
        queues = RuleQueues({name: found.queue for name, found in self.evaluations.items()})
        self.sweep = Sweep(self, "Sweep", queues=queues, source=source)
        topic = self.alerts.topic
        self._handlers = {
            "stop_job": StopJob(self, "StopJob", source=source).handler,
            "finish_job": FinishJob(self, "FinishJob", queues=queues, source=source).handler,
            "notify": Notify(
                self, "Notify", topic=topic, evaluations=self.evaluations, source=source
            ).handler,
        }

    def _monitored(self) -> Monitored:
        functions = {name: handler.function for name, handler in self._handlers.items()}
        return Monitored(
            evaluations=self.evaluations,
            functions={**functions, "sweep": self.sweep.function},
            failures={name: handler.failures for name, handler in self._handlers.items()},
            each_minute={"NoSweep": self.sweep.function, "NoFollowUp": functions["stop_job"]},
            table=self.state.table,
        )

    def _outputs(self, config: StepwatchConfig) -> None:
        bucket_names = ",".join(bucket.bucket_name for bucket in self.storage.buckets)
        outputs = {
            "TensorBucketName": (
                self.storage.bucket.bucket_name,
                "Bucket that training jobs write their tensors to",
            ),
            "TensorBucketNames": (bucket_names, "All buckets that are watched"),
            "StateTableName": (self.state.table.table_name, "Table of verdicts and registrations"),
            "AlertTopicArn": (
                self.alerts.topic.topic_arn,
                "Topic of findings and alarms: subscribe to it",
            ),
            "EmergencyRoleArn": (
                self.emergency.role.role_arn,
                "Role to repair this deployment: others may not write to its table and queues",
            ),
            "Version": (metadata.version("stepwatch"), "Version of Stepwatch that is deployed"),
            "DashboardUrl": (self.monitoring.dashboard.url, "Dashboard of this deployment"),
            "KeyArn": (
                self._encryption.key.key_arn,
                "Key of the topic, and with stepwatch:encryption = kms of all that is stored",
            ),
        }
        outputs |= self._outputs_of_functions()
        if JOB_RULES in self.job_rules.evaluations:
            evaluator = self.job_rules.evaluations[JOB_RULES].evaluator.function
            outputs["JobRulesFunctionName"] = (
                evaluator.function_name,
                "Function that evaluates built-in rules without a function of their own",
            )
        if self.job_rules.bucket is not None:
            bucket_name = self.job_rules.bucket.bucket_name
            outputs["CustomRuleBucketName"] = (bucket_name, "Bucket of the files of custom rules")
        if config.event_schema:
            schema = EventSchema(self, "EventSchema", registry_name=config.stack_name.lower())
            outputs["StatusEventSchemaArn"] = (schema.arn, "Schema of the status event")
        for name, (value, description) in outputs.items():
            cdk.CfnOutput(self, name, value=value, description=description)

    def _outputs_of_functions(self) -> dict[str, tuple[str, str]]:
        """Return names and queues of the functions whose events can be redelivered."""
        functions = {
            "StopJob": ("stop_job", "stops training jobs"),
            "FinishJob": ("finish_job", "processes the end of training jobs"),
            "Notify": ("notify", "notifies people of findings"),
        }
        outputs = {}
        for name, (handler, what) in functions.items():
            found = self._handlers[handler]
            outputs[f"{name}FunctionName"] = (
                found.called.function_name,
                f"Function that {what}",
            )
            outputs[f"{name}FailuresUrl"] = (
                found.failures.queue_url,
                "Queue of events that it could not handle",
            )
        return outputs
