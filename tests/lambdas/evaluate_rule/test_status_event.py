"""The status event: consumers outside this project read it, so its surface is frozen."""

from __future__ import annotations

import json
from dataclasses import replace

from lambdas.contracts import events
from lambdas.evaluate_rule.publication import status_detail
from lambdas.shared.registration import Registration
from lambdas.shared.state_table import StateKey, StoredState
from rule_runtime.engine.outcome import Evidence, RuleStatus
from rule_runtime.engine.state import EvaluationState

ARN = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/mnist-7"
ROOT = "s3://bucket/mnist-7/debug-output/"
JOB = Registration(ROOT, "mnist-7", "01JD", "sagemaker", ARN)
EVIDENCE = Evidence(
    step=500,
    mode="TRAIN",
    worker="worker_0",
    tensor="gradient/Net_conv1.weight",
    measure="abs_mean",
    value=3.1e-09,
    threshold=1e-07,
    sentence="gradient/Net_conv1.weight: mean(|g|) 3.1e-09 < 1e-07",
    remedy="look for dead units",
)


def stored(evidence: Evidence | None = EVIDENCE) -> StoredState:
    state = replace(
        EvaluationState.initial().with_status(RuleStatus.ISSUES_FOUND), evidence=evidence
    )
    key = StateKey(ROOT, "01JD", "VanishingGradient")
    return StoredState(key, state, version=2, status_changed_at_ms=1795212403000)


def test_the_whole_detail() -> None:
    assert status_detail(JOB, stored()) == {
        "SchemaVersion": 1,
        "TrainingJobName": "mnist-7",
        "RunId": "01JD",
        "TrainingJobArn": ARN,
        "TrainingJobStatus": "InProgress",
        "DebugOutputUri": ROOT,
        "DebugRuleEvaluationStatuses": [
            {
                "RuleConfigurationName": "VanishingGradient",
                "RuleEvaluationStatus": "IssuesFound",
                "LastModifiedTime": 1795212403000,
                "StatusDetails": "RuleEvaluationConditionMet: Evaluation of the rule "
                "VanishingGradient at step 500 resulted in the condition being met\n"
                "gradient/Net_conv1.weight: mean(|g|) 3.1e-09 < 1e-07 (worker_0, TRAIN)",
            }
        ],
        "Evidence": {
            "step": 500,
            "mode": "TRAIN",
            "worker": "worker_0",
            "tensor": "gradient/Net_conv1.weight",
            "measure": "abs_mean",
            "value": 3.1e-09,
            "threshold": 1e-07,
            "sentence": "gradient/Net_conv1.weight: mean(|g|) 3.1e-09 < 1e-07",
            "first_step": 500,
            "last_step": 500,
            "count": 1,
            "remedy": "look for dead units",
        },
    }


def test_what_is_not_known_is_absent() -> None:
    detail = status_detail(Registration(ROOT, "mnist-7", "01JD", "local"), stored(None))
    assert set(detail) == {
        "SchemaVersion",
        "TrainingJobName",
        "RunId",
        "TrainingJobStatus",
        "DebugOutputUri",
        "DebugRuleEvaluationStatuses",
    }


def test_source_and_type_are_those_that_existing_rules_match() -> None:
    assert events.STATUS_SOURCE == "stepwatch.debugger"
    assert events.STATUS_DETAIL_TYPE == "SageMaker Training Job State Change"
    assert events.STATUS_SCHEMA_VERSION == 1


def test_numbers_that_json_lacks_do_not_break_it() -> None:
    for value in (float("nan"), float("inf"), float("-inf")):
        detail = status_detail(JOB, stored(replace(EVIDENCE, value=value)))
        assert json.loads(json.dumps(detail, allow_nan=False)) == detail


def test_names_from_files_cannot_make_the_event_too_large() -> None:
    evidence = replace(EVIDENCE, tensor="x" * 1_000_000, sentence="y" * 1_000_000)
    detail = status_detail(JOB, stored(evidence))
    assert len(json.dumps(detail)) < 10_000


def test_how_an_evaluation_ended_is_told_within_the_limit() -> None:
    note = "counts as ended: no output for 86400 s, and no end marker"
    state = replace(stored().state, ended=True)
    ended = replace(stored(), state=state, note=note)
    (status,) = status_detail(JOB, ended)["DebugRuleEvaluationStatuses"]
    assert status["StatusDetails"].endswith(f"(worker_0, TRAIN); {note}")
    long = replace(EVIDENCE, sentence="x" * 2000)
    ended = replace(ended, state=replace(state, evidence=long))
    (status,) = status_detail(JOB, ended)["DebugRuleEvaluationStatuses"]
    assert len(status["StatusDetails"]) == 1024
    assert status["StatusDetails"].endswith(note)
    going_on = replace(ended, state=replace(state, ended=False))
    (status,) = status_detail(JOB, going_on)["DebugRuleEvaluationStatuses"]
    assert note not in status["StatusDetails"]
