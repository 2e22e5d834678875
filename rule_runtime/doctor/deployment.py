"""Checks credentials, a bucket and the deployed stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hook_layer.storage.base import StorageError, Store, StoreRefusedError
from rule_runtime.doctor.asking import asked
from rule_runtime.doctor.finding import Finding, Verdict
from rule_runtime.doctor.operation import operation_findings
from rule_runtime.jobs.aws import Aws

__all__ = ["deployment_findings", "place_findings"]

_TEST_KEY: Final = "stepwatch-doctor.txt"
_TEST: Final = b"written, read and removed by `stepwatch doctor`\n"
_NO_BUCKET: Final = "NoSuchBucket"
_STABLE: Final = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE")


def place_findings(store: Store) -> Iterator[Finding]:
    """Yield findings on write access for runs and read access for rules.

    It writes, reads, lists and deletes a small object: `stepwatch-doctor.txt`.

    Args:
        store: Store for trials.
    """
    subject = store.uri
    try:
        store.put(_TEST_KEY, _TEST)
        is_read = store.get(_TEST_KEY) == _TEST
        is_found = _TEST_KEY in store.list(_TEST_KEY)
        store.delete(_TEST_KEY)
    except StorageError as error:
        is_refused = isinstance(error, StoreRefusedError)
        remedy = "change what it names" if is_refused else "see whether the place can be reached"
        yield Finding(subject, Verdict.PROBLEM, str(error), remedy)
        return
    if is_read and is_found:
        yield Finding(subject, Verdict.OK, "an object was written, listed, read and removed")
    else:
        text = "an object that was written is not there"
        yield Finding(subject, Verdict.PROBLEM, text, "see who changes this place")


def deployment_findings(
    aws: Aws, stack_name: str, version: str, bucket: str = ""
) -> Iterator[Finding]:
    """Yield findings on the credentials, the stack, a bucket, and the stack's operation.

    Args:
        aws: The account.
        stack_name: Name of the stack.
        version: Version of the local library.
        bucket: Bucket of the runs; empty for no check.
    """
    identity, error = asked(aws, "sts", "get_caller_identity")
    if error is not None:
        remedy = "set AWS_PROFILE, or give this machine a role"
        yield Finding("credentials", Verdict.PROBLEM, str(error), remedy)
        return
    yield Finding("credentials", Verdict.OK, str(identity.get("Arn")))
    described, error = asked(aws, "cloudformation", "describe_stacks", StackName=stack_name)
    if error is not None:
        remedy = "deploy it (cdk deploy), or name it by --stack, and its Region by AWS_REGION"
        yield Finding(f"stack {stack_name}", Verdict.PROBLEM, str(error), remedy)
        return
    stack = described["Stacks"][0]
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", ())}
    yield _state(stack_name, str(stack["StackStatus"]))
    yield _version(outputs.get("Version", ""), version)
    if bucket:
        yield _is_watched(bucket, outputs.get("TensorBucketNames", "").split(","))
        yield _notifications(aws, bucket)
    yield from operation_findings(aws, stack_name, outputs)


def _state(name: str, status: str) -> Finding:
    if status in _STABLE:
        return Finding(f"stack {name}", Verdict.OK, status)
    remedy = "wait until it is done, or see its events in CloudFormation"
    return Finding(f"stack {name}", Verdict.PROBLEM, status, remedy)


def _version(deployed: str, here: str) -> Finding:
    if deployed == here:
        return Finding("deployed version", Verdict.OK, f"{deployed}, as here")
    text = f"{deployed or 'an unknown version'}; here it is {here}"
    remedy = "deploy the version that your jobs use, or install the deployed one"
    return Finding("deployed version", Verdict.NOTE, text, remedy)


def _is_watched(bucket: str, watched: list[str]) -> Finding:
    if bucket in watched:
        return Finding(f"bucket {bucket}", Verdict.OK, "the stack watches it")
    return Finding(
        f"bucket {bucket}",
        Verdict.PROBLEM,
        f"the stack does not watch it, but {', '.join(watched)}",
        "write there, or deploy with this bucket in stepwatch:tensor_buckets",
    )


def _notifications(aws: Aws, bucket: str) -> Finding:
    subject = "events of the bucket"
    found, error = asked(aws, "s3", "get_bucket_notification_configuration", Bucket=bucket)
    if error is not None:
        if error.code == _NO_BUCKET:
            remedy = "create it, or write to one that is watched"
            return Finding(subject, Verdict.PROBLEM, "there is no such bucket", remedy)
        remedy = "s3:GetBucketNotification is needed to check this" if error.is_forbidden else ""
        return Finding(subject, Verdict.NOTE, str(error), remedy)
    if "EventBridgeConfiguration" in found:
        return Finding(subject, Verdict.OK, "go to EventBridge")
    remedy = "switch on Amazon EventBridge in the bucket's properties"
    return Finding(subject, Verdict.PROBLEM, "do not go to EventBridge: no rule wakes up", remedy)
