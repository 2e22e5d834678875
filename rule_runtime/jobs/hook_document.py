"""The configuration of a job as its hook reads it, checked and stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hook_layer.configuration.configuration_file import MAX_CONFIGURATION_BYTES, ConfigurationFile
from hook_layer.configuration.hook_json import parse_hook_configuration
from rule_runtime.configuration.actions import as_actions, listed_actions
from rule_runtime.configuration.asked_rules import PACK
from rule_runtime.jobs.places import CONFIGURATION_FILE

if TYPE_CHECKING:
    from rule_runtime.jobs.aws import Aws
    from rule_runtime.jobs.job_wishes import JobWishes
    from rule_runtime.jobs.prepared_job import PreparedJob

__all__ = ["checked_document", "store_document"]


def checked_document(job: PreparedJob, wishes: JobWishes) -> dict[str, Any]:
    """Return the configuration as the hook reads it.

    Args:
        job: The job.
        wishes: What its owner asks for.

    Raises:
        HookConfigurationError: The hook would refuse it.
    """
    document = {"TrainingJobName": job.job_name, **job.configuration.to_json(job.job_name)}
    if not wishes.is_for_deployed:
        members = document.setdefault("DebugRuleConfigurations", [])
        for member in members:
            # Notices distinguish rules that the user named from those of a pack.
            if (of_pack := wishes.of_packs.get(member["RuleConfigurationName"])) is not None:
                member[PACK] = of_pack.pack
    elif (asked := as_actions(wishes.actions)) is not None:
        asked.update_training_job_prefix_if_not_specified(job.job_name)
        document["Actions"] = [dict(each.action_parameters) for each in listed_actions(asked)]
    if job.checkpoint is not None:
        document["CheckpointConfig"] = job.checkpoint.to_json()
    parse_hook_configuration(ConfigurationFile(document, job.places.configuration, is_own=True))
    return document


def store_document(job: PreparedJob, document: Mapping[str, Any], aws: Aws) -> None:
    """Store the configuration where the hook reads it.

    Args:
        job: The job.
        document: Its checked configuration.
        aws: The account.

    Raises:
        ValueError: It is longer than a hook reads.
        StorageError: It cannot be stored.
    """
    data = json.dumps(document, indent=2).encode()
    if len(data) > MAX_CONFIGURATION_BYTES:
        raise ValueError(
            f"the configuration has {len(data)} bytes, and a hook reads {MAX_CONFIGURATION_BYTES}: "
            "give it fewer rules or shorter parameters"
        )
    aws.open_store(job.places.folder).put(CONFIGURATION_FILE, data)
