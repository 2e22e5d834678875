"""Evaluators of several rules: one for built-in rules, one for custom code."""

from __future__ import annotations

from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.function import FunctionSource
from infra.constructs.removal import removal_of
from infra.constructs.rule_evaluation import Evaluated, RuleEvaluation
from infra.custom_rule_settings import as_json
from infra.rule_settings import grouped_rules
from lambdas.contracts import environment
from lambdas.contracts.events import CUSTOM_RULES, JOB_RULES

__all__ = ["JobRules"]


class JobRules(Construct):
    """The evaluators of rules that have no function of their own.

    Attributes:
        evaluations: The evaluators by placeholder of a rule's name; empty if jobs must not
            configure rules.
        bucket: The bucket of the deployer's files of rules; None without such files.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        source: FunctionSource,
        access_logs: s3.IBucket,
    ) -> None:
        """Create the evaluators, and the bucket of custom rules if needed."""
        super().__init__(scope, id_)
        config = source.config
        self.bucket = self._bucket(source, access_logs) if config.custom_rules else None
        self.evaluations: dict[str, RuleEvaluation] = {}
        if not (config.per_job_rules or config.is_grouped):
            return
        title = "all built-in rules" if config.is_grouped else "rules that jobs configure"
        self._add("BuiltIn", JOB_RULES, title, source)
        if self.bucket is None:
            return
        self._add("Custom", CUSTOM_RULES, "custom rules of the deployer", source)
        self.evaluations[CUSTOM_RULES].evaluator.allow(
            ["s3:GetObject"],
            [self.bucket.arn_for_objects(file.key) for file in config.custom_rules],
        )

    def _add(self, id_: str, name: str, title: str, source: FunctionSource) -> None:
        config = source.config
        variables = {
            environment.RULE_CONFIGURATION_NAME: name,
            environment.DEPLOYED_RULES: ",".join(
                rule.name for rule in config.rules if config.per_job_rules
            ),
        }
        is_group = config.is_grouped and name == JOB_RULES
        if is_group:
            variables[environment.GROUPED_RULES] = grouped_rules(config.rules)
        if self.bucket is not None:
            # Both functions get the files, to agree on who evaluates a configuration.
            variables[environment.CUSTOM_RULE_BUCKET] = self.bucket.bucket_name
            variables[environment.CUSTOM_RULES] = as_json(config.custom_rules)
        self.evaluations[name] = RuleEvaluation(
            self,
            id_,
            # No rule has such a name.
            evaluated=Evaluated(name.replace("#", "_"), title, variables, is_group=is_group),
            source=source,
        )

    def _bucket(self, source: FunctionSource, access_logs: s3.IBucket) -> s3.IBucket:
        config, encryption = source.config, source.encryption
        if config.custom_rule_bucket is not None:
            return s3.Bucket.from_bucket_name(self, "Files", config.custom_rule_bucket)
        return s3.Bucket(
            self,
            "Files",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=encryption.of_buckets,
            encryption_key=encryption.data_key,
            bucket_key_enabled=True if encryption.data_key else None,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            server_access_logs_bucket=access_logs,
            removal_policy=removal_of(config),
        )
