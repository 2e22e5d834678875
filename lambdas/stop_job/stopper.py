"""Stops one run through its platform, and later checks whether it ended.

The platform is asked only with the consent of the job's tag, depending on the stop policy.
SageMaker is asked before the stop signal is written: in the other order, the training loop could
end first, and the job would become Failed. Batch and ECS make no such difference, so there the
signal is written first, which needs no permission. On other platforms, there is only the signal
beside the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from hook_layer.format.end_marker import MAX_END_MARKER_BYTES, parse_end_marker
from hook_layer.format.errors import JobFileError
from hook_layer.format.job_file import MAX_JOB_FILE_BYTES, JobFile, StopFile, parse_stop_file
from hook_layer.format.paths import END_MARKER, STOP_FILE
from hook_layer.storage.base import ObjectNotFoundError, StorageError, Store, read_small
from lambdas.contracts.stopping import ALL, OBSERVE, OPT_IN
from lambdas.shared.stop_table import LOOP, ON_SAGEMAKER, StopReason, StopTarget
from lambdas.shared.watched_job_file import bucket_of, watched_job_file
from lambdas.stop_job.consent import Consent, consent_of
from lambdas.stop_job.containers import platform_of
from lambdas.stop_job.job_stage import Life

if TYPE_CHECKING:
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration, RegistrationTable
    from lambdas.shared.settings import StopJobSettings
    from lambdas.stop_job.containers import ContainerJobs
    from lambdas.stop_job.sagemaker_jobs import SageMakerJobs

__all__ = ["JobStopper"]


@dataclass(frozen=True)
class JobStopper:
    """Sends stop requests to runs.

    Attributes:
        settings: The function's settings.
        sagemaker: SageMaker's jobs.
        containers: The jobs of other platforms, by platform.
        registrations: The registered jobs.
        open_store: Returns the store at a trial's root.
        telemetry: Logs and metrics.
    """

    settings: StopJobSettings
    sagemaker: SageMakerJobs
    containers: Mapping[str, ContainerJobs]
    registrations: RegistrationTable
    open_store: Callable[[str], Store]
    telemetry: Telemetry

    def job_file(self, registration: Registration) -> JobFile | None:
        """Return a registered job's `job.json`; None if it is missing or unreadable.

        Raises:
            StorageError: It is temporarily unreadable.
        """
        # Without the file, the table still protects a job that must not be stopped.
        root_uri, buckets = registration.root_uri, self.settings.tensor_bucket_names
        return watched_job_file(root_uri, buckets, self.open_store, self.telemetry)

    def is_authoritative_for(self, registration: Registration) -> bool:
        """Return whether the SageMaker job with its name may write to a registered root."""
        name, root_uri = registration.training_job_name, registration.root_uri
        consent = self._consent(StopTarget(name, ON_SAGEMAKER, root_uri))
        is_elsewhere = consent is Consent.ELSEWHERE
        return not is_elsewhere and self.sagemaker.can_write(name, root_uri)

    def target(self, registration: Registration, job: JobFile | None) -> StopTarget | None:
        """Return how to stop a registered run; None if its tag is `never`.

        If the tag does not allow a request to the platform, only the training loop is asked.

        Args:
            registration: The run.
            job: Its `job.json`, which may name a job of Batch or a task of ECS.
        """
        run_id = registration.run_id
        loop = StopTarget(registration.training_job_name, LOOP, registration.root_uri, run_id)
        if registration.is_sagemaker_job:
            on_platform = replace(loop, platform=ON_SAGEMAKER)
        else:
            arn = job.training_job_arn if job and job.run_id == run_id else None
            platform = platform_of(arn)
            if platform not in self.settings.platforms:
                return loop
            on_platform = replace(loop, platform=platform, arn=arn)
        consent = self._consent(on_platform)
        if consent is Consent.NEVER:
            return None
        return on_platform if self._may_request(on_platform, consent) else loop

    def unregistered(self, name: str) -> StopTarget | None:
        """Return how to stop an unregistered job of SageMaker; None if it must not be stopped."""
        target = StopTarget(name, ON_SAGEMAKER)
        consent = self._consent(target)
        is_any_job = self.settings.policy == ALL and consent is Consent.ABSENT
        return target if is_any_job or consent is Consent.GIVEN else None

    def stop(self, target: StopTarget, reason: StopReason) -> None:
        """Stop a run; repeated requests have no effect.

        Raises:
            ClientError: The platform rejected the request, and the job is not ending.
            StorageError: The stop signal could not be written.
        """
        if self.settings.policy == OBSERVE:
            return  # a request under an earlier policy
        if target.platform == ON_SAGEMAKER:
            self.sagemaker.stop(target.training_job_name)
        if target.root_uri:
            self._signal(target, reason)
        # Checked again, because a second request is sent minutes after the first.
        if target.arn is not None and self._may_request(target, self._consent(target)):
            self.containers[target.platform].stop(target.arn, f"{reason.rule}: {reason.text}")

    def life(self, target: StopTarget) -> Life:
        """Return the stage of a run.

        Raises:
            ClientError: The platform does not respond.
            StorageError: The trial is temporarily unreadable.
        """
        if target.platform == ON_SAGEMAKER:
            life = self.sagemaker.life(target.training_job_name)
            if life is not None:
                return life
        if target.arn is not None:
            job = self.containers[target.platform].find(target.arn)
            return Life.ENDED if job is None or job.has_ended else Life.RUNNING
        has_root = bool(target.root_uri)
        has_ended = has_root and (self._is_followed(target) or self._is_marked(target))
        return Life.ENDED if has_ended else Life.RUNNING

    def _consent(self, target: StopTarget) -> Consent:
        """Return the consent in the tag of the platform's job; `ABSENT` for an ended job."""
        if target.arn is None:
            tags = self.sagemaker.tags(target.training_job_name)
        else:
            job = self.containers[target.platform].find(target.arn)
            tags = {} if job is None or job.has_ended else job.tags
        buckets = self.settings.tensor_bucket_names
        return consent_of(tags.get(self.settings.tag), target.root_uri, buckets)

    def _may_request(self, target: StopTarget, consent: Consent) -> bool:
        """Return whether the platform may be asked to stop a registered run."""
        if consent is Consent.GIVEN:
            return True
        # A registration is bound to a SageMaker job by its name; an ARN in job.json is not.
        is_bound, is_opted_in_only = target.arn is None, self.settings.policy == OPT_IN
        if consent is Consent.ABSENT and is_bound and not is_opted_in_only:
            return True
        self.telemetry.warning(
            "only the training loop can be stopped: the tag of the job does not name this root or "
            "a folder above it",
            platform=target.platform,
            platform_arn=target.arn,
            debug_output_uri=target.root_uri,
            tag=self.settings.tag,
        )
        return False

    def _is_followed(self, target: StopTarget) -> bool:
        """Return whether a newer run writes below the root."""
        current = self.registrations.get(target.training_job_name, target.root_uri)
        return current is not None and current.run_id != target.run_id

    def _is_marked(self, target: StopTarget) -> bool:
        """Return whether the run's end marker exists."""
        if not self._is_watched(target.root_uri):
            return False
        store = self.open_store(target.root_uri)
        try:
            marker = read_small(store, END_MARKER, MAX_END_MARKER_BYTES, parse_end_marker)
        except (ObjectNotFoundError, JobFileError):
            return False
        return (marker.run_id or "") == target.run_id

    def _signal(self, target: StopTarget, reason: StopReason) -> None:
        """Write `stop.json` beside the tensors, unless this run has one."""
        if not self._is_watched(target.root_uri):
            self.telemetry.error(
                "no stop signal outside the watched buckets", bucket=bucket_of(target.root_uri)
            )
            return
        store = self.open_store(target.root_uri)
        run_id = target.run_id or None
        if _is_signalled(store, run_id):
            return
        signal = StopFile(
            reason=reason.text,
            requested_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            run_id=run_id,
            rule_configuration_name=reason.rule,
            evidence=reason.evidence,
        )
        store.put(STOP_FILE, signal.encode())

    def _is_watched(self, root_uri: str) -> bool:
        return bucket_of(root_uri) in self.settings.tensor_bucket_names


def _is_signalled(store: Store, run_id: str | None) -> bool:
    """Return whether the run has a stop signal, whose reason then stays."""
    try:
        signal = read_small(store, STOP_FILE, MAX_JOB_FILE_BYTES, parse_stop_file)
    except (StorageError, JobFileError):
        # The file is missing, unreadable (S3 returns "access denied" for a missing object to a role
        # without list permission) or of another run: write the signal.
        return False
    return signal.run_id == run_id
