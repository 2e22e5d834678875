"""A submitted training job with its rules' statuses, tensors and logs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.job_file import StopFile
from rule_runtime.diagnosis.diagnosis import Diagnosis, diagnosis_of
from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.outcome import is_insufficient, needs_more
from rule_runtime.jobs.aws import Aws, Session
from rule_runtime.jobs.deployment import DEFAULT_STAGE, Deployment
from rule_runtime.jobs.folder_rules import FolderRules
from rule_runtime.jobs.job_files import (
    JobFiles,
    JobRules,
    find_location,
    is_in_s3,
    tensorboard_root,
)
from rule_runtime.jobs.native_job import (
    described_training_job,
    is_terminal,
    native_statuses,
    stop_training_job,
)
from rule_runtime.jobs.rule_logs import native_log_urls, our_log_urls
from rule_runtime.jobs.summary import RuleSummary, failure_of, is_final, moment_of_start
from rule_runtime.trial.cut_values import CutValues
from rule_runtime.trial.trial import Trial

if TYPE_CHECKING:
    from hook_layer.format.job_file import JobFile
    from rule_runtime.reporting.html_report import HtmlReport

__all__ = ["DebugJob"]

_SAGEMAKER: Final = "sagemaker"
_STOP_REASON: Final = "its owner called DebugJob.stop()"


class DebugJob:
    """A submitted training job.

    The job runs on SageMaker, on another platform, or in a local folder (`stepwatch run`). Verdicts
    come from the evaluators' result files beside the tensors (`rule-output/<rule>/status.json`).
    This needs `s3:GetObject` on the job's folder and `s3:ListBucket`, and
    `sagemaker:DescribeTrainingJob` for SageMaker jobs. Verdicts of SageMaker Debugger's own rules
    come from the job's description.

    Args:
        name: Name of the job.
        output_path: Output path as prepared; None to ask SageMaker.
        configuration: URI of the hook's configuration, if it is not in the job's folder.
        earlier_run: RunId of an earlier run in the folder, which is ignored.
        rule_sources: Files of custom rules that may run locally, for a job in a local folder.
        stage: Stage of the deployment that evaluates the job; used for log groups, and for the
            names of the deployed rules if the job configures none.
        session: A boto3 session; None for the credentials and Region of the environment.
        clock: Returns seconds since the epoch.
        sleep: Waits for a number of seconds.

    Raises:
        ValueError: No output path is given, and SageMaker has no such job or cannot be asked.
    """

    def __init__(
        self,
        name: str,
        output_path: str | os.PathLike[str] | None = None,
        *,
        configuration: str | None = None,
        earlier_run: str | None = None,
        rule_sources: Collection[str] = (),
        stage: str = DEFAULT_STAGE,
        session: Session | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._name = name
        self._aws = Aws(session)
        self._clock, self._sleep = clock, sleep
        self._deployment = Deployment(self._aws, stage)
        self._known_at = datetime.fromtimestamp(clock(), timezone.utc)
        path = None if output_path is None else os.fspath(output_path)
        places, found = find_location(name, path, self._aws)
        self._is_in_s3 = is_in_s3(places.root)
        self._files = JobFiles(places, self._aws.open_store, configuration or found, earlier_run)
        self._rules = JobRules(self._files, self._deployment if self._is_in_s3 else None)
        self._in_folder = None if self._is_in_s3 else FolderRules(self._files, rule_sources, clock)

    def __repr__(self) -> str:
        return f"DebugJob({self.name!r}, {self.debug_output!r})"

    @property
    def name(self) -> str:
        """Name of the job."""
        return self._name

    @property
    def debug_output(self) -> str:
        """URI of the job's tensors, ending in "/"."""
        return self._files.root.uri

    @property
    def tensorboard_output(self) -> str | None:
        """URI of the job's TensorBoard files, ending in "/"; None if there are none."""
        found = (self._files.configuration() or {}).get("TensorBoardOutputConfig")
        if found is None:
            described = self._described(self._files.job_file()) or {}
            found = described.get("TensorBoardOutputConfig")
        path = (found or {}).get("S3OutputPath")
        return None if path is None else tensorboard_root(path, self.name)

    def latest_job_debugger_artifacts_path(self) -> str:
        """Return `debug_output`; the SageMaker SDK's name for it."""
        return self.debug_output

    def latest_job_tensorboard_artifacts_path(self) -> str | None:
        """Return `tensorboard_output`; the SageMaker SDK's name for it."""
        return self.tensorboard_output

    def trial(self) -> Trial:
        """Return the job's tensors; there may be none yet."""
        return Trial(self._files.root, name=self.name)

    def report(self) -> HtmlReport:
        """Return a report; `.save("report.html")` writes it, notebooks show it.

        Raises:
            ImportError: The extra `report` is not installed.
            StorageError: The job's files cannot be read.
        """
        from rule_runtime.reporting.html_report import job_report  # noqa: PLC0415 - needs jinja2

        return job_report(self.trial())

    def describe(self) -> dict[str, Any]:
        """Return the job's description with the member names of DescribeTrainingJob.

        Every job has `TrainingJobStatus`, `SecondaryStatus`, `DebugHookConfig` and
        `DebugRuleEvaluationStatuses`, and the `Diagnosis` of its findings. SageMaker jobs also have
        all other members. The status of other jobs comes from their files: a job is `InProgress`
        until its hook writes the end marker, so a killed job stays `InProgress`.
        """
        job = self._files.job_file()
        described = self._described(job)
        configuration = self._files.configuration() or {}
        description = dict(described) if described is not None else self._files.life(job).to_json()
        description["TrainingJobName"] = self.name
        if "DebugHookConfig" not in description:
            description["DebugHookConfig"] = configuration.get("DebugHookConfig")
        description["DebugRuleEvaluationStatuses"] = self._summary(job, described)
        diagnosis = self._diagnosis(job)
        description["Diagnosis"] = None if diagnosis is None else diagnosis.to_json()
        return description

    def rule_job_summary(self) -> list[dict[str, Any]]:
        r"""Return the status of every rule of the job, in configured order.

        Every rule is listed from submission on, as `InProgress` before its first verdict. If there
        is no deployment, the details say so, and the status is `Error` once the job has ended.
        Rules of SageMaker Debugger itself come last.

        Returns:
            For each rule `RuleConfigurationName`, `RuleEvaluationJobArn`, `RuleEvaluationStatus`,
            `StatusDetails` (ends in a newline, as the original's) and `LastModifiedTime` (a
            datetime in UTC). `RuleEvaluationJobArn` is the ARN of the S3 object with the rule's
            result, for a local job the file's URI. That object may not exist yet.

        Raises:
            StorageError: The job's files cannot be read.
            AwsRequestError: SageMaker does not answer.
        """
        job = self._files.job_file()
        return self._summary(job, self._described(job))

    def cut_values(self) -> str:
        """Return one line about values stored with only their first rows; empty if there are none.

        Raises:
            StorageError: The job's files cannot be read.
        """
        return str(CutValues.of_one_step(self._aws.open_store(self.debug_output)))

    def coverage(self) -> str:
        """Return one line about how many rules had data; empty until all have a final status.

        Raises:
            StorageError: The job's files cannot be read.
            AwsRequestError: SageMaker does not answer.
        """
        from rule_runtime.reporting.coverage import coverage_of  # noqa: PLC0415 - loads all rules

        summary = self.rule_job_summary()
        if not all(map(is_final, summary)):
            return ""
        details = {each["RuleConfigurationName"]: each["StatusDetails"] or "" for each in summary}
        judged = {name: needs_more(of) or not is_insufficient(of) for name, of in details.items()}
        return str(coverage_of(self._aws.open_store(self.debug_output), judged) or "")

    def wait_for_rules(
        self,
        *,
        poll_s: float = 5.0,
        timeout_s: float | None = None,
        out: Callable[[str], None] = print,
    ) -> list[Mapping[str, Any]]:
        """Wait until every rule has a final status: no issue, an issue or an error.

        It prints `<rule>: <status>` for each rule, and again at each change of status. For a job in
        a local folder, it evaluates rules without a verdict itself once the run has ended, and
        stores their verdicts. It runs custom rules only from `rule_sources`.

        Args:
            poll_s: Seconds between two checks.
            timeout_s: Longest wait in seconds; None for no limit. A rule stays `InProgress` while
                the job trains. It stays so forever if no deployment watches the bucket, or if the
                process of a local job was killed.
            out: Prints a line.

        Returns:
            The last `rule_job_summary`.

        Raises:
            TimeoutError: A rule has not ended in time.
            ValueError: The job is unknown; or a rule of a local job cannot be created or must not
                run here (the other rules were evaluated).
            StorageError: The job's files cannot be read, or verdicts cannot be written.
            AwsRequestError: SageMaker does not answer.
        """
        printed: dict[str, str] = {}
        ends = None if timeout_s is None else self._clock() + timeout_s
        while True:
            summary, is_complete = self._look()
            for member in summary:
                name, status = member["RuleConfigurationName"], member["RuleEvaluationStatus"]
                if printed.get(name) != status:
                    out(f"{name}: {status}")
                    printed[name] = status
            left = [each["RuleConfigurationName"] for each in summary if not is_final(each)]
            if is_complete and not left:
                return list(summary)
            if ends is not None and self._clock() >= ends:
                raise TimeoutError(
                    f"after {timeout_s:g} s {', '.join(left) or 'the rules'} have not ended: see "
                    "whether the job still trains, and whether a deployment watches where its "
                    "tensors go (rule_log_urls() has the evaluators' logs)"
                )
            self._sleep(poll_s)

    def rule_log_urls(self) -> dict[str, str]:
        """Return console URLs of what each rule's evaluator logged about this job.

        It needs the permissions of `Deployment`. Rules of SageMaker Debugger log to their
        processing jobs. A job in a local folder has no such logs.

        Raises:
            DeploymentError: You may not describe the deployment.
            ValueError: The Region is unknown.
        """
        if not self._is_in_s3:
            return {}
        region = self._aws.region
        if region is None:
            raise ValueError("no Region is known: give a session that has one, or set AWS_REGION")
        job = self._files.job_file()
        native = native_log_urls(self.name, native_statuses(self._described(job)), region)
        rules = self._rules.parameters(job)
        ours = our_log_urls(self.name, rules, self._deployment, region)
        return {**ours, **{name: url for name, url in native.items() if name not in ours}}

    def stop(self) -> None:
        """Ask the job to stop, by StopTrainingJob for SageMaker, and by `stop.json`.

        The hook reads `stop.json` within seconds and ends the training loop before its next step.
        An ended job does not change. It needs `s3:PutObject` on `stop.json`, and
        `sagemaker:StopTrainingJob` for a SageMaker job.

        Raises:
            ValueError: The job has not begun, and SageMaker does not run it.
            AwsRequestError: SageMaker refuses the request.
            StorageError: `stop.json` cannot be written.
        """
        job = self._files.job_file()
        if self._described(job) is not None:
            stop_training_job(self._aws, self.name)
        elif job is None:
            raise ValueError(
                f"{self.name} has not begun, so it cannot be stopped: there is no job.json in "
                f"{self.debug_output}"
            )
        if job is None or self._files.life(job).has_ended:
            return
        now = datetime.fromtimestamp(self._clock(), timezone.utc).isoformat(timespec="seconds")
        self._files.ask_to_stop(StopFile(_STOP_REASON, now, run_id=job.run_id))

    def check_known(self) -> tuple[JobFile | None, Mapping[str, Any] | None]:
        """Return the run's `job.json` and SageMaker's description of the job, if they exist.

        Raises:
            ValueError: The job is unknown: its name or output path is wrong.
            StorageError: The job's files cannot be read.
            AwsRequestError: SageMaker does not answer.
        """
        job = self._files.job_file()
        described = self._described(job)
        if job is None and described is None and self._files.configuration() is None:
            raise ValueError(
                f"the job {self.name} is unknown: neither a configuration nor job.json is in "
                f"{self.debug_output} or above it; check name and output path if the job has a hook"
            )
        return job, described

    def _look(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the summary, and whether the list of rules is complete."""
        job, described = self.check_known()
        has_ended = self._files.life(job).has_ended or is_terminal(described)
        if self._in_folder is not None and job is not None and has_ended:
            self._in_folder.judge(job)
        summary = self._summary(job, described)
        return summary, has_ended or self._rules.is_complete(job)

    def _summary(
        self, job: JobFile | None, described: Mapping[str, Any] | None
    ) -> list[dict[str, Any]]:
        results = {name: self._files.result(name, job) for name in self._rules.parameters(job)}
        has_open = self._is_in_s3 and None in results.values()
        obstacle = self._deployment.missing if has_open else ""
        has_ended = bool(obstacle) and (self._files.life(job).has_ended or is_terminal(described))
        failure = failure_of(job, described, self.debug_output)
        summary = RuleSummary(
            root_uri=self.debug_output,
            region=self._aws.region if self._is_in_s3 else None,
            began_at=moment_of_start(job, described, self._known_at),
            failure=failure or (obstacle if has_ended else ""),
            obstacle=obstacle,
        )
        members = [summary.of(name, result) for name, result in results.items()]
        if self._in_folder and self._files.life(job).has_ended:
            return list(map(self._in_folder.ended_member, members))
        return members + [
            status
            for status in native_statuses(described)
            if status["RuleConfigurationName"] not in results
        ]

    def _diagnosis(self, job: JobFile | None) -> Diagnosis | None:
        found, advice = {}, {}
        for name in self._rules.parameters(job):
            if (result := self._files.result(name, job)) is None:
                continue
            advice[name] = result.advice or ""
            if result.evidence is not None:
                with suppress(ValueError):  # of another version
                    found[name] = Evidence.from_json(result.evidence)
        return diagnosis_of(found, advice)

    def _described(self, job: JobFile | None) -> Mapping[str, Any] | None:
        """Return SageMaker's description of the job; None if it runs elsewhere."""
        if not self._is_in_s3:
            return None
        if job is not None and job.platform.lower() != _SAGEMAKER:
            return None
        return described_training_job(self._aws, self.name)
