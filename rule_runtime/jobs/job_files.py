"""Locates and reads the files of a job: its configuration, its run, its rules and their results."""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from hook_layer.configuration.configuration_file import MAX_CONFIGURATION_BYTES, OWN_VARIABLE
from hook_layer.configuration.places import job_root
from hook_layer.format.errors import FormatError
from hook_layer.format.job_file import JobFile, StopFile
from hook_layer.format.json_document import load_object
from hook_layer.format.paths import JOB_FILE, STOP_FILE
from hook_layer.storage.base import ObjectNotFoundError, read_small
from rule_runtime.configuration.requested_rules import RequestedRule, parse_rule_requests
from rule_runtime.engine.result_file import (
    MAX_RESULT_BYTES,
    RESULTS_PREFIX,
    RuleResult,
    parse_result,
    result_place,
)
from rule_runtime.jobs.deployment import Deployment, DeploymentError
from rule_runtime.jobs.native_job import described_training_job
from rule_runtime.trial.job_file import usable_job_file
from rule_runtime.trial.run_files import read_end_marker
from rule_runtime.trial.stop_request import read_stop_request

if TYPE_CHECKING:
    from hook_layer.storage.base import Store
    from rule_runtime.jobs.aws import Aws

__all__ = [
    "CONFIGURATION_FILE",
    "JobFiles",
    "JobPaths",
    "JobRules",
    "RunLife",
    "absolute_output_path",
    "bucket_of",
    "checked_job_name",
    "find_location",
    "is_in_s3",
    "read_configuration",
    "tensorboard_root",
    "unique_job_name",
]

CONFIGURATION_FILE: Final = "stepwatch.json"
"""Name of the hook's configuration in the job's folder."""
_DEBUG_LEAF: Final = "debug-output"
_TENSORBOARD_LEAF: Final = "tensorboard-output"
_S3: Final = "s3://"
_BUCKET: Final = re.compile(r"s3://(?P<bucket>[^/]+)(/.*)?")
_JOB_NAME: Final = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
_MAX_JOB_NAME: Final = 63
_RANDOM_BYTES: Final = 3
logger = logging.getLogger("stepwatch")
_RESULT: Final = "/status.json"
_INTERRUPTED: Final = 130
"""Exit status of a script after Ctrl-C."""


@dataclass(frozen=True)
class JobPaths:
    """The paths of one job.

    Attributes:
        folder: The job's folder, ending in "/".
        root: The trial's root with the tensors, ending in "/".
    """

    folder: str
    root: str

    @classmethod
    def of(cls, output_path: str, job_name: str) -> JobPaths:
        """Return the paths of a job below an output path.

        Args:
            output_path: A folder or URI, as for hooks. The missing part of
                `/{job_name}/debug-output/` is appended.
            job_name: Name of the job.

        Raises:
            ValueError: The path is invalid.
        """
        root = job_root(absolute_output_path(output_path), job_name, _DEBUG_LEAF) or ""
        return cls(root.removesuffix(f"{_DEBUG_LEAF}/"), root)

    @property
    def configuration(self) -> str:
        """Path of the hook's configuration."""
        return self.folder + CONFIGURATION_FILE

    @property
    def parent(self) -> str:
        """The folder that holds the job's folder, ending in "/"."""
        return self.folder.rstrip("/").rpartition("/")[0] + "/"


def tensorboard_root(output_path: str, job_name: str) -> str:
    """Return the path of a job's TensorBoard files, ending in "/".

    Args:
        output_path: As `S3OutputPath` of `TensorBoardOutputConfig`.
        job_name: Name of the job.
    """
    return job_root(absolute_output_path(output_path), job_name, _TENSORBOARD_LEAF) or ""


def absolute_output_path(output_path: str | os.PathLike[str]) -> str:
    """Return an output path for configurations: a URI or an absolute path.

    Raises:
        ValueError: It is empty, a misspelled URI, or its scheme has no store.
    """
    text = os.fspath(output_path).strip()
    if not text:
        raise ValueError(
            "output_path is empty: give a folder, or an S3 URI like s3://bucket/output"
        )
    scheme, found, rest = text.partition("://")
    if not found:
        if re.match(r"(s3|file):", text):
            raise ValueError(f"output_path is {text!r}: did you mean s3://bucket/prefix?")
        return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - a text, as configurations have it
    if scheme not in ("s3", "file", "memory") or not rest.strip("/"):
        raise ValueError(
            f"output_path is {text!r}, but must be a folder, or a URI like s3://bucket/output"
        )
    return text


def is_in_s3(path: str) -> bool:
    """Return whether a path is in S3."""
    return path.startswith(_S3)


def bucket_of(uri: str) -> str:
    """Return the bucket of an S3 URI."""
    found = _BUCKET.fullmatch(uri)
    return found["bucket"] if found else ""


def checked_job_name(name: str, field: str = "job_name") -> str:
    """Return a job name that every platform accepts.

    Args:
        name: The name.
        field: Name of the field in messages.

    Raises:
        ValueError: CreateTrainingJob would refuse it.
    """
    if not isinstance(name, str) or _JOB_NAME.fullmatch(name) is None:
        raise ValueError(
            f"{field} is {name!r}, but must be 1 to {_MAX_JOB_NAME} letters, digits and '-', with "
            "a letter or digit first and last"
        )
    return name


def unique_job_name(base: str, now: float) -> str:
    """Return a unique name: the base, the time, and six random hexadecimal digits.

    Args:
        base: Start of the name; shortened if the name would exceed 63 characters.
        now: Seconds since the epoch.

    Raises:
        ValueError: CreateTrainingJob would refuse the base.
    """
    checked_job_name(base, "base_job_name")
    moment = datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%d-%H%M%S")
    end = f"-{moment}-{secrets.token_hex(_RANDOM_BYTES)}"
    return base[: _MAX_JOB_NAME - len(end)].rstrip("-") + end


def find_location(name: str, output_path: str | None, aws: Aws) -> tuple[JobPaths, str | None]:
    """Return the paths of a job's files, and the URI of the hook's configuration if elsewhere.

    Args:
        name: Name of the job.
        output_path: Output path as prepared; None to ask SageMaker.
        aws: The account and Region.

    Raises:
        ValueError: SageMaker has no such job, the job has no hook, or SageMaker cannot be asked;
            the message says what to set.
        AwsRequestError: SageMaker does not answer.
        StorageError: The job's configuration cannot be read.
    """
    if output_path is not None:
        return JobPaths.of(output_path, name), None
    described = described_training_job(aws, name, is_needed=True)
    if described is None:
        raise ValueError(
            f"SageMaker runs no job {name!r} in {aws.region}: give output_path, the folder or S3 "
            "URI below which the job's output goes"
        )
    uri = (described.get("Environment") or {}).get(OWN_VARIABLE)
    stored = None if uri is None else read_configuration(uri, aws.open_store)
    hook = (stored if stored is not None else described).get("DebugHookConfig")
    path = (hook or {}).get("S3OutputPath")
    if path is None:
        raise ValueError(
            f"the training job {name} names no output of a hook, neither by {OWN_VARIABLE} in its "
            "Environment nor by DebugHookConfig: give output_path"
        )
    return JobPaths.of(path, name), uri


def read_configuration(uri: str, open_store: Callable[[str], Store]) -> Mapping[str, Any] | None:
    """Return a hook's configuration; None if it does not exist.

    Args:
        uri: Its URI.
        open_store: Returns the store at a folder.

    Raises:
        FormatError: It is not a JSON object.
        StorageError: It cannot be read.
    """
    folder, _, name = uri.rpartition("/")
    try:
        data = open_store(folder).get(name, 0, MAX_CONFIGURATION_BYTES + 1)
    except ObjectNotFoundError:
        return None
    return load_object(data, file=uri, error=FormatError, max_bytes=MAX_CONFIGURATION_BYTES)


@dataclass(frozen=True)
class RunLife:
    """The state of a run, from its files.

    Attributes:
        has_begun: Whether its hook wrote any file.
        has_ended: Whether its hook has written the end marker.
        is_asked_to_stop: Whether a stop was requested for this run.
        exit_status: Exit status of its script, as in a shell; None if the script was not watched.
    """

    has_begun: bool = False
    has_ended: bool = False
    is_asked_to_stop: bool = False
    exit_status: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the state with the member names of DescribeTrainingJob."""
        failure: dict[str, Any] = {}
        if not self.has_begun:
            status, secondary = "InProgress", "Starting"
        elif self.is_asked_to_stop:
            status = secondary = "Stopped" if self.has_ended else "Stopping"
        elif self.has_ended and self.exit_status == _INTERRUPTED:
            status = secondary = "Stopped"
        elif self.has_ended and self.exit_status:
            status = secondary = "Failed"
            failure["FailureReason"] = f"the script ended with status {self.exit_status}"
        elif self.has_ended:
            status = secondary = "Completed"
        else:
            status, secondary = "InProgress", "Training"
        return {"TrainingJobStatus": status, "SecondaryStatus": secondary, **failure}


class JobFiles:
    """The files of one job.

    Args:
        places: Paths of the files.
        open_store: Returns the store at a path.
        configuration: URI of the hook's configuration, if it is not in the job's folder.
        earlier_run: RunId of an earlier run, which is ignored.
    """

    def __init__(
        self,
        places: JobPaths,
        open_store: Callable[[str], Store],
        configuration: str | None = None,
        earlier_run: str | None = None,
    ) -> None:
        self._places = places
        self._open_store = open_store
        self._configuration_uri = configuration or places.configuration
        self._earlier_run = earlier_run
        self._root: Store | None = None
        self._has_begun = False
        self._configuration: Mapping[str, Any] | None = None

    @property
    def root(self) -> Store:
        """The trial's root, as found by the last read."""
        return self._root if self._root is not None else self._find_root()

    def _find_root(self) -> Store:
        """Find the root of the run: `stepwatch run` writes into the job's folder itself."""
        if self._root is not None and self._has_begun:
            return self._root
        root = self._open_store(self._places.root)
        self._has_begun = root.exists(JOB_FILE)
        if not self._has_begun:
            folder = self._open_store(self._places.folder)
            self._has_begun = folder.exists(JOB_FILE)
            root = folder if self._has_begun else root
        self._root = root
        return root

    def job_file(self) -> JobFile | None:
        """Return `job.json` of the job's run; None before it begins."""
        job = usable_job_file(self._find_root())
        return None if job is None or job.run_id == self._earlier_run else job

    def configuration(self) -> Mapping[str, Any] | None:
        """Return the hook's configuration as stored by `prepare`; None if there is none."""
        if self._configuration is None:
            self._configuration = read_configuration(self._configuration_uri, self._open_store)
        return self._configuration

    def parse_rule_requests(
        self, job: JobFile | None
    ) -> tuple[Mapping[str, RequestedRule] | None, tuple[str, ...]]:
        """Return the configured rules of the job, and the problems of the configuration.

        Args:
            job: The run's `job.json`; None before it begins.

        Returns:
            The rules by name, None if the deployed rules apply; and why entries are ignored.
        """
        asked: object
        if job is not None:
            asked = job.debug_rule_configurations
        else:
            asked = (self.configuration() or {}).get("DebugRuleConfigurations")
        return parse_rule_requests(asked) if isinstance(asked, (list, tuple)) else (None, ())

    def result(self, rule_configuration_name: str, job: JobFile | None) -> RuleResult | None:
        """Return the result of a rule in a run; None if there is none yet.

        Args:
            rule_configuration_name: The rule.
            job: The run's `job.json`; None before it begins, and for the original client.
        """
        folder, key = result_place(self.root.uri, rule_configuration_name)
        return self._result(self._open_store(folder), key, job)

    def results(self, job: JobFile | None) -> list[RuleResult]:
        """Return the results of rules in a run, sorted by name."""
        folder, _ = result_place(self.root.uri, "")
        store = self._open_store(folder)
        keys = [key for key in store.list(RESULTS_PREFIX) if key.endswith(_RESULT)]
        found = (self._result(store, key, job) for key in keys)
        return [result for result in found if result is not None]

    def life(self, job: JobFile | None) -> RunLife:
        """Return the state of a run.

        Args:
            job: The run's `job.json`; None before it begins.
        """
        if job is None:
            return RunLife()
        marker = read_end_marker(self.root)
        has_ended = marker is not None and marker.run_id in (None, job.run_id)
        return RunLife(
            has_begun=True,
            has_ended=has_ended,
            exit_status=marker.exit_status if marker is not None and has_ended else None,
            is_asked_to_stop=read_stop_request(self.root, job.run_id) is not None,
        )

    def ask_to_stop(self, request: StopFile) -> None:
        """Write `stop.json`."""
        self.root.put(STOP_FILE, request.encode())

    @staticmethod
    def _result(store: Store, key: str, job: JobFile | None) -> RuleResult | None:
        try:
            result = read_small(store, key, MAX_RESULT_BYTES, parse_result)
        except ObjectNotFoundError:
            return None
        except FormatError as error:
            logger.warning("%s", error)
            return None
        run = "" if job is None else job.run_id
        return result if result.run_id == run else None


class JobRules:
    """The rules that evaluate a job: its configured rules, otherwise the deployed ones.

    Args:
        files: The job's files.
        deployment: The deployment that evaluates it; None for a local job.
    """

    def __init__(self, files: JobFiles, deployment: Deployment | None) -> None:
        self._files = files
        self._deployment = deployment
        self._reported: set[str] = set()

    def parameters(self, job: JobFile | None) -> dict[str, Mapping[str, Any]]:
        """Return the rules' parameters from the job, by rule name, in configured order.

        Args:
            job: The run's `job.json`; None before it begins.
        """
        rules, problems = self._files.parse_rule_requests(job)
        if rules is not None:
            for problem in problems:
                if problem not in self._reported:
                    logger.warning("%s", problem)
            self._reported.update(problems)
            return {name: rule.parameters for name, rule in rules.items()}
        judged = [result.rule for result in self._files.results(job)]
        # A job without Stepwatch files may be a job of SageMaker Debugger.
        is_ours = job is not None or self._files.configuration() is not None
        deployed = self._deployed if is_ours else ()
        return {name: {} for name in (*deployed, *judged)}

    def is_complete(self, job: JobFile | None) -> bool:
        """Return whether the list of rules can no longer grow while the job runs."""
        return self._files.parse_rule_requests(job)[0] is not None or bool(self._deployed)

    @cached_property
    def _deployed(self) -> tuple[str, ...]:
        """Names of the deployed rules; empty if unknown."""
        if self._deployment is None:
            return ()
        try:
            return self._deployment.rules
        except DeploymentError as error:
            logger.warning("which rules are deployed is not known: %s", error)
        return ()
