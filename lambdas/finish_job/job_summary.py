"""Events with the statuses of all rules over a run of a job, and the cause of their findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lambdas.contracts.events import JOB_SUMMARY_DETAIL_TYPE, STATUS_SCHEMA_VERSION
from lambdas.shared.event_bus import bounded
from rule_runtime.diagnosis.diagnosis import diagnosis_of_states, findings_in_words

if TYPE_CHECKING:
    from lambdas.shared.event_bus import EventBus
    from lambdas.shared.registration import Registration
    from rule_runtime.engine.state import EvaluationState

__all__ = ["publish_summary", "summary_detail"]


def publish_summary(
    bus: EventBus, job: Registration, states: Mapping[str, EvaluationState]
) -> None:
    """Publish the summary of a job's run.

    Raises:
        AnnouncementError: The bus rejected the event.
    """
    bus.publish(
        JOB_SUMMARY_DETAIL_TYPE,
        summary_detail(job, states),
        arn=job.training_job_arn,
        subject=f"the summary of {job.training_job_name}",
    )


def summary_detail(job: Registration, states: Mapping[str, EvaluationState]) -> dict[str, Any]:
    """Return the detail of the summary event.

    `contracts/schemas/job_summary_event.json` describes it.

    Args:
        job: The job with its run.
        states: The states of the rules over this run, by configuration name.
    """
    diagnosis = diagnosis_of_states(states)
    known: dict[str, Any] = {"TrainingJobArn": job.training_job_arn} if job.training_job_arn else {}
    if diagnosis is not None:
        known["Diagnosis"] = bounded(diagnosis.to_json())
    return {
        "SchemaVersion": STATUS_SCHEMA_VERSION,
        "TrainingJobName": job.training_job_name,
        "RunId": job.run_id,
        "DebugOutputUri": job.root_uri,
        **bounded({"Summary": findings_in_words(states)}),
        "DebugRuleEvaluationStatuses": [
            {"RuleConfigurationName": name, "RuleEvaluationStatus": state.status.value}
            for name, state in states.items()
        ],
        **known,
    }
