"""A deployment in the second emulator, as the demo uses one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from infra.local.moto_patches.training_jobs import finish_training_job
from infra.local.service_environment import ACCOUNT_ID, REGION
from lambdas.contracts.events import JOB_SUMMARY_DETAIL_TYPE, STATUS_SOURCE
from lambdas.contracts.stopping import STOP_TAG
from tests.docs.page_blocks import blocks_of
from tests.e2e.second_emulator.emulator import ROOT, SecondEmulator, eventually

__all__ = ["MiniStackTarget"]

FINISH_EVENT = ROOT / "lambdas" / "contracts" / "test_events" / "finish_job.json"
LISTENER = "somebody-elses-queue"
TRAINING_ROLE = "training"
FINAL = {"NoIssuesFound", "IssuesFound", "Error", "Stopped"}
VERDICT_LIMIT_S = 120
COUNTS = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]


class MiniStackTarget:
    """What `infra.local.LocalTarget` is for moto; its methods are described there.

    SageMaker's jobs tell nothing of rules here, so statuses are those of the status events, taken
    from a queue that somebody else subscribes to them. The training process has a role with the
    policy of docs/reference/permissions.md.

    Attributes:
        ended: What finish_job answered when it was told of the end of a job, by the job's name.
    """

    def __init__(
        self, emulator: SecondEmulator, outputs: dict[str, str], rules: Iterable[str]
    ) -> None:
        self.endpoint_url, self.client = emulator.endpoint_url, emulator.client
        self.tensor_bucket = outputs["TensorBucketName"]
        self.ended: dict[str, str] = {}
        self._emulator, self._rules = emulator, frozenset(rules)
        self._statuses: dict[str, dict[str, dict[str, Any]]] = {}
        self._summaries: dict[str, dict[str, Any]] = {}
        self._listener = self._subscribe()
        self._role_arn = self._create_training_role()

    def environment(self) -> dict[str, str]:
        given = self.client("sts").assume_role(RoleArn=self._role_arn, RoleSessionName="job")
        return self._emulator.environment() | {
            "AWS_ACCESS_KEY_ID": given["Credentials"]["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": given["Credentials"]["SecretAccessKey"],
            "AWS_SESSION_TOKEN": given["Credentials"]["SessionToken"],
        }

    def start_training_job(
        self, name: str, s3_output_path: str, *, may_be_stopped: bool = False
    ) -> str:
        instances = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
        created = self.client("sagemaker").create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={"TrainingImage": "local", "TrainingInputMode": "File"},
            RoleArn=self._role_arn,
            OutputDataConfig={"S3OutputPath": s3_output_path},
            ResourceConfig=instances,
            StoppingCondition={"MaxRuntimeInSeconds": 3600},
            Tags=[{"Key": STOP_TAG, "Value": s3_output_path}] if may_be_stopped else [],
        )
        return str(created["TrainingJobArn"])

    def finish_training_job(self, name: str, exit_code: int) -> str:
        status = finish_training_job(ACCOUNT_ID, REGION, name, exit_code)
        arn = self.client("sagemaker").describe_training_job(TrainingJobName=name)["TrainingJobArn"]
        event = json.loads(FINISH_EVENT.read_text(encoding="utf-8"))
        event |= {"account": ACCOUNT_ID, "region": REGION, "resources": [arn]}
        event["detail"] |= {"TrainingJobName": name, "TrainingJobArn": arn}
        event["detail"] |= {"TrainingJobStatus": status, "SecondaryStatus": status}
        answer = self._invoke("lambdas.finish_job.handler.lambda_handler", event)
        self.ended[name] = json.loads(answer["body"])
        return status

    def rule_statuses(self, job_name: str) -> list[dict[str, Any]]:
        self._take_events()
        return list(self._statuses.get(job_name, {}).values())

    def summary(self, job_name: str) -> dict[str, Any]:
        """Return the last summary of a job; empty without one."""
        self._take_events()
        return self._summaries.get(job_name, {})

    def object_arrivals(self, prefix: str) -> dict[str, datetime]:
        pages = self.client("s3").get_paginator("list_objects_v2")
        listed = pages.paginate(Bucket=self.tensor_bucket, Prefix=prefix)
        return {
            found["Key"]: found["LastModified"]
            for page in listed
            for found in page.get("Contents", [])
        }

    def wait_idle(self, timeout_s: float) -> None:
        """Wait until every rule has told its last status of every job, and no event waits."""
        limit_s = max(timeout_s, VERDICT_LIMIT_S)
        try:
            eventually(lambda: not self._unfinished(), limit_s, "every rule has judged")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; unfinished: {self._unfinished()}") from error

    def messages(self) -> dict[str, int]:
        """Return the deployment's queues that hold messages, handed out or not, and how many."""
        sqs = self.client("sqs")
        waiting = {}
        for page in sqs.get_paginator("list_queues").paginate():
            for url in {*page.get("QueueUrls", [])} - {self._listener}:
                found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=COUNTS)
                waiting[url.rpartition("/")[2]] = sum(map(int, found["Attributes"].values()))
        return {name: count for name, count in waiting.items() if count}

    def empty_buckets(self) -> None:
        """Delete every object, of every version, as one has to before the stack is deleted."""
        s3 = self.client("s3")
        for bucket in s3.list_buckets()["Buckets"]:
            if not bucket["Name"].startswith("cdk-"):
                self._empty(bucket["Name"])

    def _empty(self, bucket: str) -> None:
        s3 = self.client("s3")
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            for found in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                s3.delete_object(Bucket=bucket, Key=found["Key"], VersionId=found["VersionId"])

    def _unfinished(self) -> dict[str, Any]:
        self._take_events()
        jobs = {
            f"{job}: {rule}": statuses.get(rule, {}).get("RuleEvaluationStatus")
            for job, statuses in self._statuses.items()
            for rule in self._rules
        }
        waiting = {key: status for key, status in jobs.items() if status not in FINAL}
        return waiting | self.messages() if self._statuses else {"no status": None}

    def _invoke(self, handler: str, event: dict[str, Any]) -> dict[str, Any]:
        """Call a function with an event of SageMaker, which ministack's bus takes from nobody."""
        functions = self.client("lambda")
        pages = functions.get_paginator("list_functions").paginate()
        (name,) = (
            function["FunctionName"]
            for page in pages
            for function in page["Functions"]
            if function["Handler"] == handler
        )
        answer = functions.invoke(FunctionName=name, Payload=json.dumps(event))
        payload: dict[str, Any] = json.load(answer["Payload"])
        assert "FunctionError" not in answer, payload
        return payload

    def _subscribe(self) -> str:
        sqs, events = self.client("sqs"), self.client("events")
        pattern = json.dumps({"source": [STATUS_SOURCE]})
        rule = events.put_rule(Name="somebody-else", EventPattern=pattern)["RuleArn"]
        arn = f"arn:aws:sqs:{REGION}:{ACCOUNT_ID}:{LISTENER}"
        policy = _policy("sqs:SendMessage", "events.amazonaws.com", Resource=arn)
        policy["Statement"][0]["Condition"] = {"ArnEquals": {"aws:SourceArn": rule}}
        attributes = {"Policy": json.dumps(policy)}
        url: str = sqs.create_queue(QueueName=LISTENER, Attributes=attributes)["QueueUrl"]
        events.put_targets(Rule="somebody-else", Targets=[{"Id": "queue", "Arn": arn}])
        return url

    def _create_training_role(self) -> str:
        iam = self.client("iam")
        trust = _policy("sts:AssumeRole", "sagemaker.amazonaws.com")
        trust["Statement"][0]["Principal"]["AWS"] = f"arn:aws:iam::{ACCOUNT_ID}:root"
        role = iam.create_role(RoleName=TRAINING_ROLE, AssumeRolePolicyDocument=json.dumps(trust))
        (policy,) = (
            block.text
            for block in blocks_of("reference/permissions.md")
            if block.title == "training_policy.json"
        )
        policy = policy.replace("<bucket>", self.tensor_bucket).replace("<job name>", "*")
        iam.put_role_policy(RoleName=TRAINING_ROLE, PolicyName="write", PolicyDocument=policy)
        return str(role["Role"]["Arn"])

    def _take_events(self) -> None:
        sqs = self.client("sqs")
        while found := sqs.receive_message(QueueUrl=self._listener, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            for message in found:
                event = json.loads(message["Body"])
                if event["detail-type"] == JOB_SUMMARY_DETAIL_TYPE:
                    self._summaries[event["detail"]["TrainingJobName"]] = event["detail"]
                else:
                    self._note(event["detail"])
                sqs.delete_message(QueueUrl=self._listener, ReceiptHandle=message["ReceiptHandle"])

    def _note(self, detail: dict[str, Any]) -> None:
        statuses = self._statuses.setdefault(detail["TrainingJobName"], {})
        for status in detail["DebugRuleEvaluationStatuses"]:
            moment = datetime.fromtimestamp(status["LastModifiedTime"] / 1000, timezone.utc)
            known = statuses.get(status["RuleConfigurationName"])
            if known is None or known["LastModifiedTime"] <= moment:  # a queue keeps no order
                new = {**status, "LastModifiedTime": moment}
                statuses[status["RuleConfigurationName"]] = new


def _policy(action: str, service: str, **resource: str) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": action, "Principal": {"Service": service}, **resource}
    return {"Version": "2012-10-17", "Statement": [statement]}
