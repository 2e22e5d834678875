"""Registrations: which run of which job writes below which root, and what it asks for.

A job is registered by the evaluators from its `job.json`. Functions that act on a job, and must not
believe the events that name it, look here. The items lie in the table of evaluation states, one for
each root that names the job, because names are only unique among SageMaker's jobs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.paths import job_name_of
from lambdas.contracts.events import (
    REGISTRATION_RULE,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    STATE_TTL_ATTRIBUTE,
    registration_partition,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from hook_layer.format.job_file import JobFile

__all__ = ["SAGEMAKER", "Registration", "RegistrationTable"]

SAGEMAKER: Final = "sagemaker"
RETENTION_S: Final = 90 * 24 * 3600
"""A registration that nobody renewed for so long is deleted by the table, in seconds."""
_UNKNOWN_PLATFORM: Final = "unknown"
_SAGEMAKER_OUTPUT: Final = "/debug-output/"
_MAX_NAME: Final = 256
_ARN: Final = re.compile(
    r"arn:[a-z-]+:sagemaker:[a-z0-9-]+:[0-9]{12}:training-job/[A-Za-z0-9-]{1,63}"
)


@dataclass(frozen=True)
class Registration:
    """One run of a job, as its `job.json` describes it.

    Attributes:
        root_uri: The trial's root, ending in "/".
        training_job_name: Name of the job.
        run_id: The run that writes there now; empty for the original client.
        platform: `sagemaker`, or what else runs the job.
        training_job_arn: ARN of the job, where known.
        rules: Parameters of each rule that the job asks for, by the rule's configuration name; None
            when the deployed rules apply with their own parameters.
        opt_out_of_stop: True when the job must never be stopped.
    """

    root_uri: str
    training_job_name: str
    run_id: str = ""
    platform: str = _UNKNOWN_PLATFORM
    training_job_arn: str | None = None
    rules: Mapping[str, Mapping[str, Any]] | None = None
    opt_out_of_stop: bool = False

    @classmethod
    def of_job_file(cls, root_uri: str, job: JobFile) -> Registration:
        """Return the registration of the job that `job` describes."""
        name = job.training_job_name
        usable = 0 < len(name) <= _MAX_NAME and name.isprintable()
        arn = job.training_job_arn
        rules = None
        if job.debug_rule_configurations is not None:
            rules = {
                str(rule.get("RuleConfigurationName")): _parameters(rule)
                for rule in job.debug_rule_configurations
            }
        return cls(
            root_uri=root_uri,
            training_job_name=name if usable else job_name_of(root_uri),
            run_id=job.run_id,
            platform=job.platform,
            training_job_arn=arn if arn and _ARN.fullmatch(arn) else None,
            rules=rules,
            opt_out_of_stop=job.opt_out_of_stop,
        )

    @classmethod
    def of_root(cls, root_uri: str) -> Registration:
        """Return the registration of a job without `job.json`, from where its tensors are.

        SageMaker itself puts `debug-output` behind the job's name, nobody else does.
        """
        on_sagemaker = root_uri.endswith(_SAGEMAKER_OUTPUT)
        return cls(
            root_uri=root_uri,
            training_job_name=job_name_of(root_uri),
            platform=SAGEMAKER if on_sagemaker else _UNKNOWN_PLATFORM,
        )

    @property
    def is_sagemaker_job(self) -> bool:
        """Tell whether SageMaker runs the job, so that StopTrainingJob can end it."""
        return self.platform.lower() == SAGEMAKER

    def asks_for(self, rule_configuration_name: str) -> bool:
        """Tell whether the job wants this rule evaluated."""
        return self.rules is None or rule_configuration_name in self.rules

    def parameters_of(self, rule_configuration_name: str) -> Mapping[str, Any]:
        """Return the parameters that the job gives this rule, empty when it gives none."""
        return {} if self.rules is None else self.rules.get(rule_configuration_name, {})


class RegistrationTable:
    """The registrations in the state table.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
        clock: Seconds since the epoch.
    """

    def __init__(
        self, client: DynamoDBClient, table_name: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._table_name = table_name
        self._clock = clock

    def put(self, registration: Registration) -> None:
        """Store a registration in place of an earlier one of the same job and root."""
        now = self._clock()
        item: dict[str, Any] = {
            STATE_PARTITION_KEY: {"S": registration_partition(registration.training_job_name)},
            STATE_SORT_KEY: {"S": REGISTRATION_RULE + registration.root_uri},
            "root_uri": {"S": registration.root_uri},
            "training_job_name": {"S": registration.training_job_name},
            "run_id": {"S": registration.run_id},
            "platform": {"S": registration.platform},
            "opt_out_of_stop": {"BOOL": registration.opt_out_of_stop},
            "updated_at": {"N": str(round(now * 1000))},
            STATE_TTL_ATTRIBUTE: {"N": str(round(now) + RETENTION_S)},
        }
        if registration.training_job_arn is not None:
            item["training_job_arn"] = {"S": registration.training_job_arn}
        if registration.rules is not None:
            item["rules"] = {"S": json.dumps(registration.rules)}
        self._client.put_item(TableName=self._table_name, Item=item)

    def find(self, training_job_name: str) -> list[Registration]:
        """Return every registration of a job's name, one a root."""
        answer = self._client.query(
            TableName=self._table_name,
            ConsistentRead=True,
            KeyConditionExpression="#partition = :partition AND begins_with(#sort, :sort)",
            ExpressionAttributeNames={
                "#partition": STATE_PARTITION_KEY,
                "#sort": STATE_SORT_KEY,
            },
            ExpressionAttributeValues={
                ":partition": {"S": registration_partition(training_job_name)},
                ":sort": {"S": REGISTRATION_RULE},
            },
        )
        return [_registration(item) for item in answer["Items"]]


def _parameters(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = rule.get("RuleParameters")
    return parameters if isinstance(parameters, dict) else {}


def _registration(item: Mapping[str, Any]) -> Registration:
    return Registration(
        root_uri=item["root_uri"]["S"],
        training_job_name=item["training_job_name"]["S"],
        run_id=item["run_id"]["S"],
        platform=item["platform"]["S"],
        training_job_arn=item["training_job_arn"]["S"] if "training_job_arn" in item else None,
        rules=json.loads(item["rules"]["S"]) if "rules" in item else None,
        opt_out_of_stop=item["opt_out_of_stop"]["BOOL"],
    )
