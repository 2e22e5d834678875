"""Requests to the emulator as IAM sees them: who asks, for which action, on which resource."""

from __future__ import annotations

import io
import json
import re
from typing import Any
from urllib.parse import parse_qsl

from lambdas.contracts.events import STATE_PARTITION_KEY

Grants = set[tuple[str, str]]

S3_ACTIONS = {
    ("GET", False): "GetObject",
    ("HEAD", False): "GetObject",
    ("GET", True): "ListBucket",
    ("PUT", False): "PutObject",
    ("DELETE", False): "DeleteObject",
}


class Requests:
    """What each access key asked the emulator for, as pairs of IAM action and resource."""

    def __init__(self) -> None:
        self.asked: dict[str, Grants] = {}
        self.written: dict[str, set[str]] = {}
        """Partitions of the table that each key wrote to."""

    def record(self, environ: dict[str, Any]) -> None:
        authorization = environ.get("HTTP_AUTHORIZATION", "")
        found = re.search(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/", authorization)
        if found is None:
            return
        key, region, service = found.groups()
        asked = self.asked.setdefault(key, set())
        if service == "s3":
            asked.update(_s3_request(environ))
        elif service == "sns":
            asked.update(_form_request(environ))
        else:
            asked.update(_json_request(environ, region, service))
            self.written.setdefault(key, set()).update(_written_partitions(environ, service))


def _s3_request(environ: dict[str, Any]) -> Grants:
    path = environ["PATH_INFO"].strip("/")
    method = environ["REQUEST_METHOD"]
    action = S3_ACTIONS.get((method, "/" not in path), f"unexpected {method}")
    return {(f"s3:{action}", f"arn:aws:s3:::{path}")}


def _body(environ: dict[str, Any]) -> bytes:
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return body


def _form_request(environ: dict[str, Any]) -> Grants:
    form = dict(parse_qsl(_body(environ).decode()))
    return {(f"sns:{form['Action']}", form["TopicArn"])}


def _json_request(environ: dict[str, Any], region: str, service: str) -> Grants:
    body = _body(environ)
    action = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2].removesuffix("Batch")
    if not action:
        return set()
    return {
        (f"{service}:{action}", f"arn:aws:{service}:{region}:123456789012:{resource}")
        for resource in _resources(service, json.loads(body))
    }


def _written_partitions(environ: dict[str, Any], service: str) -> set[str]:
    action = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
    if service != "dynamodb" or action not in {"PutItem", "UpdateItem", "DeleteItem"}:
        return set()
    request = json.loads(_body(environ))
    return {request.get("Key", request.get("Item"))[STATE_PARTITION_KEY]["S"]}


def _resources(service: str, request: dict[str, Any]) -> set[str]:
    if service == "dynamodb":
        index = f"/index/{request['IndexName']}" if "IndexName" in request else ""
        return {f"table/{request['TableName']}{index}"}
    if service == "sqs":
        return {request.get("QueueUrl", "/?").rpartition("/")[2]}
    if service == "events" and "Entries" in request:
        return {f"event-bus/{entry.get('EventBusName', 'default')}" for entry in request["Entries"]}
    if service == "sagemaker":
        arn = request.get("ResourceArn", f"training-job/{request.get('TrainingJobName')}")
        return {arn.rpartition(":")[2]}
    return {"?"}  # matches no grant
