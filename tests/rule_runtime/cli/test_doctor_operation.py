"""`stepwatch doctor` about what a deployed stack does, and what waits for somebody."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from lambdas.contracts import environment
from rule_runtime.doctor.deployment import deployment_findings
from rule_runtime.doctor.operation import operation_findings
from rule_runtime.jobs.aws import Aws
from tests.docs.operator_rights import asked_for, granted

STACK = "Stepwatch-dev"
AGE = "ApproximateAgeOfOldestMessage"
FUNCTIONS = ("StopJob", "FinishJob", "Notify")


class Stack:
    """The outputs of a stack of one rule, and what they name, in moto."""

    def __init__(self) -> None:
        role = boto3.client("iam").create_role(
            RoleName="any", AssumeRolePolicyDocument=json.dumps({"Statement": []})
        )
        self.role: str = role["Role"]["Arn"]
        self.topic = boto3.client("sns").create_topic(Name="alerts")["TopicArn"]
        self.outputs = {"AlertTopicArn": self.topic}
        self.letters = self.queue("letters")
        arn = "arn:aws:sqs:us-east-1:123456789012:letters"
        policy = {"deadLetterTargetArn": arn, "maxReceiveCount": 10}
        rule = self.queue("rule", RedrivePolicy=json.dumps(policy))
        variables = {environment.RULE_QUEUE_URLS: json.dumps({"NonFinite": rule})}
        for name in FUNCTIONS:
            self.outputs[f"{name}FunctionName"] = name
            self.outputs[f"{name}FailuresUrl"] = self.queue(f"{name}-failures")
            self.function(name, variables)

    @staticmethod
    def queue(name: str, **attributes: str) -> str:
        given: Any = attributes
        return boto3.client("sqs").create_queue(QueueName=name, Attributes=given)["QueueUrl"]

    def function(self, name: str, variables: dict[str, str]) -> None:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr("handler.py", "")
        boto3.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=self.role,
            Handler="handler.f",
            Code={"ZipFile": archive.getvalue()},
            Environment={"Variables": variables},
        )

    def stops(self, **variables: str) -> str:
        boto3.client("lambda").update_function_configuration(
            FunctionName="StopJob", Environment={"Variables": variables}
        )
        return self.found()["stops"][1]

    def found(self) -> dict[str, tuple[str, str]]:
        found = operation_findings(Aws(), STACK, self.outputs)
        return {each.subject: (each.verdict.value, each.told) for each in found}


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    with mock_aws(config={"lambda": {"use_docker": False}}):
        yield Stack()


def test_what_is_in_order(stack: Stack) -> None:
    boto3.client("sns").subscribe(
        TopicArn=stack.topic, Protocol="sqs", Endpoint="arn:aws:sqs:us-east-1:123456789012:rule"
    )
    assert stack.found() == {
        "stops": ("ok", "a finding of any rule stops a job"),
        "events not handled": ("ok", "none waits"),
        "mails": ("ok", "subscriptions of the topic, confirmed: 1"),
        "alarms": ("ok", "none is on"),
        "throttled functions": ("ok", "none in the last hour"),
        "throttled table": ("ok", "none in the last hour"),
        "oldest events": ("ok", "none in the last hour"),
    }


def test_which_findings_stop_jobs(stack: Stack) -> None:
    policy, rules = environment.STOP_POLICY, environment.STOP_RULES
    assert stack.stops(**{policy: "observe"}).startswith("no finding stops a job")
    reported = stack.stops(**{policy: "opt_in", rules: "NonFinite,Flat"})
    assert reported == "findings of these rules stop a job that opted in: NonFinite, Flat"
    assert stack.stops(**{policy: "all"}) == "a finding of any rule stops any training job"
    fatal = stack.stops(**{policy: "all", environment.STOP_SEVERITY: "fatal"})
    assert fatal == "a fatal finding of any rule stops any training job"
    observed = environment.STOP_OBSERVED_RULES
    assert stack.stops(**{observed: "Flat"}) == "a finding of any rule except Flat stops a job"
    reported = stack.stops(**{rules: "NonFinite,Flat", observed: "Flat"})
    assert reported == "findings of these rules stop a job: NonFinite"


def test_what_waits_for_somebody_is_a_problem(stack: Stack) -> None:
    sqs = boto3.client("sqs")
    for url in (stack.letters, stack.letters, stack.outputs["StopJobFailuresUrl"]):
        sqs.send_message(QueueUrl=url, MessageBody="{}")
    assert stack.found()["events not handled"] == ("problem", "some wait: stop_job 1, NonFinite 2")


def test_who_would_not_hear_of_anything(stack: Stack) -> None:
    assert stack.found()["mails"] == ("note", "no subscriber receives findings and alarms")
    sns: Any = boto3.client("sns")
    with Stubber(sns) as stubber:  # moto confirms mails by itself
        pending = {"SubscriptionArn": "PendingConfirmation", "Endpoint": "ops@example.org"}
        stubber.add_response("list_subscriptions_by_topic", {"Subscriptions": [pending]})
        aws = Aws()
        aws._clients["sns"] = sns
        found = {each.subject: each for each in operation_findings(aws, STACK, stack.outputs)}
    assert found["mails"].told == "not confirmed, so they receive nothing: ops@example.org"


def test_an_alarm_that_is_on(stack: Stack) -> None:
    cloudwatch = boto3.client("cloudwatch")
    for name in (f"{STACK}-Errors", "Stepwatch-device-Errors"):
        cloudwatch.put_metric_alarm(
            AlarmName=name, ComparisonOperator="GreaterThanThreshold", EvaluationPeriods=1
        )
        cloudwatch.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="a test")
    assert stack.found()["alarms"] == ("problem", "on: Errors")


@pytest.mark.parametrize(
    ("subject", "metric", "value", "reported"),
    [
        ("throttled functions", ("AWS/Lambda", "Throttles", "FunctionName"), 3, "a 6 calls"),
        ("throttled table", ("AWS/DynamoDB", "WriteThrottleEvents", "TableName"), 1, "a 2 writes"),
        (
            "oldest events",
            ("AWS/SQS", AGE, "QueueName"),
            901,
            "a 901 s",
        ),
    ],
)
def test_what_does_not_keep_up(
    stack: Stack, subject: str, metric: tuple[str, str, str], value: float, reported: str
) -> None:
    namespace, metric_name, dimension = metric
    now = datetime.now(timezone.utc) - timedelta(minutes=5)
    of_names = {f"{STACK}-a": [value, value], f"{STACK}-b": [0.0], "Other-a": [99.0]}
    for name, values in of_names.items():
        one: Any = {"MetricName": metric_name, "Dimensions": [{"Name": dimension, "Value": name}]}
        data: Any = [{**one, "Value": each, "Timestamp": now} for each in values]
        boto3.client("cloudwatch").put_metric_data(Namespace=namespace, MetricData=data)
    assert stack.found()[subject] == ("problem", f"in the last hour: {reported}")


def test_what_may_not_be_asked_is_a_note_that_names_the_right(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stack.outputs, "StopJobFunctionName", "gone")
    monkeypatch.setitem(stack.outputs, "NotifyFailuresUrl", f"{stack.letters}-gone")
    found = {each.subject: each for each in operation_findings(Aws(), STACK, stack.outputs)}
    assert found["stops"].verdict.value == found["events not handled"].verdict.value == "note"
    assert found["stops"].remedy == "lambda:GetFunctionConfiguration is needed to check this"
    assert "sqs:GetQueueAttributes is needed to check this" in found["events not handled"].remedy


def test_it_asks_for_the_documented_rights_and_no_others(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {name: {"Value": value} for name, value in stack.outputs.items()},
    }
    boto3.client("cloudformation").create_stack(StackName=STACK, TemplateBody=json.dumps(template))
    boto3.client("cloudwatch").put_metric_data(
        Namespace="AWS/SQS",
        MetricData=[
            {"MetricName": AGE, "Dimensions": [{"Name": "QueueName", "Value": f"{STACK}-a"}]}
        ],
    )
    asked = asked_for(monkeypatch)
    found = [each.subject for each in deployment_findings(Aws(), STACK, "0.1.0")]
    assert found[-1] == "oldest events"
    assert asked == granted("WhichAlarmsAreOn")
