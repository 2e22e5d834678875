"""Verdicts in one form, whether they are states, JSON or stored files."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from hook_layer.storage.local import LocalStore
from rule_runtime.diagnosis.diagnosis import diagnosis_of_states
from rule_runtime.embedded.result_writer import ResultWriter
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.state import EvaluationState
from rule_runtime.reporting.job_verdicts import diagnosis_of_verdicts, stored_verdicts, verdicts_of
from rule_runtime.reporting.run_verdicts import RunVerdicts
from rule_runtime.reporting.verdicts import verdicts_json
from tests.rule_runtime.diagnosis.test_diagnosis import finding


def verdict(name: str, status: str = "IssuesFound") -> dict[str, str]:
    return {"RuleConfigurationName": name, "RuleEvaluationStatus": status}


def test_findings_come_first_and_among_them_what_makes_all_else_pointless() -> None:
    given = [
        verdict("AllZero"),
        verdict("DeadRelu", "NoIssuesFound"),
        verdict("MissingActivation"),
        verdict("NonFinite"),
        verdict("LossDiverging", "NoIssuesFound"),
        verdict("my rule"),
    ]
    assert [each.name for each in verdicts_of(given)] == [
        *("NonFinite", "MissingActivation", "AllZero", "my rule"),
        *("LossDiverging", "DeadRelu"),
    ]


def test_the_advice_on_the_data_is_the_change_in_every_form(tmp_path: Path) -> None:
    fresh = EvaluationState.initial()
    evidence = finding("LossDiverging.loss_rise_percent", 4).evidence
    passed = replace(fresh.counts, evaluated=9, advice="Scale the targets.")
    states = {
        "LossDiverging": replace(fresh, status=RuleStatus.ISSUES_FOUND, evidence=evidence),
        "InputStatistics": replace(fresh, status=RuleStatus.NO_ISSUES_FOUND, counts=passed),
    }
    ResultWriter(LocalStore(tmp_path), time.time).write("run-1", {}, states)
    printed = json.loads(verdicts_json([RunVerdicts("", str(tmp_path), states)]))
    expected = diagnosis_of_states(states)
    assert expected is not None
    assert expected.first.change == "Scale the targets."
    for verdicts in (
        verdicts_of(states),
        verdicts_of(printed),
        stored_verdicts(str(tmp_path), "run-1"),
    ):
        assert diagnosis_of_verdicts(verdicts) == expected
