"""The simulation of costs with answers from moto instead of from memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest.mock import patch

import boto3
from moto import mock_aws

from benchmarks.cost.deployment import Deployment
from benchmarks.cost.functions import BUCKET, REGION, SURROUNDINGS, TABLE, queue_url
from benchmarks.cost.in_memory_aws import counted_requests
from benchmarks.cost.jobs import Jobs
from benchmarks.cost.simulation import Counted, run_jobs
from benchmarks.cost.workload import Timing

_TABLE_SETTINGS = ("KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes", "BillingMode")


def simulate_on_moto(deployment: Deployment, assembly: Path, jobs: Jobs, timing: Timing) -> Counted:
    """Return the counts of `simulate` without units of the table.

    Args:
        deployment: Rules and settings.
        assembly: Folder with the template; its table is created in moto.
        jobs: The jobs.
        timing: Duration of calls.
    """
    template = json.loads((assembly / "Stepwatch.template.json").read_text(encoding="utf-8"))
    (table,) = (
        resource["Properties"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::DynamoDB::Table"
    )
    with patch.dict(os.environ, SURROUNDINGS), mock_aws():
        session = boto3.session.Session(region_name=REGION)
        s3 = session.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        session.client("dynamodb").create_table(
            TableName=TABLE, **{name: table[name] for name in _TABLE_SETTINGS}
        )
        for number in range(len(deployment.evaluators)):
            name = queue_url(number).rpartition("/")[2]
            session.client("sqs").create_queue(QueueName=name)

        def store(key: str, content: bytes) -> None:
            s3.put_object(Bucket=BUCKET, Key=key, Body=content)

        return run_jobs(deployment, jobs, timing, counting=counted_requests(None), store=store)
