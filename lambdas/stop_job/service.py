"""Stops a training job in which a rule found an issue: the API first, then the signal on disk.

An event is not believed because it came. Ours can be forged by whoever may put events on the bus,
so the finding is looked up in the state table, and the place of the stop signal is the registered
one, never one that an event names. SageMaker's own events and direct invocations are taken at their
word; what they name by the job's name alone are the registrations that lie below a folder of that
name, so that nobody else's registration can opt a job out or draw its stop signal to itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from hook_layer.format.errors import JobFileError
from hook_layer.format.job_file import MAX_JOB_FILE_BYTES, StopFile, parse_stop_file
from hook_layer.format.paths import STOP_FILE
from hook_layer.storage.base import StorageError, Store
from lambdas.shared.state_table import StateKey
from lambdas.stop_job.request import Origin
from rule_runtime.evaluation.outcome import RuleStatus

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient

    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration, RegistrationTable
    from lambdas.shared.settings import StopJobSettings
    from lambdas.shared.state_table import StateTable
    from lambdas.stop_job.request import Finding, StopRequest

__all__ = ["AmbiguousJobError", "StopJobDependencies", "StopJobService"]

_ALREADY_ENDING: Final = re.compile(
    r"training job is in status (Completed|Failed|Stopped|Stopping|Deleting)\b"
)


class AmbiguousJobError(ValueError):
    """Several registered jobs outside SageMaker have the name that is to be stopped."""


@dataclass(frozen=True)
class StopJobDependencies:
    """What the service works with.

    Attributes:
        states: The evaluation states, which hold the verdicts.
        registrations: The registered jobs.
        sagemaker: Returns the client that stops SageMaker's jobs.
        open_store: Returns the store at a trial's root.
        telemetry: Logs and metrics.
    """

    states: StateTable
    registrations: RegistrationTable
    sagemaker: Callable[[], SageMakerClient]
    open_store: Callable[[str], Store]
    telemetry: Telemetry


@dataclass(frozen=True)
class _Reason:
    """Why a job is stopped, as its stop signal will say it, in one line."""

    rule: str
    text: str
    evidence: dict[str, Any] | None = None


class StopJobService:
    """Decides whether a job is to be stopped, and stops it.

    Args:
        settings: The function's settings.
        dependencies: Tables, clients, logs.
    """

    def __init__(self, settings: StopJobSettings, dependencies: StopJobDependencies) -> None:
        self._settings = settings
        self._use = dependencies
        self._telemetry = dependencies.telemetry

    def handle(self, request: StopRequest) -> bool:
        """Stop the job that `request` names, if its findings are ones that stop jobs.

        Returns:
            True when the job was stopped (or was ending already), False when there was nothing to
            do or the request was refused; the log says why.

        Raises:
            AmbiguousJobError: It cannot be told which of several jobs is meant.
            ClientError: SageMaker did not stop the job, for another reason than that it ends.
            StorageError: The stop signal could not be written.
        """
        findings = list(request.findings)
        if request.origin is Origin.EVENT_BUS:
            # The list is of this deployment's rules; whoever gave a job rules of SageMaker's own,
            # or calls the function, has chosen already.
            findings = [found for found in findings if self._settings.stops(found.rule)]
        if not findings:
            return False
        if self._settings.observe_only:
            self._telemetry.info(
                "issues found, and the policy is to observe: the job goes on",
                rules=[finding.rule for finding in findings],
            )
            return False
        if not request.training_job_name:
            self._refuse("the event has a finding but no TrainingJobName", request)
            return False
        registrations = self._registrations(request)
        reason = self._reason(request, registrations, findings)
        if reason is None:
            self._refuse("neither a registered run nor its verdict confirm the event", request)
            return False
        if any(registration.opt_out_of_stop for registration in registrations):
            self._refuse("the job opted out of being stopped", request)
            return False
        self._stop(request.training_job_name, registrations, reason)
        return True

    def _registrations(self, request: StopRequest) -> list[Registration]:
        """Return the registered runs that the request means."""
        table, name = self._use.registrations, request.training_job_name
        if request.root_uri is not None:
            # The event only chooses among what is registered, and only the run that writes now.
            at_root = table.get(name, request.root_uri)
            return [at_root] if at_root is not None and _is_meant(at_root, request) else []
        if request.origin is Origin.EVENT_BUS:
            return []
        found = [job for job in table.find(name) if job.lies_below_its_name]
        on_sagemaker = [registration for registration in found if registration.is_sagemaker_job]
        if on_sagemaker or request.origin is Origin.NATIVE:
            return on_sagemaker
        if len(found) > 1:
            roots = ", ".join(sorted(registration.root_uri for registration in found))
            raise AmbiguousJobError(
                f"{len(found)} jobs are called {request.training_job_name!r} ({roots}): put "
                "DebugOutputUri and RunId into the event"
            )
        return found

    def _reason(
        self, request: StopRequest, registrations: list[Registration], findings: list[Finding]
    ) -> _Reason | None:
        """Return why the job is to be stopped, None if it is not."""
        if request.origin is Origin.EVENT_BUS:
            return self._confirmed(registrations, findings)
        # Only our own events name a root, and they are about registered runs.
        is_any_job = self._settings.stop_any_native_job and request.root_uri is None
        if not (registrations or is_any_job):
            return None
        told = " ".join(findings[0].details.split())
        return _Reason(findings[0].rule, told or _sentence(findings[0].rule))

    def _confirmed(
        self, registrations: list[Registration], findings: list[Finding]
    ) -> _Reason | None:
        """Return the first finding that the state table confirms."""
        for registration in registrations:
            for finding in filter(attrgetter("rule"), findings):
                key = StateKey(registration.root_uri, registration.run_id, finding.rule)
                stored = self._use.states.load(key)
                if stored is not None and stored.state.status is RuleStatus.ISSUES_FOUND:
                    evidence = stored.state.evidence
                    if evidence is None:
                        return _Reason(finding.rule, _sentence(finding.rule))
                    return _Reason(finding.rule, evidence.line, evidence.to_json())
        return None

    def _stop(self, name: str, registrations: list[Registration], reason: _Reason) -> None:
        # The other order would let the training loop end first, and the job become Failed.
        if not registrations or any(job.is_sagemaker_job for job in registrations):
            self._stop_sagemaker_job(name)
        for registration in registrations:
            self._signal(registration, reason)
        self._telemetry.count("JobsStopped")
        self._telemetry.info("the job is asked to stop", rule=reason.rule, reason=reason.text)

    def _stop_sagemaker_job(self, name: str) -> None:
        try:
            self._use.sagemaker().stop_training_job(TrainingJobName=name)
        except ClientError as error:
            details = error.response["Error"]
            ending = _ALREADY_ENDING.search(details.get("Message", ""))
            if details.get("Code") != "ValidationException" or ending is None:
                raise
            self._telemetry.info("the job ends already", training_job_status=ending[1])

    def _signal(self, registration: Registration, reason: _Reason) -> None:
        """Write `stop.json` beside the tensors, unless this run has one."""
        bucket = registration.root_uri.removeprefix("s3://").partition("/")[0]
        if bucket not in self._settings.tensor_bucket_names:
            self._telemetry.error("no stop signal outside the watched buckets", bucket=bucket)
            return
        store = self._use.open_store(registration.root_uri)
        run_id = registration.run_id or None
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

    def _refuse(self, why: str, request: StopRequest) -> None:
        self._telemetry.count("StopsRefused")
        self._telemetry.warning(
            "the job is not stopped: " + why,
            rules=[finding.rule for finding in request.findings],
            debug_output_uri=request.root_uri,
            event_run_id=request.run_id,
        )


def _is_meant(registration: Registration, request: StopRequest) -> bool:
    """Tell whether a request is about the run that writes now; a direct one may leave it out."""
    if request.run_id is None and request.origin is not Origin.EVENT_BUS:
        return True
    return registration.run_id == (request.run_id or "")


def _sentence(rule: str) -> str:
    return f"the rule {rule} found an issue"


def _is_signalled(store: Store, run_id: str | None) -> bool:
    """Tell whether the run has a stop signal, whose reason is then kept."""
    try:
        data = store.get(STOP_FILE, 0, MAX_JOB_FILE_BYTES + 1)
        signal = parse_stop_file(data, file=store.uri + STOP_FILE)
    except (StorageError, JobFileError):
        # Absent, unreadable (S3 says "access denied" of an absent object to a role that may not
        # list) or not ours: writing the signal matters more than which reason it carries.
        return False
    return signal.run_id == run_id
