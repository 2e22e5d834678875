"""CloudFormation in moto: resource types that it lacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.cloudformation import parsing
from moto.core.common_models import CloudFormationModel
from moto.events.models import EventBus
from moto.iam.models import Role
from moto.kms.models import Key

__all__ = [
    "call_after_creation",
    "patch_event_bus_references",
    "patch_event_invoke_config_from_cloudformation",
    "patch_key_tags_from_cloudformation",
    "patch_policies_and_alarms_from_cloudformation",
    "patch_role_policies_from_cloudformation",
]

WITHOUT_EFFECT = (
    "AWS::CloudWatch::Alarm",
    "AWS::EventSchemas::Registry",
    "AWS::EventSchemas::Schema",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Subscription",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
)

_create_role = Role.create_from_cloudformation_json.__func__
_create_key = Key.create_from_cloudformation_json.__func__


def call_after_creation(model: Any, callback: Callable[[Any, dict[str, Any]], None]) -> None:
    """Call back with each resource of a model that a template creates, and its properties."""
    create = model.create_from_cloudformation_json.__func__

    def create_from_cloudformation_json(
        cls: Any, /, resource_name: str, cloudformation_json: dict[str, Any], *where: str, **kw: Any
    ) -> Any:
        created = create(cls, resource_name, cloudformation_json, *where, **kw)
        callback(created, cloudformation_json.get("Properties", {}))
        return created

    model.create_from_cloudformation_json = classmethod(create_from_cloudformation_json)


class _Resource(CloudFormationModel):  # type: ignore[misc]
    """A resource without a name, and with no attribute except an ARN."""

    def __init__(self, physical_resource_id: str) -> None:
        self.physical_resource_id = physical_resource_id

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @staticmethod
    def cloudformation_type() -> str:
        return "Stepwatch::Local::None"  # a base class: no template uses it

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr == "SchemaArn"

    def get_cfn_attribute(self, attribute_name: str) -> str:
        del attribute_name
        return f"arn:aws:schemas:local::schema/{self.physical_resource_id}"

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: dict[str, Any],
        account_id: str,
        region_name: str,
        **kwargs: Any,
    ) -> _Resource:
        del cloudformation_json, account_id, region_name, kwargs
        return cls(resource_name)


class _EventInvokeConfig(_Resource):
    """AWS::Lambda::EventInvokeConfig: has the effect of PutFunctionEventInvokeConfig."""

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: dict[str, Any],
        account_id: str,
        region_name: str,
        **kwargs: Any,
    ) -> _Resource:
        del kwargs
        settings = dict(cloudformation_json["Properties"])
        name = settings.pop("FunctionName")
        settings.pop("Qualifier", None)
        lambda_backends[account_id][region_name].put_function_event_invoke_config(name, settings)
        return cls(resource_name)


@cache
def patch_event_invoke_config_from_cloudformation() -> None:
    """Create AWS::Lambda::EventInvokeConfig.

    Without it a function of a stack has no on-failure destination.
    """
    parsing.get_model_map()["AWS::Lambda::EventInvokeConfig"] = _EventInvokeConfig


@cache
def patch_policies_and_alarms_from_cloudformation() -> None:
    """List resources without an emulated effect as created.

    Without it each of them logs a warning, and the stack lists it without its logical id. Tests
    check these resources in the template instead.
    """
    for resource_type in WITHOUT_EFFECT:
        parsing.get_model_map()[resource_type] = _Resource


@cache
def patch_key_tags_from_cloudformation() -> None:
    """Read the tags of AWS::KMS::Key in the format of a template.

    Without it a key with tags cannot be created, because KMS names the fields differently.
    """

    def create_from_cloudformation_json(
        cls: Any, /, resource_name: str, cloudformation_json: dict[str, Any], *where: str, **kw: Any
    ) -> Any:
        properties = dict(cloudformation_json["Properties"])
        properties["Tags"] = [
            {"TagKey": tag["Key"], "TagValue": tag["Value"]} for tag in properties.get("Tags", [])
        ]
        return _create_key(cls, resource_name, {"Properties": properties}, *where, **kw)

    Key.create_from_cloudformation_json = classmethod(create_from_cloudformation_json)


@cache
def patch_event_bus_references() -> None:
    """Make a reference to AWS::Events::EventBus the name of the bus.

    Without it a stack with a bus and a rule on it cannot be created.
    """
    EventBus.physical_resource_id = property(lambda self: self.name)


@cache
def patch_role_policies_from_cloudformation() -> None:
    """Store the policies in an AWS::IAM::Role as JSON.

    Without it the API returns them in Python's notation.
    """

    def create_from_cloudformation_json(
        cls: Any, /, resource_name: str, cloudformation_json: dict[str, Any], *where: str, **kw: Any
    ) -> Any:
        properties = dict(cloudformation_json["Properties"])
        properties["Policies"] = [
            {**policy, "PolicyDocument": json.dumps(policy["PolicyDocument"])}
            for policy in properties.get("Policies", [])
        ]
        return _create_role(cls, resource_name, {"Properties": properties}, *where, **kw)

    Role.create_from_cloudformation_json = classmethod(create_from_cloudformation_json)
