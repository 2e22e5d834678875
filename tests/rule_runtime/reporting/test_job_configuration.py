"""What a report tells of how a job was configured, whatever its `job.json` says."""

from __future__ import annotations

from typing import Any

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.memory import MemoryStore
from rule_runtime.reporting.job_configuration import JobConfiguration
from rule_runtime.reporting.tensor_kinds import TensorKinds


def reported(*rules: dict[str, Any]) -> list[str]:
    job = JobFile("mnist-7", "run-1", "local", "", debug_rule_configurations=rules)
    return JobConfiguration(job, "", []).rules


def test_rules_with_their_parameters_and_what_is_wrong_with_them() -> None:
    assert reported(
        {"RuleConfigurationName": "VanishingGradient", "RuleParameters": {"threshold": "1e-9"}},
        {"RuleConfigurationName": "NonFinite", "Pack": "recommended"},
        {"RuleConfigurationName": "Odd", "RuleParameters": ["a"]},
    ) == [
        "VanishingGradient (threshold: 1e-9)",
        "NonFinite",
        "Odd (RuleParameters are ['a'], but must be an object)",
    ]


def test_an_entry_without_a_usable_name_is_reported() -> None:
    (problem,) = reported({"RuleConfigurationName": "#x"})
    assert problem.startswith("entry 1 of DebugRuleConfigurations is ignored")


def test_a_damaged_file_is_reported_and_a_missing_one() -> None:
    store = MemoryStore("damaged")
    assert read(store).facts == {"job.json": "there is no job.json"}
    store.put(JOB_FILE, b"{")
    assert JOB_FILE in read(store).facts["job.json"]
    assert "there is no" not in read(store).facts["job.json"]


def read(store: MemoryStore) -> JobConfiguration:
    return JobConfiguration.read(store, TensorKinds(store), ())
