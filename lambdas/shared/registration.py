"""Registrations: the runs of jobs, their roots and what they request.

A job is registered by the evaluators from its `job.json`. Functions that act on a job, and must not
believe the events that name it, look here. The items lie in the table of evaluation states, one for
each root that names the job, because names are only unique among SageMaker's jobs.

A `job.json` says whatever its writer likes, so a registration speaks for a job of SageMaker only if
it lies where that job's tensors belong: in a folder with the job's name. Who may write there is for
the permissions of the training roles to say. A role that can write to no folder of another job's
name can neither have that job stopped nor keep it from being stopped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.paths import job_name_of
from lambdas.contracts.events import (
    LIFE_SIGN_RULE,
    REGISTRATION_RULE,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    STATE_TTL_ATTRIBUTE,
    registration_partition,
)
from lambdas.shared.items import Items, item_key
from rule_runtime.configuration.requested_rules import AskedRule, asked_rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from hook_layer.format.job_file import JobFile

__all__ = ["RUN_ID", "SAGEMAKER", "LifeSign", "Registration", "RegistrationTable"]

SAGEMAKER: Final = "sagemaker"
RETENTION_S: Final = 90 * 24 * 3600
"""A registration that nobody renewed for so long is deleted by the table, in seconds."""
RUN_ID: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")
_UNKNOWN_PLATFORM: Final = "unknown"
_PLATFORM: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")
_SAGEMAKER_OUTPUT: Final = "/debug-output/"
_MAX_NAME: Final = 256
_MAX_KEY_BYTES: Final = 1024
"""Longest sort key that DynamoDB takes, in bytes."""
_ARN: Final = re.compile(
    r"arn:[a-z-]+:sagemaker:[a-z0-9-]+:[0-9]{12}:training-job/(?P<name>[A-Za-z0-9-]{1,63})"
)


@dataclass(frozen=True)
class Registration:
    """One run of a job, as its `job.json` describes it.

    Attributes:
        root_uri: The trial's root, ending in "/".
        training_job_name: Name of the job.
        run_id: The run that writes there now; empty for the original client.
        platform: `sagemaker`, or what else runs the job.
        training_job_arn: ARN of the job of SageMaker, where known.
        rules: The rules that the job asks for, by their configuration names; None when the deployed
            rules apply with their own parameters. They are not stored: anyone who evaluates reads
            them from `job.json`, and there may be more of them than an item holds.
        opt_out_of_stop: True when the job must never be stopped.
        rule_problems: What is wrong with the list of rules; not stored either.
    """

    root_uri: str
    training_job_name: str
    run_id: str = ""
    platform: str = _UNKNOWN_PLATFORM
    training_job_arn: str | None = None
    rules: Mapping[str, AskedRule] | None = None
    opt_out_of_stop: bool = False
    rule_problems: tuple[str, ...] = ()

    @classmethod
    def of_job_file(cls, root_uri: str, job: JobFile) -> Registration:
        """Return the registration of the job that `job` describes.

        What it says is taken as far as it can be true: a job counts as SageMaker's if the root and
        the ARN, if there is one, carry its name, and as a job outside of SageMaker otherwise.
        """
        name = job.training_job_name
        if not (0 < len(name) <= _MAX_NAME and name.isprintable()):
            name = job_name_of(root_uri)
        platform = job.platform if _PLATFORM.fullmatch(job.platform) else _UNKNOWN_PLATFORM
        arn = job.training_job_arn
        if _is_sagemaker(platform) and not _is_place_of(name, root_uri, arn):
            platform = _UNKNOWN_PLATFORM
        asked = job.debug_rule_configurations
        rules, problems = (None, ()) if asked is None else asked_rules(asked)
        return cls(
            root_uri=root_uri,
            training_job_name=name,
            run_id=job.run_id if RUN_ID.fullmatch(job.run_id) else "",
            platform=platform,
            training_job_arn=arn if _is_sagemaker(platform) else None,
            rules=rules,
            opt_out_of_stop=job.opt_out_of_stop,
            rule_problems=problems,
        )

    @classmethod
    def of_root(cls, root_uri: str) -> Registration:
        """Return the registration of a job without `job.json`, from where its tensors are.

        Only SageMaker itself appends `debug-output` to the job's name.
        """
        on_sagemaker = root_uri.endswith(_SAGEMAKER_OUTPUT)
        return cls(
            root_uri=root_uri,
            training_job_name=job_name_of(root_uri),
            platform=SAGEMAKER if on_sagemaker else _UNKNOWN_PLATFORM,
        )

    @property
    def is_sagemaker_job(self) -> bool:
        """Return whether SageMaker runs the job, so that StopTrainingJob can end it."""
        return _is_sagemaker(self.platform) and self.lies_below_its_name

    @property
    def lies_below_its_name(self) -> bool:
        """Return whether the root carries the job's name, so that it speaks for every such job."""
        return job_name_of(self.root_uri) == self.training_job_name

    def asks_for(self, rule_configuration_name: str) -> bool:
        """Return whether the job wants this rule evaluated."""
        return self.rules is None or rule_configuration_name in self.rules

    def asked(self, rule_configuration_name: str) -> AskedRule:
        """Return what the job asks of this rule; no parameters when it asks for nothing."""
        return (self.rules or {}).get(rule_configuration_name, AskedRule({}))


@dataclass(frozen=True)
class LifeSign:
    """What SageMaker last said of a job that has not ended.

    Attributes:
        at: When, seconds since the epoch.
        is_interrupted: True while its spot instances are taken away.
    """

    at: float
    is_interrupted: bool


class RegistrationTable:
    """The registrations in the state table.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._items = Items(client, table_name)

    def put(self, registration: Registration) -> None:
        """Store a registration instead of an earlier one of the same job and root."""
        now = time.time()
        item: dict[str, Any] = {
            **_key(registration.training_job_name, registration.root_uri),
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
        self._items.put(item)

    def get(self, training_job_name: str, root_uri: str) -> Registration | None:
        """Return the registration of a job at a root, without its rules; None if there is none."""
        key = _key(training_job_name, root_uri)
        if len(key[STATE_SORT_KEY]["S"].encode()) > _MAX_KEY_BYTES:
            return None
        item = self._items.get(key)
        return _registration(item) if item else None

    def note_life_sign(self, training_job_name: str, sign: LifeSign) -> None:
        """Note what SageMaker said of a job, unless something later is known.

        It is kept apart from the registrations, which are written anew whenever `job.json` is read.
        """
        self._items.update(
            item_key(registration_partition(training_job_name), LIFE_SIGN_RULE),
            f"SET #at = :at, is_interrupted = :flag, {STATE_TTL_ATTRIBUTE} = :expires",
            ConditionExpression="attribute_not_exists(#at) OR #at <= :at",
            ExpressionAttributeNames={"#at": "at"},
            ExpressionAttributeValues={
                ":at": {"N": str(round(sign.at * 1000))},
                ":flag": {"BOOL": sign.is_interrupted},
                ":expires": {"N": str(round(time.time()) + RETENTION_S)},
            },
        )

    def life_sign(self, training_job_name: str) -> LifeSign | None:
        """Return what SageMaker last said of a job; None if it said nothing."""
        item = self._items.get(
            item_key(registration_partition(training_job_name), LIFE_SIGN_RULE), is_consistent=False
        )
        if not item:
            return None
        return LifeSign(int(item["at"]["N"]) / 1000, item["is_interrupted"]["BOOL"])

    def find(self, training_job_name: str) -> list[Registration]:
        """Return every registration of a job's name, one a root, without their rules."""
        found = self._items.query(
            ConsistentRead=True,
            KeyConditionExpression="#partition = :partition AND begins_with(#sort, :sort)",
            ExpressionAttributeNames={"#partition": STATE_PARTITION_KEY, "#sort": STATE_SORT_KEY},
            ExpressionAttributeValues={
                ":partition": {"S": registration_partition(training_job_name)},
                ":sort": {"S": REGISTRATION_RULE},
            },
        )
        return list(map(_registration, found))


def _is_sagemaker(platform: str) -> bool:
    return platform.lower() == SAGEMAKER


def _is_place_of(training_job_name: str, root_uri: str, arn: str | None) -> bool:
    """Return whether tensors below a root can be those of SageMaker's job of that name."""
    match = _ARN.fullmatch(arn) if arn is not None else None
    is_arn_of_job = arn is None or (match is not None and match["name"] == training_job_name)
    return is_arn_of_job and job_name_of(root_uri) == training_job_name


def _key(training_job_name: str, root_uri: str) -> dict[str, Any]:
    return item_key(registration_partition(training_job_name), REGISTRATION_RULE + root_uri)


def _registration(item: Mapping[str, Any]) -> Registration:
    return Registration(
        root_uri=item["root_uri"]["S"],
        training_job_name=item["training_job_name"]["S"],
        run_id=item["run_id"]["S"],
        platform=item["platform"]["S"],
        training_job_arn=item["training_job_arn"]["S"] if "training_job_arn" in item else None,
        opt_out_of_stop=item["opt_out_of_stop"]["BOOL"],
    )
