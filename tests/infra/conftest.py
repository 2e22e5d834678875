"""Templates of the application with the settings that several tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.infra.synthesis import assembly_of, template_of
from tools.golden_memories import RULES as RULES_OF_THE_PACKAGE

RULES: dict[str, dict[str, Any]] = {
    "VanishingGradient": {"threshold": 1e-6},
    "explosion": {"rule_to_invoke": "ExplodingTensor"},
    "LossNotDecreasing": {},
}


@pytest.fixture(scope="session")
def rules() -> dict[str, dict[str, Any]]:
    """The configured rules of the template under test."""
    return RULES


EVERYTHING = {
    "stepwatch:stage": "prod",
    "stepwatch:rules": {"explosion": {"rule_to_invoke": "ExplodingTensor"}},
    "stepwatch:custom_rules": {"team/mine.py": "ab" * 32, "yours.py": "cd" * 32},
    "stepwatch:stop_rules": ["explosion"],
    "stepwatch:stop_platforms": ["batch", "ecs"],
    "stepwatch:alert_emails": ["a@example.com", "b@example.com"],
    "stepwatch:notify_statuses": ["IssuesFound", "Stopped"],
    "stepwatch:tensor_bucket_name": "first-bucket",
    "stepwatch:new_tensor_buckets": ["second-bucket"],
    "stepwatch:tensor_buckets": ["another.team"],
    "stepwatch:encryption": "kms",
    "stepwatch:retention_days": 90,
    "stepwatch:tracing": True,
    "stepwatch:cost_alarm_usd_per_day": 20,
    "stepwatch:evaluator_timeout_s": 900,
}


SELECTING = {"tensor_regex": ".*"}
NEEDED = {
    "AllZero": SELECTING,
    "SimilarAcrossRuns": {"other_trials": "other"},
    "TensorVariance": {**SELECTING, "max_threshold": "1"},
    "UnchangedTensor": SELECTING,
}
EVERY_RULE = {rule: NEEDED.get(rule, {}) for rule in sorted(RULES_OF_THE_PACKAGE)}
"""Every built-in rule, with the parameters that it requires."""

FRUGAL = {
    "stepwatch:rules": "NonFinite,LossDiverging",
    "stepwatch:alarms": "essential",
    "stepwatch:custom_rules": {"team/mine.py": "ab" * 32},
    "stepwatch:custom_rule_bucket": "my.rules",
}


@pytest.fixture(scope="session")
def assembly() -> Path:
    """The assembly of three rules, for the local target."""
    return assembly_of({"stepwatch:rules": RULES, "stepwatch:stop_rules": ["explosion"]})


@pytest.fixture(scope="session")
def template() -> dict[str, Any]:
    """The template of three rules."""
    return template_of({"stepwatch:rules": RULES, "stepwatch:stop_rules": ["explosion"]})


@pytest.fixture(scope="session")
def full_template() -> dict[str, Any]:
    """The template of a deployment in production that uses every setting that adds something."""
    return template_of(EVERYTHING)


@pytest.fixture(scope="session")
def default_template() -> dict[str, Any]:
    """The template of the settings in cdk.json."""
    return template_of({})


@pytest.fixture(scope="session")
def frugal_template() -> dict[str, Any]:
    """The template of a deployment with few alarms, and with a bucket for files that exists."""
    return template_of(FRUGAL)
