"""Lambda in moto: data about deployed functions that a poller needs."""

from __future__ import annotations

from functools import cache
from typing import Any

from moto.awslambda.models import LambdaBackend, LambdaFunction, LayerVersion
from moto.sqs.models import sqs_backends

from infra.local.moto_patches.resources import call_after_creation

__all__ = [
    "patch_event_source_mappings_inline",
    "patch_function_code_locations",
    "patch_function_layers_from_cloudformation",
]

_get_code = LambdaFunction.get_code
_get_layer_version = LayerVersion.get_layer_version
_create_mapping = LambdaBackend.create_event_source_mapping


@cache
def patch_function_layers_from_cloudformation() -> None:
    """Read Layers and Architectures of a function from the template.

    Without it a function of a stack has no layers, and cannot import their packages; and a
    reference to a layer is not its ARN.
    """
    LayerVersion.physical_resource_id = property(lambda self: self.arn)

    def configure(function: Any, properties: dict[str, Any]) -> None:
        function.update_configuration({"Layers": properties.get("Layers", [])})
        function.architectures = properties.get("Architectures", ["x86_64"])

    call_after_creation(LambdaFunction, configure)


@cache
def patch_function_code_locations() -> None:
    """Make GetFunction and GetLayerVersion return the location of the code, as `s3://bucket/key`.

    Without it they return an address of AWS, or none; AWS returns a signed address.
    """

    def get_code(self: Any) -> dict[str, Any]:
        response: dict[str, Any] = _get_code(self)
        if "S3Bucket" in self.code:
            location = f"s3://{self.code['S3Bucket']}/{self.code['S3Key']}"
            response["Code"] = {"RepositoryType": "S3", "Location": location}
        return response

    def get_layer_version(self: Any) -> dict[str, Any]:
        response: dict[str, Any] = _get_layer_version(self)
        if "S3Bucket" in self.content:
            location = f"s3://{self.content['S3Bucket']}/{self.content['S3Key']}"
            response["Content"]["Location"] = location
        return response

    LambdaFunction.get_code = get_code
    LayerVersion.get_layer_version = get_layer_version


@cache
def patch_event_source_mappings_inline() -> None:
    """Leave messages in the queue for the poller.

    Without it a sender of a message also runs the function, through Docker, on one message.
    """

    def create_event_source_mapping(self: Any, spec: dict[str, Any]) -> Any:
        mapping = _create_mapping(self, spec)
        for queue in sqs_backends[self.account_id][self.region_name].queues.values():
            if queue.queue_arn == mapping.event_source_arn:
                queue.lambda_event_source_mappings.pop(mapping.function_arn, None)
        return mapping

    LambdaBackend.create_event_source_mapping = create_event_source_mapping
