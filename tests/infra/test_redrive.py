"""Events that could not be handled: told, and handed over once more."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from infra import redrive
from infra.constructs.trust import REPAIRS
from infra.event_summary import MAX_LINE, counted, described
from lambdas.contracts.environment import RULE_QUEUE_URLS
from lambdas.stop_job.request import parse_request
from tests.docs.operator_rights import asked_for
from tests.docs.page_blocks import DOCS
from tests.infra.queries import Template

FINDING = {
    "TrainingJobName": "mnist-7",
    "DebugRuleEvaluationStatuses": [
        {"RuleConfigurationName": "NonFinite", "RuleEvaluationStatus": "IssuesFound"}
    ],
}
FAILED_CALL = {
    "version": "1.0",
    "timestamp": "2026-11-20T10:00:00.000Z",
    "requestContext": {"condition": "RetriesExhausted", "approximateInvokeCount": 3},
    "requestPayload": FINDING,
    "responseContext": {"statusCode": 200, "functionError": "Unhandled"},
    "responsePayload": {"errorMessage": "no", "errorType": "Unhandled"},
}
"""What Lambda sends to the destination of calls that failed."""


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@dataclass
class Deployment:
    """The queues of a deployment, and what its functions are called with."""

    queues: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def send(self, queue: str, *bodies: Any) -> None:
        for body in bodies:
            text = body if isinstance(body, str) else json.dumps(body)
            boto3.client("sqs").send_message(QueueUrl=self.queues[queue], MessageBody=text)

    def bodies(self, queue: str) -> list[str]:
        answer = boto3.client("sqs").receive_message(
            QueueUrl=self.queues[queue], MaxNumberOfMessages=10, VisibilityTimeout=0
        )
        return [message["Body"] for message in answer.get("Messages", [])]


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """A stack of the stage `dev`, as far as its outputs tell, with one rule."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setattr(redrive, "WAIT_S", 0)
    monkeypatch.setattr(redrive, "LOOKED_AT_S", 0)
    with mock_aws(config={"lambda": {"use_docker": False}}):
        boto3.setup_default_session()
        made = Deployment()
        make_queues(made)
        outputs = make_functions(made.queues["rule"])
        for name, key in redrive.FUNCTIONS.items():
            outputs[f"{key}FailuresUrl"] = made.queues[name]
        make_stack(outputs)
        session: Any = boto3.DEFAULT_SESSION
        session.events.register("provide-client-params.lambda.Invoke", called_into(made))
        yield made
    boto3.DEFAULT_SESSION = None


def make_queues(made: Deployment) -> None:
    client = boto3.client("sqs")
    for name in ("letters", *redrive.FUNCTIONS):
        made.queues[name] = client.create_queue(QueueName=name)["QueueUrl"]
    arn = "arn:aws:sqs:eu-west-1:123456789012:letters"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 10})
    created = client.create_queue(QueueName="rule", Attributes={"RedrivePolicy": policy})
    made.queues["rule"] = created["QueueUrl"]


def make_functions(rule_queue_url: str) -> dict[str, str]:
    """Create the functions; return the outputs that name them."""
    trust = {"Version": "2012-10-17", "Statement": []}
    role = boto3.client("iam").create_role(
        RoleName="any", AssumeRolePolicyDocument=json.dumps(trust)
    )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("handler.py", "")
    for name in redrive.FUNCTIONS:
        boto3.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=role["Role"]["Arn"],
            Handler="handler.f",
            Code={"ZipFile": archive.getvalue()},
            Environment={"Variables": {RULE_QUEUE_URLS: json.dumps({"Explosion": rule_queue_url})}},
        )
    return {f"{key}FunctionName": name for name, key in redrive.FUNCTIONS.items()}


def make_stack(outputs: dict[str, str]) -> None:
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    boto3.client("cloudformation").create_stack(
        StackName="Stepwatch-dev", TemplateBody=json.dumps(template)
    )


def called_into(made: Deployment) -> Any:
    def record(params: dict[str, Any], **_: Any) -> None:
        assert params["InvocationType"] == "Event"
        made.calls.append((params["FunctionName"], json.loads(params["Payload"])))

    return record


def test_what_waits_is_reported_and_left_alone(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment.send("letters", {"a": 1}, {"a": 2})
    deployment.send("stop_job", FAILED_CALL)
    assert redrive.main(["--stage", "dev"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "stop_job: 1 event waits",
        "    mnist-7, NonFinite IssuesFound, waits for less than a minute: Unhandled: no",
        "Explosion: 2 events wait",
        "    an event of no job, waits for less than a minute",
        "    an event of no job, waits for less than a minute",
    ]
    assert len(deployment.bodies("letters")) == 2
    assert deployment.calls == []


def test_nothing_waits(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    del deployment
    assert redrive.main([]) == 0, "the stage of cdk.json"
    assert capsys.readouterr().out == "no event waits in Stepwatch-dev\n"


def test_of_very_many_events_the_first_are_reported(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(redrive, "MAX_SHOWN", 3)
    deployment.send("letters", *({"number": number} for number in range(8)))
    assert redrive.main([]) == 1
    first, *reported, last = capsys.readouterr().out.splitlines()
    assert (first, len(reported), last) == ("Explosion: 8 events wait", 3, "    and 5 more")


def test_it_asks_for_what_the_role_for_emergencies_may_do(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.send("letters", {"a": 1})
    deployment.send("stop_job", FAILED_CALL)
    asked = asked_for(monkeypatch)
    assert redrive.main(["all"]) == 0
    allowed = {action for actions in REPAIRS for action in actions.split(",")}
    assert asked == {action for action in allowed if not action.startswith("dynamodb:")}


def test_help_says_what_each_argument_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        redrive.main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "stage of the deployment, whose stack is Stepwatch-STAGE; default: dev" in said
    assert "default: only show" in said


NOW = 1_800_000_000.0


def message(body: Any, age_s: float = 0, **attributes: str) -> dict[str, Any]:
    """Return a message as SQS hands it out."""
    return {
        "Body": body if isinstance(body, str) else json.dumps(body),
        "Attributes": {"SentTimestamp": str(round((NOW - age_s) * 1000))},
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
        },
    }


OF_BUCKET = {
    "source": "aws.s3",
    "detail": {"bucket": {"name": "tensors"}, "object": {"key": "mnist-7/index/0.json"}},
}
WAKE = {"source": "stepwatch.debugger", "detail": {"DebugOutputUri": "s3://t/m/", "Rule": "Flat"}}


@pytest.mark.parametrize(
    ("waiting", "line"),
    [
        (message(OF_BUCKET, 7300), "s3://tensors/mnist-7/index/0.json, waits for 2 hours"),
        (message(WAKE, 90), "s3://t/m/, Flat, waits for 1 minute"),
        (
            message({"detail": FINDING}, 200000, ERROR_CODE="NO_PERMISSIONS", ERROR_MESSAGE="x\ny"),
            "mnist-7, NonFinite IssuesFound, waits for 2 days: NO_PERMISSIONS: x y",
        ),
        (
            message({"detail-type": "Stop Confirmation Due"}),
            "Stop Confirmation Due, waits for less than a minute",
        ),
        (
            message({"requestContext": {"condition": "EventAgeExceeded"}, "requestPayload": 5}),
            "an event of no job, waits for less than a minute: EventAgeExceeded",
        ),
        (message("{no json"), "no event: {no json, waits for less than a minute"),
    ],
)
def test_a_waiting_event_is_reported_in_a_line(waiting: dict[str, Any], line: str) -> None:
    assert described(waiting, NOW) == line


@given(JSON_VALUES | st.builds(lambda value: {"detail": value}, JSON_VALUES))
def test_whatever_waits_one_line_can_be_told_of_it(body: object) -> None:
    line = described(message(json.dumps(body)))
    assert line.isprintable()
    assert len(line) <= MAX_LINE


def test_events_of_a_rule_go_back_to_its_queue(deployment: Deployment) -> None:
    bodies = [json.dumps({"number": number}) for number in range(23)]
    deployment.send("letters", *bodies)
    deployment.send("notify", FINDING)
    assert redrive.main(["Explosion"]) == 1, "those of notify still wait"
    assert deployment.bodies("letters") == []
    found = boto3.client("sqs").get_queue_attributes(
        QueueUrl=deployment.queues["rule"], AttributeNames=["ApproximateNumberOfMessages"]
    )
    assert found["Attributes"]["ApproximateNumberOfMessages"] == "23"
    assert deployment.bodies("rule")[0] in bodies
    assert deployment.calls == []


@pytest.mark.parametrize("body", [FINDING, FAILED_CALL])
def test_a_function_is_called_with_the_event(deployment: Deployment, body: Any) -> None:
    deployment.send("stop_job", body)
    assert redrive.main(["stop_job"]) == 0
    assert deployment.calls == [("stop_job", FINDING)]
    assert parse_request(deployment.calls[0][1]).training_job_name == "mnist-7"


def test_all_of_them_at_once(deployment: Deployment) -> None:
    for queue in ("letters", *redrive.FUNCTIONS):
        deployment.send(queue, FAILED_CALL)
    assert redrive.main(["all"]) == 0
    assert sorted(name for name, _ in deployment.calls) == sorted(redrive.FUNCTIONS)


@pytest.mark.parametrize("body", ["no JSON", "[1]", '"text"'])
def test_what_is_no_event_stays_and_is_reported(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], body: str
) -> None:
    deployment.send("stop_job", body, FAILED_CALL)
    assert redrive.main(["stop_job"]) == 1
    printed = capsys.readouterr()
    assert (
        printed.out
        == "stop_job: 1 event delivered again\nstop_job: 1 event waits\n    and 1 more\n"
    )
    assert f"not delivered, because it is not an event: {body}" in printed.err


def test_what_cannot_be_handed_over_stays(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        denied: Any = {"Error": {"Code": "AccessDeniedException", "Message": "not allowed"}}
        raise ClientError(denied, "Invoke")

    deployment.send("stop_job", FAILED_CALL)
    session: Any = boto3.DEFAULT_SESSION
    session.events.register("before-call.lambda.Invoke", refuse)
    monkeypatch.setattr(redrive, "HIDDEN_S", 0)
    with pytest.raises(SystemExit, match=r"infra: .*not allowed"):
        redrive.main(["stop_job"])
    assert len(deployment.bodies("stop_job")) == 1


def test_a_name_that_nobody_has_is_reported(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    del deployment
    with pytest.raises(SystemExit):
        redrive.main(["Explosio"])
    assert "unknown: Explosio; give one of Explosion, finish_job" in capsys.readouterr().err


def test_a_stage_that_is_not_deployed_is_reported(deployment: Deployment) -> None:
    del deployment
    with pytest.raises(SystemExit, match=r"infra: .*Stepwatch-prod"):
        redrive.main(["--stage", "prod"])


def test_the_stack_tells_what_it_needs(template: Template) -> None:
    outputs = template["Outputs"]
    for key in redrive.FUNCTIONS.values():
        function = outputs[f"{key}FunctionName"]["Value"]["Ref"]
        assert template["Resources"][function]["Type"] == "AWS::Lambda::Function"
        queue = outputs[f"{key}FailuresUrl"]["Value"]["Ref"]
        assert queue.startswith(key)
        assert template["Resources"][queue]["Type"] == "AWS::SQS::Queue"
    finish = template["Resources"][outputs["FinishJobFunctionName"]["Value"]["Ref"]]
    assert RULE_QUEUE_URLS in finish["Properties"]["Environment"]["Variables"]


def test_the_documented_lines_are_those_that_are_reported() -> None:
    text = (DOCS / "how-to" / "alarms.md").read_text(encoding="utf-8")
    block = text.partition("as long as some do:\n\n")[2].partition("\n\n")[0]
    shown = [line.removeprefix("    ") for line in block.splitlines()]
    root = "s3://my-bucket/mnist-7/debug-output/"
    key = "mnist-7/debug-output/index/000000000/000000000120_worker_0.json"
    of_bucket = {"detail": {"bucket": {"name": "my-bucket"}, "object": {"key": key}}}
    answer = {"errorType": "ClientError", "errorMessage": "AccessDenied"}
    reported = [
        message({**FAILED_CALL, "responsePayload": answer}, 12 * 60),
        message(of_bucket, 3 * 3600),
        message({"detail": {"DebugOutputUri": root, "Rule": "NonFinite"}}, 2 * 3600),
    ]
    lines = [line for line in shown if line.startswith("    ")]
    assert lines == [f"    {described(each, NOW)}" for each in reported]
    assert [line for line in shown if line not in lines] == [
        f"stop_job: {counted(1, 'wait')}",
        f"NonFinite: {counted(2, 'wait')}",
    ]
