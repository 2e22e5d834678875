"""Roles against requests: what is asked for is granted, on those resources, and nothing more is.

The emulator does not enforce IAM. Each function, and the training process, has an access key of its
own here, so its requests can be compared with its role.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import END_MARKER, JOB_FILE, STOP_FILE
from hook_layer.storage.s3 import S3Store
from infra.local import LocalTarget
from infra.local.emulator import StartResponse, WsgiApplication
from lambdas.contracts.events import NATIVE_SOURCE, STATUS_DETAIL_TYPE
from rule_runtime.testing.trial_builder import TrialBuilder
from tests.docs.page_blocks import blocks_of
from tests.infra.local.recorded_requests import Grants, Requests

RULE = "explosion"
RUN = "01JD0000000000000000000001"
FILE = "mine.py"
SOURCE = """
from rule_runtime import Rule
from rule_runtime.engine.outcome import Passed


class Mine(Rule):
    def check(self, step, memory):
        return Passed()
"""
NON_FINITE = {"RuleConfigurationName": "NonFinite"}
CONTEXT = {
    "stepwatch:rules": {RULE: {"rule_to_invoke": "ExplodingTensor"}},
    "stepwatch:custom_rules": {FILE: hashlib.sha256(SOURCE.encode()).hexdigest()},
    "stepwatch:stop_rules": [RULE],
    "stepwatch:event_bus": "own",
}
USED_BY_THE_SERVICES = re.compile(
    r"logs:.*|kms:.*|sqs:(DeleteMessage|GetQueueAttributes|ReceiveMessage) .*"
    r"|sqs:SendMessage .*Failures.*"
)
"""What Lambda and SNS do with a function's role: logs, its queue, its failures, keys."""
EVALUATOR = (
    r"s3:(PutObject|DeleteObject) .*_stepwatch/memory/\*",  # of rules that keep a lot
    r"sqs:SendMessage .*",  # when the time is over
    r"sqs:ChangeMessageVisibility .*",  # when something fails
)
NEEDED_ELSEWHERE = {
    "explosionEvaluator": EVALUATOR,
    "JobRulesBuiltIn": EVALUATOR,
    "JobRulesCustom": EVALUATOR,
    "FinishJob": (r"s3:GetObject .*collections/\*",),  # the jobs here have none
    "Notify": (
        r"dynamodb:DeleteItem .*",  # when a message could not be sent
        r"s3:ListBucket .*",  # nothing is listed: S3 tells only who may that an object is absent
    ),
    "StopJob": (r"s3:ListBucket .*",),  # likewise
    "Sweep": (),
}
"""Grants of which nothing here makes use, by function; tests of the functions do."""


def matches(resource: str, granted: str) -> bool:
    """Whether an ARN is one that a policy grants; `*` and `?` are IAM's only wildcards."""
    pattern = re.escape(granted).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(pattern, resource) is not None


def grants_of(policy: dict[str, Any]) -> Grants:
    """Return the pairs of action and resource that a policy allows."""
    return {
        (action, resource)
        for statement in policy["Statement"]
        for action in _as_list(statement["Action"])
        for resource in _as_list(statement["Resource"])
        if statement["Effect"] == "Allow"
    }


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def assert_exactly_granted(asked: Grants, grants: Grants) -> None:
    """Every request is granted, and every grant was needed by a request."""
    refused = {
        (action, resource)
        for action, resource in asked
        if not any(action == name and matches(resource, arn) for name, arn in grants)
    }
    assert not refused
    unused = {
        (name, arn)
        for name, arn in grants
        if not any(action == name and matches(resource, arn) for action, resource in asked)
    }
    assert not unused


@pytest.fixture(scope="module")
def requests() -> Requests:
    """All requests of this module's deployment."""
    return Requests()


@pytest.fixture(scope="module")
def target(requests: Requests, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalTarget]:
    """A deployment that stopped a sick job, and saw a healthy one and one of the original end."""

    def recorded(application: WsgiApplication) -> WsgiApplication:
        def call(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
            requests.record(environ)
            return application(environ, start_response)

        return call

    folder = tmp_path_factory.mktemp("target")
    with LocalTarget(CONTEXT, workdir=folder, middleware=recorded) as running:
        write_job(running, "healthy")
        write_job(running, "original", end_marker=b"")  # names no last file, so keys are listed
        write_job(running, "own", end_marker=b"", rules=own_rules(running))
        sick = write_job(running, "sick", num_nan=1)
        running.wait_idle()
        assert sick.exists(STOP_FILE)
        report_native_finding(running, "healthy")
        running.wait_idle()
        quiet = write_job(running, "quiet", has_ended=False)
        report_interruption(running, "quiet")
        running.wait_idle()
        date_back(running, f"{quiet.uri}#{RUN}", RULE)
        waiting = write_job(running, "waiting", has_ended=False, rules=(NON_FINITE,))
        running.wait_idle()
        date_back(running, f"{waiting.uri}#{RUN}", "NonFinite")
        stubborn = write_job(running, "stubborn", num_nan=1, has_ended=False, platform="local")
        running.wait_idle()
        date_back(running, "stop#stubborn", f"{stubborn.uri}#{RUN}", num_requests=2)
        running.finish_training_job("sick", exit_code=0)
        running.run_schedules()
        running.wait_idle()
        running.finish_training_job("quiet", exit_code=0)
        running.wait_idle()
        yield running


def write_job(
    target: LocalTarget,
    name: str,
    *,
    num_nan: int = 0,
    end_marker: bytes | None = None,
    has_ended: bool = True,
    platform: str = "sagemaker",
    rules: tuple[dict[str, Any], ...] | None = None,
) -> S3Store:
    """Start a training job and write one step of it, and its end."""
    uri = f"s3://{target.tensor_bucket}/{name}/debug-output"
    arn = None
    if platform == "sagemaker":
        arn = target.start_training_job(name, uri, may_be_stopped=True)
    store = S3Store(uri, client=target.client("s3"))
    actions = () if arn else ({"name": "stoptraining"},)
    job = JobFile(name, RUN, platform, "", arn, rules, actions)
    store.put(JOB_FILE, job.encode())
    builder = TrialBuilder(store, run=RUN)
    values = np.array([np.nan] * num_nan + [1.0] * 4, dtype=np.float32)
    builder.step(0, {"conv.weight": values}, save_values=False)
    if end_marker is None and has_ended:
        builder.end()
    elif end_marker is not None:
        store.put(END_MARKER, end_marker)
    return store


def own_rules(target: LocalTarget) -> tuple[dict[str, Any], ...]:
    """Upload the file of a custom rule; return what configures it, and a built-in one."""
    bucket = target.outputs["CustomRuleBucketName"]
    target.client("s3").put_object(Bucket=bucket, Key=FILE, Body=SOURCE.encode())
    custom = {"source_s3_uri": f"s3://{bucket}/{FILE}", "rule_to_invoke": "Mine"}
    return (
        {"RuleConfigurationName": "Mine", "RuleParameters": custom},
        NON_FINITE,
    )


def send_native(target: LocalTarget, detail: dict[str, Any]) -> None:
    """Send SageMaker's event of a job."""
    entry = {
        "Source": NATIVE_SOURCE,
        "DetailType": STATUS_DETAIL_TYPE,
        "Detail": json.dumps(detail),
    }
    target.client("events").put_events(Entries=[entry])


def report_native_finding(target: LocalTarget, job: str) -> None:
    """Send what SageMaker tells of its own rules; it does not say where a job writes."""
    status = {"RuleConfigurationName": RULE, "RuleEvaluationStatus": "IssuesFound"}
    detail = {
        "TrainingJobName": job,
        "TrainingJobStatus": "InProgress",
        "DebugRuleEvaluationStatuses": [status],
    }
    send_native(target, detail)


def report_interruption(target: LocalTarget, job: str) -> None:
    """Send what SageMaker tells when the spot instances of a job are taken away."""
    detail = {
        "TrainingJobName": job,
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Interrupted",
    }
    send_native(target, detail)


def date_back(target: LocalTarget, partition: str, sort: str, **numbers: int) -> None:
    """Date an item of the table two hours back, instead of waiting for two hours."""
    then = round((time.time() - 7200) * 1000)
    values = {"updated_at": then, **numbers}
    target.client("dynamodb").update_item(
        TableName=target.outputs["StateTableName"],
        Key={"run": {"S": partition}, "rule": {"S": sort}},
        UpdateExpression="SET " + ", ".join(f"{name} = :{name}" for name in values),
        ConditionExpression="attribute_exists(updated_at)",
        ExpressionAttributeValues={f":{name}": {"N": str(v)} for name, v in values.items()},
    )


def role_grants(target: LocalTarget, function: str) -> Grants:
    """Return what the deployed role of a function grants, with resolved ARNs."""
    iam = target.client("iam")
    described = target.client("lambda").get_function_configuration(FunctionName=function)
    role = described["Role"].rpartition("/")[2]
    assert iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == []
    return {
        grant
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
        for grant in grants_of(
            iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        )
    }


def function_named(target: LocalTarget, part: str) -> str:
    listed = target.client("lambda").list_functions()["Functions"]
    (name,) = [f["FunctionName"] for f in listed if part in f["FunctionName"]]
    return str(name)


@pytest.mark.parametrize("part", sorted(NEEDED_ELSEWHERE))
def test_functions_need_exactly_what_their_roles_grant(
    target: LocalTarget, requests: Requests, part: str
) -> None:
    function = function_named(target, part)
    grants = role_grants(target, function)
    for_services = {grant for grant in grants if USED_BY_THE_SERVICES.fullmatch(" ".join(grant))}
    assert {action.partition(":")[0] for action, _ in for_services} <= {"kms", "logs", "sqs"}
    elsewhere = {
        grant
        for grant in grants
        if any(re.fullmatch(rare, " ".join(grant)) for rare in NEEDED_ELSEWHERE[part])
    }
    assert len(elsewhere) >= len(NEEDED_ELSEWHERE[part])
    asked = {request for request in requests.asked[function] if request not in for_services}
    assert_exactly_granted(asked - _covered(asked, elsewhere), grants - for_services - elsewhere)


def _covered(asked: Grants, grants: Grants) -> Grants:
    return {
        (action, resource)
        for action, resource in asked
        if any(action == name and matches(resource, arn) for name, arn in grants)
    }


@pytest.mark.parametrize(("part", "partition"), [("StopJob", "stop#"), ("Notify", "notice#")])
def test_functions_write_to_the_partitions_that_they_may_write_to(
    target: LocalTarget, requests: Requests, part: str, partition: str
) -> None:
    """The condition of the grant is on the partition key; a test of the template asserts it."""
    written = requests.written[function_named(target, part)]
    assert written
    assert not [name for name in written if not name.startswith(partition)]


def documented_policy(bucket: str, job: str) -> Grants:
    """Return what the policy of a training role in docs/reference/permissions.md grants."""
    (block,) = (
        block.text
        for block in blocks_of("reference/permissions.md")
        if block.title == "training_policy.json"
    )
    policy = block.replace("<bucket>", bucket).replace("<job name>", job)
    assert "<" not in policy
    return grants_of(json.loads(policy))


def test_a_training_process_needs_exactly_what_the_page_grants(
    target: LocalTarget, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    import hook_layer.pytorch as smd

    configuration = json.dumps({"TrainingJobName": "trained"}).encode()
    key = "trained/stepwatch.json"  # as `prepare` leaves it
    target.client("s3").put_object(Bucket=target.tensor_bucket, Key=key, Body=configuration)
    own = {
        "AWS_ACCESS_KEY_ID": "training",
        "STEPWATCH_CONFIG": f"s3://{target.tensor_bucket}/{key}",
    }
    for name, value in (target.environment() | own).items():
        monkeypatch.setenv(name, value)
    network, loss = torch.nn.Linear(2, 2), torch.nn.CrossEntropyLoss()
    for _ in range(2):  # the second run finds what the first one left
        hook = smd.Hook(f"s3://{target.tensor_bucket}/trained/debug-output", save_all=True)
        hook.register_module(network)
        hook.register_loss(loss)
        loss(network(torch.ones(3, 2)), torch.tensor([0, 1, 0])).backward()
        hook.close()
    asked = requests.asked["training"]
    ends = time.monotonic() + 20
    while not any(resource.endswith(STOP_FILE) for _, resource in asked.copy()):  # in a thread
        assert time.monotonic() < ends, "the hook did not look for a stop request"
        time.sleep(0.01)
    assert_exactly_granted(asked, documented_policy(target.tensor_bucket, "trained"))
