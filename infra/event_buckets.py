"""Checks whether existing watched buckets send their events to EventBridge.

`python -m infra.event_buckets NAME ...` shows it; `--enable` enables it and keeps all other
notifications of a bucket. Without names, it checks the buckets in cdk.json. It uses your own
credentials, which need s3:ListBucket and s3:GetBucketNotification, and s3:PutBucketNotification for
`--enable`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import ClientError

from infra.app import project_context
from infra.setting_checks import PREFIX
from infra.settings import read_names

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["main"]

EVENT_BRIDGE = "EventBridgeConfiguration"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the buckets; return the exit status, 1 if one of them sends no events."""
    parser = argparse.ArgumentParser(prog="python -m infra.event_buckets", description=main.__doc__)
    parser.add_argument("buckets", nargs="*", metavar="NAME")
    parser.add_argument("--enable", action="store_true", help="enable it where it is disabled")
    options = parser.parse_args(arguments)
    names = options.buckets or read_names(project_context().get(f"{PREFIX}tensor_buckets", []))
    client = boto3.client("s3")
    is_silent = [_is_silent(client, name, enable=options.enable) for name in names]
    return int(any(is_silent))


def _is_silent(client: S3Client, name: str, *, enable: bool) -> bool:
    """Show a bucket's state, and return whether it sends no events."""
    try:
        region = client.head_bucket(Bucket=name).get("BucketRegion", client.meta.region_name)
        if region != client.meta.region_name:
            hint = f"its events stay there: deploy there, not in {client.meta.region_name}"
            return _reported(name, f"is in {region}; {hint}", is_silent=True)
        found = client.get_bucket_notification_configuration(Bucket=name)
        if EVENT_BRIDGE in found:
            return _reported(name, "sends its events to EventBridge", is_silent=False)
        if not enable:
            hint = f"enable it: python -m infra.event_buckets --enable {name}"
            return _reported(name, f"sends no events to EventBridge; {hint}", is_silent=True)
        # The request replaces the whole configuration, so it must contain the existing one.
        wanted: Any = {key: value for key, value in found.items() if key != "ResponseMetadata"}
        wanted[EVENT_BRIDGE] = {}
        client.put_bucket_notification_configuration(Bucket=name, NotificationConfiguration=wanted)
    except ClientError as error:
        return _reported(name, str(error), is_silent=True)
    return _reported(name, "sends its events to EventBridge from now on", is_silent=False)


def _reported(name: str, what: str, *, is_silent: bool) -> bool:
    print(f"{name}: {what}", file=sys.stderr if is_silent else sys.stdout)
    return is_silent


if __name__ == "__main__":
    sys.exit(main())
