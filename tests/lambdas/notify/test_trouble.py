"""Jobs that do not end, messages that cannot be sent, and settings that make no sense."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from botocore.exceptions import ClientError

from lambdas.contracts import environment
from lambdas.contracts.stopping import WATCHED
from lambdas.shared import clients
from lambdas.shared.settings import NotifySettings, SettingsError
from tests.lambdas.conftest import Pipeline
from tests.lambdas.notify.conftest import Mailbox
from tests.lambdas.stop_job.jobs import (
    LOCAL,
    ROOT,
    RUN,
    finding_of,
    own_event,
    state_change,
)

CONSOLE = "https://eu-west-1.console.aws.amazon.com"
LOG_GROUP = "#logsV2:log-groups/log-group/$252Faws$252Flambda$252Fstepwatch-explosion"
NEXT_RUN = "01JD0000000000000000000002"


@pytest.fixture(autouse=True)
def findings_stop_every_watched_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.STOP_POLICY, WATCHED)


class TestOverdueStops:
    EVENT: ClassVar[dict[str, Any]] = {
        "source": "stepwatch.debugger",
        "detail-type": "Stepwatch Stop Overdue",
        "detail": {
            "TrainingJobName": "mnist-7",
            "RunId": RUN,
            "DebugOutputUri": f"s3://tensors/{ROOT}",
            "Reason": "send money",
        },
    }

    def let_stop(self, pipeline: Pipeline, num_requests: int, status: str = "late") -> None:
        assert pipeline.stop(own_event(finding_of(pipeline, **LOCAL))) is None
        pipeline.aws("dynamodb").update_item(
            TableName="states",
            Key={"run": {"S": "stop#mnist-7"}, "rule": {"S": f"s3://tensors/{ROOT}#{RUN}"}},
            UpdateExpression="SET num_requests = :n, #status = :status",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":n": {"N": str(num_requests)}, ":status": {"S": status}},
        )

    @pytest.mark.parametrize("status", ["late", "requested"])
    def test_are_reported_once(self, pipeline: Pipeline, mailbox: Mailbox, status: str) -> None:
        self.let_stop(pipeline, 2, status)
        mailbox.tell(self.EVENT)
        mailbox.tell(self.EVENT)
        (message,) = mailbox.messages()
        assert message["Subject"] == "Stepwatch: mnist-7 does not say that it stopped"
        assert "It was asked 2 times, because ExplodingTensor found:" in message["Message"]
        assert "money" not in message["Message"]
        assert message["MessageAttributes"]["RuleEvaluationStatus"]["Value"] == "StopOverdue"

    def test_a_job_that_sagemaker_says_goes_on(self, pipeline: Pipeline, mailbox: Mailbox) -> None:
        self.let_stop(pipeline, 2)
        pipeline.aws("dynamodb").update_item(
            TableName="states",
            Key={"run": {"S": "stop#mnist-7"}, "rule": {"S": f"s3://tensors/{ROOT}#{RUN}"}},
            UpdateExpression="SET platform = :platform",
            ExpressionAttributeValues={":platform": {"S": "sagemaker"}},
        )
        mailbox.tell(self.EVENT)
        (message,) = mailbox.messages()
        subject = "Stepwatch: mnist-7 continues although it was asked to stop"
        assert message["Subject"] == subject
        assert f"Job: {CONSOLE}/sagemaker/home" in message["Message"]

    @pytest.mark.parametrize(("num_requests", "status"), [(1, "requested"), (2, "confirmed")])
    def test_forged_ones_are_not(
        self, pipeline: Pipeline, mailbox: Mailbox, num_requests: int, status: str
    ) -> None:
        mailbox.tell(self.EVENT)
        self.let_stop(pipeline, num_requests, status)
        mailbox.tell(self.EVENT)
        mailbox.tell({**self.EVENT, "source": "aws.sagemaker"})
        assert mailbox.messages() == []


class TestTrouble:
    def test_a_message_that_could_not_be_sent_is_sent_later(
        self, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        event = state_change(("A", "IssuesFound"), ("B", "IssuesFound"))
        publish, refused = clients.sns().publish, []

        def refuse_once(**message: Any) -> Any:
            if "A found" in message["Subject"] and not refused:
                refused.append(message)
                error = {"Error": {"Code": "InternalError", "Message": "later"}}
                raise ClientError(error, "Publish")
            return publish(**message)

        monkeypatch.setattr(clients.sns(), "publish", refuse_once)
        with pytest.raises(ClientError, match="later"):
            mailbox.tell(event)
        assert [m["Subject"] for m in mailbox.messages()] == [
            "Stepwatch: B found an issue in mnist-7"
        ]
        mailbox.tell(event)
        assert [m["Subject"] for m in mailbox.messages()] == [
            "Stepwatch: A found an issue in mnist-7"
        ]

    def test_a_process_that_died_before_it_sent_is_followed_by_another(
        self, pipeline: Pipeline, mailbox: Mailbox
    ) -> None:
        event = state_change(("A", "IssuesFound"))

        def die(**_: Any) -> Any:
            raise KeyboardInterrupt

        with pipeline.patch.context() as patch:
            patch.setattr(clients.sns(), "publish", die)
            with pytest.raises(KeyboardInterrupt):
                mailbox.tell(event)
        mailbox.tell(event)
        assert mailbox.messages() == [], "it may still be about to send"
        (claim,) = [
            item
            for item in pipeline.aws("dynamodb").scan(TableName="states")["Items"]
            if item["run"]["S"].startswith("notice#")
        ]
        pipeline.aws("dynamodb").update_item(
            TableName="states",
            Key={name: claim[name] for name in ("run", "rule")},
            UpdateExpression="SET claimed_at = claimed_at - :minute",
            ExpressionAttributeValues={":minute": {"N": "60000"}},
        )
        mailbox.tell(event)
        mailbox.tell(event)
        assert len(mailbox.messages()) == 1

    def test_notes_of_messages_expire(self, pipeline: Pipeline, mailbox: Mailbox) -> None:
        mailbox.tell(state_change(("A", "IssuesFound")))
        (note,) = pipeline.aws("dynamodb").scan(TableName="states")["Items"]
        assert note["is_sent"] == {"BOOL": True}
        assert int(note["expires_at"]["N"]) > 1_700_000_000

    def test_settings_that_make_no_sense_are_named(self) -> None:
        variables = {
            environment.STATE_TABLE_NAME: "states",
            environment.TENSOR_BUCKET_NAMES: "tensors",
            environment.NOTIFY_STATUSES: "IssuesFound,Fine",
            environment.RULE_LOG_GROUPS: "[]",
        }
        with pytest.raises(SettingsError) as refused:
            NotifySettings.from_environment(variables)
        for name in (
            environment.TOPIC_ARN,
            environment.NOTIFY_STATUSES,
            environment.RULE_LOG_GROUPS,
            "AWS_REGION",
        ):
            assert name in str(refused.value)
