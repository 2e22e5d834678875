"""Registrations: the runs of jobs, their roots and their requests.

Evaluators register a job from its `job.json`. Functions that act on a job, and must not trust the
events that name it, look here. The items are in the table of evaluation states, one per root that
names the job, because only names of SageMaker jobs are unique.

The content of a `job.json` is untrusted. So a registration represents a SageMaker job only if its
root is where that job's tensors belong: in a folder with the job's name. The permissions of the
training roles must control who can write there. A role without write access to other jobs' folders
can neither stop those jobs nor keep them from being stopped.
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
from rule_runtime.configuration.requested_rules import RequestedRule, parse_rule_requests

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from hook_layer.format.job_file import JobFile

__all__ = ["RUN_ID", "SAGEMAKER", "Heartbeat", "Registration", "RegistrationTable"]

SAGEMAKER: Final = "sagemaker"
RETENTION_S: Final = 90 * 24 * 3600
"""Seconds after the last write when the table deletes a registration."""
RUN_ID: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")
_UNKNOWN_PLATFORM: Final = "unknown"
_PLATFORM: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")
_SAGEMAKER_OUTPUT: Final = "/debug-output/"
_MAX_NAME: Final = 256
_MAX_KEY_BYTES: Final = 1024
"""Maximum size of a sort key in DynamoDB, bytes."""
_ARN: Final = re.compile(
    r"arn:[a-z-]+:sagemaker:[a-z0-9-]+:[0-9]{12}:training-job/(?P<name>[A-Za-z0-9-]{1,63})"
)


@dataclass(frozen=True)
class Registration:
    """One run of a job, as described by its `job.json`.

    Attributes:
        root_uri: The trial's root, ending in "/".
        training_job_name: Name of the job.
        run_id: The current run; empty for the original client.
        platform: `sagemaker`, or the name of another platform.
        training_job_arn: ARN of the SageMaker job, if known.
        rules: The job's rules, by configuration name; None to use the deployed rules with their own
            parameters. They are not stored: evaluators read them from `job.json`, and an item may
            be too small for them.
        opt_out_of_stop: True if the job must never be stopped.
        rule_problems: Errors in the list of rules; not stored either.
    """

    root_uri: str
    training_job_name: str
    run_id: str = ""
    platform: str = _UNKNOWN_PLATFORM
    training_job_arn: str | None = None
    rules: Mapping[str, RequestedRule] | None = None
    opt_out_of_stop: bool = False
    rule_problems: tuple[str, ...] = ()

    @classmethod
    def of_job_file(cls, root_uri: str, job: JobFile) -> Registration:
        """Return the registration of the job in a `job.json`.

        A job counts as SageMaker's if the root and the ARN, if there is one, contain its name;
        otherwise as a job outside of SageMaker.
        """
        name = job.training_job_name
        if not (0 < len(name) <= _MAX_NAME and name.isprintable()):
            name = job_name_of(root_uri)
        platform = job.platform if _PLATFORM.fullmatch(job.platform) else _UNKNOWN_PLATFORM
        arn = job.training_job_arn
        if _is_sagemaker(platform) and not _is_place_of(name, root_uri, arn):
            platform = _UNKNOWN_PLATFORM
        asked = job.debug_rule_configurations
        rules, problems = (None, ()) if asked is None else parse_rule_requests(asked)
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
        """Return the registration of a job without `job.json`, from its root.

        Only SageMaker appends `debug-output` to the job's name.
        """
        on_sagemaker = root_uri.endswith(_SAGEMAKER_OUTPUT)
        return cls(
            root_uri=root_uri,
            training_job_name=job_name_of(root_uri),
            platform=SAGEMAKER if on_sagemaker else _UNKNOWN_PLATFORM,
        )

    @property
    def is_sagemaker_job(self) -> bool:
        """Return whether SageMaker runs the job, so that StopTrainingJob works."""
        return _is_sagemaker(self.platform) and self.lies_below_its_name

    @property
    def lies_below_its_name(self) -> bool:
        """Return whether the root contains the job's name, so that it represents every such job."""
        return job_name_of(self.root_uri) == self.training_job_name


@dataclass(frozen=True)
class Heartbeat:
    """SageMaker's latest report on a running job.

    Attributes:
        at: Time, seconds since the epoch.
        is_interrupted: True while its spot instances are unavailable.
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
        """Store a registration, replacing an earlier one of the same job and root."""
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
        """Return the registration of a job at a root, without rules; None if there is none."""
        key = _key(training_job_name, root_uri)
        if len(key[STATE_SORT_KEY]["S"].encode()) > _MAX_KEY_BYTES:
            return None
        item = self._items.get(key)
        return _registration(item) if item else None

    def record_heartbeat(self, training_job_name: str, sign: Heartbeat) -> None:
        """Store SageMaker's report on a job, unless a later one is stored.

        It is separate from the registrations, which are replaced whenever `job.json` is read.
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

    def heartbeat(self, training_job_name: str) -> Heartbeat | None:
        """Return SageMaker's latest report on a job; None without any."""
        item = self._items.get(
            item_key(registration_partition(training_job_name), LIFE_SIGN_RULE), is_consistent=False
        )
        if not item:
            return None
        return Heartbeat(int(item["at"]["N"]) / 1000, item["is_interrupted"]["BOOL"])

    def find(self, training_job_name: str) -> list[Registration]:
        """Return all registrations of a job's name, one per root, without rules."""
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
    """Return whether a root may contain tensors of the SageMaker job with that name."""
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
