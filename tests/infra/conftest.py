"""One synthesis of the application for all tests of its template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.local.deployment import synthesise

RULES: dict[str, dict[str, Any]] = {
    "VanishingGradient": {"threshold": 1e-6},
    "explosion": {"rule_to_invoke": "ExplodingTensor"},
    "LossNotDecreasing": {},
}


@pytest.fixture(scope="session")
def rules() -> dict[str, dict[str, Any]]:
    """The configured rules of the template under test."""
    return RULES


@pytest.fixture(scope="session")
def assembly() -> Path:
    """The assembly of three rules, for the local target."""
    return synthesise({"stepwatch:rules": RULES, "stepwatch:stop_rules": ["explosion"]})


@pytest.fixture(scope="session")
def template(assembly: Path) -> dict[str, Any]:
    """The template of three rules."""
    loaded: dict[str, Any] = json.loads((assembly / "Stepwatch.template.json").read_text())
    return loaded
