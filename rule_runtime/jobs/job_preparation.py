"""Prepares jobs: checks their options, and stores the configuration for the hook."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from hook_layer.configuration.configuration_file import (
    MAX_CONFIGURATION_BYTES,
    OWN_VARIABLE,
    ConfigurationFile,
)
from hook_layer.configuration.hook_json import parse_hook_configuration
from hook_layer.configuration.hook_options import VALUE_LIMITS
from rule_runtime.configuration.actions import StopTraining, as_actions, listed_actions
from rule_runtime.configuration.debug_configuration import DebugConfiguration
from rule_runtime.configuration.hook_config import DebuggerHookConfig
from rule_runtime.configuration.merging import steps_of
from rule_runtime.configuration.ranks import Ranks, include_workers
from rule_runtime.configuration.requested_rules import PACK
from rule_runtime.configuration.sdk_objects import as_hook_config
from rule_runtime.jobs.aws import Aws, Session
from rule_runtime.jobs.custom_sources import with_placed_sources
from rule_runtime.jobs.deployment import DEFAULT_STAGE, Deployment
from rule_runtime.jobs.job_files import (
    CONFIGURATION_FILE,
    JobPaths,
    absolute_output_path,
    bucket_of,
    checked_job_name,
    is_in_s3,
    unique_job_name,
)
from rule_runtime.jobs.pack_rules import (
    PackRule,
    deployed_collections,
    unsaved_for_deployed,
    with_packs,
)
from rule_runtime.jobs.prepared_job import Checkpoint, PreparedJob
from rule_runtime.jobs.rule_needs import RuleNeeds, SaidBy, collections_said_by, saved_for_rules
from rule_runtime.jobs.sdk_differences import other_place, unsent_messages
from rule_runtime.trial.run_files import named_run

if TYPE_CHECKING:
    from rule_runtime.configuration.collection_config import CollectionConfig
    from rule_runtime.configuration.debug_rule import Rule
    from rule_runtime.configuration.packs import Pack

__all__ = ["prepare"]

logger = logging.getLogger("stepwatch")
_SWITCH: Final = "USE_SMDEBUG"


@dataclass(frozen=True)
class _JobOptions:
    """The debugging options of a job.

    Attributes:
        rules: The rules; each pack is replaced by its rules.
        of_packs: Details of the rules that came from a pack, by name.
        hook_config: Hook configuration of Stepwatch or the SageMaker SDK.
        actions: Actions on a finding, for the whole job.
        is_for_deployed: Whether no rules are given, so that the deployed ones apply.
    """

    rules: tuple[Rule, ...]
    of_packs: Mapping[str, PackRule]
    hook_config: object
    actions: object
    is_for_deployed: bool

    @classmethod
    def of(
        cls, rules: Iterable[object] | str | Pack | None, hook_config: object, actions: object
    ) -> _JobOptions:
        """Return the options from the arguments of `prepare`.

        Raises:
            TypeError: A rule is neither a rule nor a pack.
            ValueError: There is no such pack.
        """
        listed, of_packs = with_packs(
            () if rules is None else rules, says_steps=_says_steps(hook_config)
        )
        if rules is None and hook_config is None:
            hook_config = DebuggerHookConfig(collection_configs=deployed_collections())
        return cls(listed, of_packs, hook_config, actions, rules is None)

    @property
    def requests_stop(self) -> bool:
        """Whether any action, of a rule or the whole job, stops the job."""
        return any(
            isinstance(action, StopTraining)
            for given in (self.actions, *(rule.actions for rule in self.rules))
            for action in listed_actions(as_actions(given))
        )

    def needs(self, rules: Iterable[Rule]) -> list[RuleNeeds]:
        """Return the saved data that rules need, for rules with checked parameters.

        Raises:
            ValueError: The evaluators would refuse a rule's parameters.
        """
        checked = (RuleNeeds.checked(rule, self._saved_for(rule)) for rule in rules)
        return [found for found in checked if found]

    def _saved_for(self, rule: Rule) -> tuple[CollectionConfig, ...] | None:
        of_pack = self.of_packs.get(rule.name)
        return None if of_pack is None else of_pack.collections


def _says_steps(hook_config: object) -> bool:
    """Return whether the parameters of a hook set the saved steps."""
    hook = as_hook_config(hook_config) if hook_config else DebuggerHookConfig()
    return bool(steps_of(hook.hook_parameters or {}))


def prepare(
    *,
    output_path: str | os.PathLike[str],
    job_name: str | None = None,
    base_job_name: str | None = None,
    hook_config: object | Literal[False] = None,
    rules: Iterable[object] | str | Pack | None = None,
    actions: object = None,
    tensorboard: object = None,
    ranks: Ranks = "auto",
    checkpoint_s3_uri: str | None = None,
    checkpoint_local_path: str | None = None,
    stage: str = DEFAULT_STAGE,
    session: Session | None = None,
    clock: Callable[[], float] = time.time,
) -> PreparedJob:
    """Prepare a training job: check its configuration and store it for the job's hook.

    Tensors go to `{output_path}/{job_name}/debug-output/`, TensorBoard files to
    `{output_path}/{job_name}/tensorboard-output/`, the configuration to
    `{output_path}/{job_name}/stepwatch.json`. You can pass objects of the SageMaker SDK and JSON of
    CreateTrainingJob instead of Stepwatch's objects.

    The hook saves what `hook_config` and the rules configure, and what the rules need beyond that
    (`Rule.requires`). Explicit steps and forms of a collection have priority; if a rule needs more,
    you get a warning. Without `rules` and `hook_config`, the hook saves what the pack `recommended`
    needs, the default of deployments. Warnings are logged, and are in `PreparedJob.warnings`.

    In S3 this needs `s3:PutObject` on the configuration. A custom rule in a local file also needs
    the permissions of `Deployment`, and `s3:GetObject` and `s3:PutObject` on the file's object.

    Args:
        output_path: S3 URI or folder for the job's output.
        job_name: Name of the job; alternatively, give `base_job_name`.
        base_job_name: Prefix of a unique name.
        hook_config: What the hook saves; None for its defaults and the needs of rules; False for no
            hook. Its `s3_output_path` has priority over `output_path`, with a warning.
        rules: The rules that evaluate the job; None for the deployed ones with their parameters; an
            empty list for none. A pack or its name (`"recommended"`) stands for its rules, alone or
            in the list. A listed rule replaces the pack's rule of the same name.
        actions: Actions on findings of rules without actions of their own; rules with actions keep
            theirs, with a warning. `Email` and `SMS` send nothing to their addresses, with a
            warning: only subscribers of the deployment's topic are notified.
        tensorboard: Path of TensorBoard files, `TensorBoardOutputConfig()` for the path above; None
            for no such files.
        ranks: The ranks of a distributed run that write, unless `hook_config` has the parameter
            `include_workers`. `auto`: statistics of up to 16 ranks, values of the first; `all`:
            statistics and values of all; `chief`: only the first rank.
        checkpoint_s3_uri: S3 URI of checkpoints.
        checkpoint_local_path: Folder of the checkpoints in the training container.
        stage: Stage of the deployment that evaluates the job; used only for custom rules.
        session: A boto3 session; None for the credentials and Region of the environment.
        clock: Returns seconds since the epoch.

    Raises:
        TypeError: An object has the wrong type.
        ValueError: A name, path or pack is wrong; parameters of rules are invalid; needs of rules
            conflict, or nothing that a rule needs is saved; a bucket is in another Region than the
            session; the hook would refuse the configuration (`HookConfigurationError`).
        DeploymentError: A custom rule is a file, and no deployment states which files it runs.
        StorageError: The configuration cannot be stored.
    """
    now = clock()
    name = _name(job_name, base_job_name, now)
    output = absolute_output_path(output_path)
    options = _JobOptions.of(rules, hook_config, actions)
    configuration = _configuration(options, output, tensorboard, ranks)
    needs = options.needs(configuration.rules)
    hook_output = (configuration.hook and configuration.hook.s3_output_path) or output
    job = PreparedJob(
        job_name=name,
        output_path=output,
        places=JobPaths.of(hook_output, name),
        configuration=configuration,
        environment=MappingProxyType({_SWITCH: "0"}),
        checkpoint=Checkpoint.of(checkpoint_s3_uri, checkpoint_local_path),
        prepared_at=now,
        stage=stage,
        session=session,
    )
    aws = Aws(session)
    _check_regions(job, aws)
    return job if configuration.hook is None else _stored(job, options, needs, aws)


def _configuration(
    options: _JobOptions, output: str, tensorboard: object, ranks: Ranks
) -> DebugConfiguration:
    """Return the requested hook configuration, without the needs of rules."""
    configuration = DebugConfiguration.of(
        output,
        hook_config=options.hook_config,
        rules=options.rules,
        actions=options.actions,
        tensorboard=tensorboard,
    )
    hook, who = configuration.hook, {"include_workers": include_workers(ranks)}
    if hook is not None:
        return replace(configuration, hook=hook.completed_by(who))
    if configuration.tensorboard is not None:
        raise ValueError(
            "hook_config=False writes no TensorBoard files either: leave tensorboard out, or "
            "hook_config"
        )
    return configuration


def _name(job_name: str | None, base_job_name: str | None, now: float) -> str:
    if (job_name is None) == (base_job_name is None):
        raise ValueError(
            f"job_name is {job_name!r} and base_job_name is {base_job_name!r}: give one of them"
        )
    if job_name is not None:
        return checked_job_name(job_name)
    return unique_job_name(base_job_name or "", now)


def _stored(
    job: PreparedJob, options: _JobOptions, needs: Sequence[RuleNeeds], aws: Aws
) -> PreparedJob:
    """Return the job with its hook configuration as stored."""
    document = _checked_document(job, options)  # before any file is uploaded
    said_by = collections_said_by(options.hook_config, options.rules)
    job = _with_needs(_with_sources(job, aws), needs, said_by)
    job = _with_warnings(job, document, is_for_deployed=options.is_for_deployed)
    job = replace(job, session=aws.session, requests_stop=options.requests_stop)
    _store_document(job, _checked_document(job, options), aws)
    return replace(
        job,
        environment=MappingProxyType({OWN_VARIABLE: job.places.configuration}),
        # A resumed run keeps its id, so it is not an earlier run.
        earlier_run=None if job.checkpoint else named_run(aws.open_store(job.places.root)),
    )


def _checked_document(job: PreparedJob, options: _JobOptions) -> dict[str, Any]:
    """Return the configuration in the hook's format.

    Raises:
        HookConfigurationError: The hook would refuse it.
    """
    document = {"TrainingJobName": job.job_name, **job.configuration.to_json(job.job_name)}
    if not options.is_for_deployed:
        members = document.setdefault("DebugRuleConfigurations", [])
        for member in members:
            # Notices distinguish rules named by the user from those of a pack.
            if (of_pack := options.of_packs.get(member["RuleConfigurationName"])) is not None:
                member[PACK] = of_pack.pack
    elif (asked := as_actions(options.actions)) is not None:
        asked.update_training_job_prefix_if_not_specified(job.job_name)
        document["Actions"] = [dict(each.action_parameters) for each in listed_actions(asked)]
    if job.checkpoint is not None:
        document["CheckpointConfig"] = job.checkpoint.to_json()
    parse_hook_configuration(ConfigurationFile(document, job.places.configuration, is_own=True))
    return document


def _store_document(job: PreparedJob, document: Mapping[str, Any], aws: Aws) -> None:
    """Store the configuration for the hook."""
    data = json.dumps(document, indent=2).encode()
    if len(data) > MAX_CONFIGURATION_BYTES:
        raise ValueError(
            f"the configuration has {len(data)} bytes, and a hook reads {MAX_CONFIGURATION_BYTES}: "
            "give it fewer rules or shorter parameters"
        )
    aws.open_store(job.places.folder).put(CONFIGURATION_FILE, data)


def _with_needs(job: PreparedJob, needs: Sequence[RuleNeeds], said_by: SaidBy) -> PreparedJob:
    """Return the job with the needs of its rules in the hook configuration, and unmet needs."""
    hook = job.configuration.hook or DebuggerHookConfig()
    hook = hook.completed_by(VALUE_LIMITS)
    hook, warnings = saved_for_rules(hook, needs, said_by)
    return replace(job, configuration=replace(job.configuration, hook=hook), warnings=warnings)


def _with_warnings(
    job: PreparedJob, document: Mapping[str, Any], *, is_for_deployed: bool
) -> PreparedJob:
    """Return the job with all its warnings, and log them."""
    hook = job.configuration.hook
    warnings = [*other_place(job), *unsent_messages(document)]
    if hook is not None and is_for_deployed and is_in_s3(job.places.root):
        warnings += unsaved_for_deployed(hook)
    warnings += job.warnings
    for warning in warnings:
        logger.warning("%s", warning)
    return replace(job, warnings=tuple(warnings))


def _check_regions(job: PreparedJob, aws: Aws) -> None:
    """Refuse buckets in another Region, whose events do not reach its evaluators."""
    board, checkpoint = job.configuration.tensorboard, job.checkpoint
    given = {
        "output_path": job.output_path,
        "hook_config.s3_output_path": job.places.root,
        "tensorboard.s3_output_path": board and board.s3_output_path,
        "checkpoint_s3_uri": checkpoint and checkpoint.s3_uri,
    }
    regions: dict[str, str | None] = {}
    for field, uri in given.items():
        if not uri or not is_in_s3(uri) or aws.region is None:
            continue
        bucket = bucket_of(uri)
        if bucket not in regions:
            regions[bucket] = aws.region_of_bucket(bucket)
        found = regions[bucket]
        if found is not None and found != aws.region:
            raise ValueError(
                f"{field}: the bucket {bucket} is in {found}, and the session in {aws.region}: "
                "give a bucket there, or a session of the bucket's Region; deployments and "
                "training jobs take buckets of their own Region only"
            )


def _with_sources(job: PreparedJob, aws: Aws) -> PreparedJob:
    deployment = Deployment(aws, job.stage) if is_in_s3(job.places.root) else None
    rules = with_placed_sources(job.configuration.rules, deployment, aws)
    return replace(job, configuration=replace(job.configuration, rules=rules))
