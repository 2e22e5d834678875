"""Decides whether a training job with findings is stopped, and stops it.

Stepwatch's events can be forged by everyone with access to the bus. So the finding is checked in
the state table, and the stop signal goes to the registered root, never to a root in an event.
SageMaker's own events and direct invocations are trusted. They name only a job, which means the
registrations below a folder with that name. So registrations of others can neither opt a job out
nor receive its stop signal.

The stop policy decides which jobs may be stopped. By default, jobs must opt in, with their
`job.json` or a tag. The policy, the actions in `job.json` and the minimum number of rules apply to
every request. The list of rules that stop jobs and the severity of their findings apply only to
events, because a direct invocation has chosen its rule. A finding without evidence, such as one of
SageMaker's own rules, is not known to be fatal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lambdas.contracts.stopping import OBSERVE, OPT_IN, WATCHED
from lambdas.shared.job_actions import JobActions
from lambdas.shared.state_table import StateKey
from lambdas.shared.stop_table import LOOP, StopReason
from lambdas.stop_job.request import Origin
from rule_runtime.diagnosis.diagnosis import findings_in_words
from rule_runtime.engine.outcome import RuleStatus

if TYPE_CHECKING:
    from hook_layer.format.job_file import JobFile
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Registration, RegistrationTable
    from lambdas.shared.run_states import RunStates
    from lambdas.shared.settings import StopJobSettings
    from lambdas.shared.stop_table import StopTable, StopTarget
    from lambdas.stop_job.request import Finding, StopRequest
    from lambdas.stop_job.stopper import JobStopper
    from rule_runtime.engine.state import EvaluationState

__all__ = ["AmbiguousJobError", "StopJobService"]


class AmbiguousJobError(ValueError):
    """Several registered jobs outside SageMaker have the name to stop."""


@dataclass(frozen=True)
class _Job:
    """A requested run, and its current `job.json`."""

    registration: Registration
    file: JobFile | None
    target: StopTarget

    @property
    def actions(self) -> JobActions:
        return JobActions.of(self.registration.training_job_name, self.file)


@dataclass(frozen=True)
class StopJobService:
    """Decides whether a job must be stopped, and stops it.

    Attributes:
        settings: The function's settings.
        runs: The states of rules by run, which contain the verdicts.
        registrations: The registered jobs.
        stops: The requests to stop jobs.
        stopper: Sends stop requests.
        telemetry: Logs and metrics.
    """

    settings: StopJobSettings
    runs: RunStates
    registrations: RegistrationTable
    stops: StopTable
    stopper: JobStopper
    telemetry: Telemetry

    def handle(self, request: StopRequest) -> bool:
        """Stop the job in `request`, if its findings stop jobs.

        Returns:
            True if the job was asked to stop (or was already ending). False if there was nothing to
            do or the request was rejected; the log says why.

        Raises:
            AmbiguousJobError: Several jobs match the request.
            ClientError: A platform did not stop the job, which is not ending either.
            StorageError: The stop signal could not be written.
        """
        findings = [found for found in request.findings if self._counts(found.rule, request)]
        if not findings:
            return False
        if self.settings.policy == OBSERVE:
            self.telemetry.info(
                "issues found, and the policy is `observe`: the job continues",
                rules=[finding.rule for finding in findings],
            )
            return False
        if not request.training_job_name:
            return self._refuse("the event has a finding but no TrainingJobName", request)
        registrations = self._registrations(request)
        reasons = self._reasons(request, registrations, findings)
        if not reasons:
            return self._refuse(
                "neither a registered run nor its verdict confirm the event", request
            )
        if any(registration.opt_out_of_stop for registration in registrations):
            return self._refuse("the job opted out of being stopped", request)
        return self._stop_if_requested(request, registrations, reasons)

    def _stop_if_requested(
        self, request: StopRequest, registrations: list[Registration], reasons: list[StopReason]
    ) -> bool:
        """Stop a job if its owner agreed, and enough rules agree."""
        stopper, jobs, targets = self.stopper, [], []
        for registration in registrations:
            file = stopper.job_file(registration)
            if (target := stopper.target(registration, file)) is not None:
                jobs.append(_Job(registration, file, target))
                targets.append(target)
        if not registrations and (unregistered := stopper.unregistered(request.training_job_name)):
            targets.append(unregistered)
        if len(targets) < max(1, len(registrations)):
            return self._refuse("its tag does not let it be stopped", request)
        is_direct = request.origin is Origin.DIRECT
        wanted = [reason for reason in reasons if self._stops(reason, jobs, is_direct=is_direct)]
        rules = self._agreeing(jobs, wanted)
        if not wanted or len(rules) < self.settings.min_rules:
            self.telemetry.info(
                "the job continues: it did not opt in, its actions do not ask to stop it, its "
                "findings are not severe enough, or too few rules found issues",
                stop_policy=self.settings.policy,
                stop_severity=self.settings.severity,
                fatal_rules=sorted(reason.rule for reason in reasons if reason.is_fatal),
                rules=sorted(reason.rule for reason in reasons),
                agreeing_rules=sorted(rules),
                min_rules=self.settings.min_rules,
            )
            return False
        is_ours = request.origin is Origin.EVENT_BUS
        reason = self._with_cause(wanted[0], registrations) if is_ours else wanted[0]
        # Stored first, so that the request is followed up even if this call fails.
        for target in targets:
            self.stops.note(target, reason)
            stopper.stop(target, reason)
        self.telemetry.count("JobsStopped")
        self.telemetry.info("the job is asked to stop", rule=reason.rule, reason=reason.text)
        return True

    def _with_cause(self, reason: StopReason, registrations: list[Registration]) -> StopReason:
        """Return the reason after the cause of all findings; rules may find more later."""
        if len(registrations) != 1:
            return reason
        (run,) = registrations
        try:
            states = self.runs.load(run.root_uri, run.run_id)
            text = f"{findings_in_words(states)}; {reason.text}"
        except Exception as error:  # noqa: BLE001 - the stop must not wait for its explanation
            self.telemetry.warning("the cause of the stop is not known", problem=str(error))
            return reason
        return replace(reason, text=text)

    def _counts(self, rule: str, request: StopRequest) -> bool:
        """Return whether a rule's finding may stop jobs; always true for direct invocations."""
        is_direct = request.origin is Origin.DIRECT
        return is_direct or self.settings.stops(rule) or self.settings.is_jobs_own(rule)

    def _stops(self, reason: StopReason, jobs: list[_Job], *, is_direct: bool = False) -> bool:
        """Return whether a finding stops the requested jobs.

        The settings list rules and a severity, except for direct invocations. If a job requests to
        be stopped by a rule, any of its findings does, also of a rule that the job itself brings.
        """
        rule, settings = reason.rule, self.settings
        asked = [job.actions.requests_stop(rule) for job in jobs]
        if asked and all(answer is True for answer in asked):
            return is_direct or settings.stops(rule) or settings.is_jobs_own(rule)
        is_listed = settings.stops(rule) and settings.stops_at(is_fatal=reason.is_fatal)
        return (is_direct or is_listed) and self._is_wanted(asked, jobs)

    def _is_wanted(self, asked: list[bool | None], jobs: list[_Job]) -> bool:
        """Return whether every requested job allows to be stopped.

        Args:
            asked: Whether each job requests it. If it does not say, the stop policy decides. Under
                the policy `opt_in`, only a tag with consent allows a request to the platform, so
                the target shows the tag.
            jobs: The jobs.
        """
        is_opted_in_only = self.settings.policy == OPT_IN
        return all(
            answer is True
            or (answer is None and not (is_opted_in_only and job.target.platform == LOOP))
            for answer, job in zip(asked, jobs, strict=True)
        )

    def _agreeing(self, jobs: list[_Job], wanted: list[StopReason]) -> set[str]:
        """Return the rules with findings in the job that would stop it."""
        rules = {reason.rule for reason in wanted}
        if len(rules) >= self.settings.min_rules:
            return rules
        for job in jobs:
            run = job.registration
            states = self.runs.load(run.root_uri, run.run_id)
            found = {r: of for r, of in states.items() if of.status is RuleStatus.ISSUES_FOUND}
            rules |= {r for r, of in found.items() if self._stops(_reason(r, of), jobs)}
        return rules

    def _registrations(self, request: StopRequest) -> list[Registration]:
        """Return the registered runs that the request refers to."""
        table, name = self.registrations, request.training_job_name
        if request.root_uri is not None:
            # The event only selects a registration, and only its current run.
            at_root = table.get(name, request.root_uri)
            if at_root is None or not _is_meant(at_root, request):
                return []
            if at_root.is_sagemaker_job and not self._is_place_of_job(at_root):
                return [replace(at_root, platform="unknown")]
            return [at_root]
        if request.origin is Origin.EVENT_BUS:
            return []
        found = [job for job in table.find(name) if job.lies_below_its_name]
        on_sagemaker = [job for job in found if job.is_sagemaker_job and self._is_place_of_job(job)]
        if on_sagemaker or request.origin is Origin.NATIVE:
            return on_sagemaker
        found = [job for job in found if not job.is_sagemaker_job]
        if len(found) > 1:
            roots = ", ".join(sorted(registration.root_uri for registration in found))
            raise AmbiguousJobError(
                f"{len(found)} jobs are called {request.training_job_name!r} ({roots}): put "
                "DebugOutputUri and RunId into the event"
            )
        return found

    def _is_place_of_job(self, registration: Registration) -> bool:
        if self.stopper.is_authoritative_for(registration):
            return True
        self.telemetry.warning(
            "a registration is ignored: the SageMaker job with its name writes elsewhere",
            debug_output_uri=registration.root_uri,
        )
        return False

    def _reasons(
        self, request: StopRequest, registrations: list[Registration], findings: list[Finding]
    ) -> list[StopReason]:
        """Return the reasons to stop the job, one per rule; empty if there are none."""
        if request.origin is Origin.EVENT_BUS:
            return self._confirmed(registrations, findings)
        # Only Stepwatch's events name a root, and they are about registered runs.
        is_any_job = self.settings.policy != WATCHED and request.root_uri is None
        if not (registrations or is_any_job):
            return []
        return [
            StopReason(found.rule, " ".join(found.details.split()) or _sentence(found.rule))
            for found in findings
        ]

    def _confirmed(
        self, registrations: list[Registration], findings: list[Finding]
    ) -> list[StopReason]:
        """Return the findings that the state table confirms."""
        reasons = []
        for registration in registrations:
            for finding in findings:
                if not finding.rule:
                    continue
                key = StateKey(registration.root_uri, registration.run_id, finding.rule)
                stored = self.runs.verdict(key)
                if stored is None or stored.state.status is not RuleStatus.ISSUES_FOUND:
                    continue
                reasons.append(_reason(finding.rule, stored.state))
        return reasons

    def _refuse(self, why: str, request: StopRequest) -> bool:
        self.telemetry.count("StopsRefused")
        self.telemetry.warning(
            "the job is not stopped: " + why,
            rules=[finding.rule for finding in request.findings],
            debug_output_uri=request.root_uri,
            event_run_id=request.run_id,
        )
        return False


def _is_meant(registration: Registration, request: StopRequest) -> bool:
    """Return whether a request is about the current run; direct requests may omit the run."""
    if request.run_id is None and request.origin is not Origin.EVENT_BUS:
        return True
    return registration.run_id == (request.run_id or "")


def _reason(rule: str, state: EvaluationState) -> StopReason:
    evidence = state.evidence
    if evidence is None:
        return StopReason(rule, _sentence(rule))
    return StopReason(rule, evidence.line, evidence.to_json())


def _sentence(rule: str) -> str:
    return f"the rule {rule} found an issue"
