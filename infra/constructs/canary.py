"""Moves events to a new version of a function slowly, and back if the version fails."""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.metrics import described, errors
from infra.constructs.trust import role_path
from infra.nag import acknowledge

__all__ = ["ALIAS", "Canary"]

ALIAS = "live"


class Canary(Construct):
    """Deploys versions: a tenth of the events for five minutes, then all of them."""

    def __init__(self, scope: Construct, id_: str, *, config: StepwatchConfig) -> None:
        """Create the application and the role of CodeDeploy."""
        super().__init__(scope, id_)
        self._application = codedeploy.LambdaApplication(self, "Application")
        self._permissions = iam.PolicyDocument()
        role = iam.Role(
            self,
            "Role",
            path=role_path(config),
            assumed_by=iam.ServicePrincipal("codedeploy.amazonaws.com"),
            inline_policies={"Permissions": self._permissions},
        )
        self._role = role.without_policy_updates()  # CDK would add a managed policy
        self._allow(["cloudwatch:DescribeAlarms"], ["*"])
        acknowledge(
            self,
            "IAM5[Resource::*]",
            reason="CodeDeploy looks up the alarms of a deployment; the action only reads.",
        )

    def alias_of(self, scope: Construct, function: lambda_.Function) -> lambda_.Alias:
        """Return the alias of a function that events call."""
        alias = lambda_.Alias(scope, "Live", alias_name=ALIAS, version=function.current_version)
        alarm = cloudwatch.Alarm(
            scope,
            "CanaryErrors",
            metric=errors(alias),
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            threshold=0,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=described(
                "A function fails: a deployment of its new version is rolled back", "CanaryErrors"
            ),
        )
        self._allow(
            ["lambda:GetAlias", "lambda:GetProvisionedConcurrencyConfig", "lambda:UpdateAlias"],
            [function.function_arn, f"{function.function_arn}:{ALIAS}"],
        )
        codedeploy.LambdaDeploymentGroup(
            scope,
            "Deployment",
            application=self._application,
            alias=alias,
            alarms=[alarm],
            role=self._role,
            deployment_config=codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_5_MINUTES,
        )
        return alias

    def _allow(self, actions: list[str], resources: list[str]) -> None:
        self._permissions.add_statements(iam.PolicyStatement(actions=actions, resources=resources))
