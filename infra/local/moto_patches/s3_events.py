"""S3 in moto: the events that a bucket sends to EventBridge."""

from __future__ import annotations

import itertools
import time
import uuid
from functools import cache
from typing import Any

from moto.core.responses import ActionResult
from moto.s3 import notifications
from moto.s3.models import FakeBucket, s3_backends
from moto.s3.responses import S3Response
from moto.utilities.utils import get_partition

from infra.local.moto_patches.event_rules import send_to_default_bus
from infra.local.moto_patches.resources import call_after_creation

__all__ = [
    "patch_bucket_notifications_from_cloudformation",
    "patch_get_bucket_notification",
    "patch_s3_event_details",
]

REASONS = {
    "Put": "PutObject",
    "Post": "POST Object",
    "Copy": "CopyObject",
    "CompleteMultipartUpload": "CompleteMultipartUpload",
    "Delete": "DeleteObject",
}
_sequence = itertools.count(time.time_ns())
_get_notifications = S3Response.get_bucket_notification


@cache
def patch_bucket_notifications_from_cloudformation() -> None:
    """Read NotificationConfiguration of a bucket from the template.

    Without it a bucket of a stack sends no events.
    """

    def configure(bucket: Any, properties: dict[str, Any]) -> None:
        wanted = properties.get("NotificationConfiguration", {}).get("EventBridgeConfiguration")
        if wanted is not None and str(wanted.get("EventBridgeEnabled", True)).lower() == "true":
            bucket.set_notification_configuration({"EventBridgeConfiguration": {}})

    call_after_creation(FakeBucket, configure)


@cache
def patch_get_bucket_notification() -> None:
    """Report whether a bucket sends events to EventBridge.

    Without it moto sends them, but GetBucketNotificationConfiguration omits that.
    """

    def get_bucket_notification(self: Any) -> Any:
        found = self.backend.get_bucket_notification_configuration(self.bucket_name)
        if found and found.event_bridge is not None:
            serialized = self.serialized
            self.serialized = lambda answer: serialized(
                ActionResult({**answer.result, "EventBridgeConfiguration": {}})
            )
        return _get_notifications(self)

    S3Response.get_bucket_notification = get_bucket_notification


@cache
def patch_s3_event_details() -> None:
    """Send object events like S3.

    Without it they have the field `eTag` instead of `etag`, one id and one sequencer for all
    objects, the version "null" if there is none, and the reason "ObjectCreated"; every put without
    tags sends a second event about tags; and an error in a rule is swallowed.
    """
    # Private in moto, and the single function that all of its S3 operations call.
    notifications._send_event_bridge_message = _send_event  # noqa: SLF001


def _send_event(account_id: str, bucket: Any, event_name: str, key: Any) -> None:
    detail_type = notifications._detail_type(event_name)  # noqa: SLF001
    if detail_type == "Object Tags Added" and not _has_tags(account_id, bucket, key):
        return
    described: dict[str, Any] = {"key": key.name, "sequencer": f"{next(_sequence):018X}"}
    if detail_type == "Object Created":
        described |= {"size": key.size, "etag": key.etag.replace('"', "")}
    if key.version_id not in {None, "null"}:
        described["version-id"] = key.version_id
    detail: dict[str, Any] = {
        "version": "0",
        "bucket": {"name": bucket.name},
        "object": described,
        "request-id": uuid.uuid4().hex[:16].upper(),
        "requester": account_id,
        "source-ip-address": "127.0.0.1",
    }
    action = str(getattr(event_name, "value", event_name)).rpartition(":")[2]
    if detail_type in {"Object Created", "Object Deleted"}:
        detail["reason"] = REASONS.get(action, action)
    event = {
        "id": str(uuid.uuid4()),
        "detail-type": detail_type,
        "source": "aws.s3",
        "resources": [bucket.arn],
        "detail": detail,
    }
    send_to_default_bus(account_id, bucket.region_name, event)


def _has_tags(account_id: str, bucket: Any, key: Any) -> bool:
    backend = s3_backends[account_id][get_partition(bucket.region_name)]
    return bool(backend.tagger.get_tag_dict_for_resource(key.arn))
