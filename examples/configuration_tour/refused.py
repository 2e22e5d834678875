"""Mistakes in a configuration, which `prepare` refuses before a job costs anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stepwatch import prepare
from stepwatch.configuration import CollectionConfig, DebuggerHookConfig, Rule, rule_configs

__all__ = ["MISTAKES", "refusal"]

_GRADIENTS = rule_configs.vanishing_gradient()
MISTAKES: dict[str, dict[str, Any]] = {
    "a misspelt parameter of a collection": {
        "hook_config": DebuggerHookConfig(
            collection_configs=[CollectionConfig("gradients", {"save_intervall": 10})]
        ),
    },
    "a misspelt parameter of a rule": {
        "rules": [Rule.sagemaker(_GRADIENTS, rule_parameters={"treshold": 1e-8})]
    },
    "rules without a hook": {"hook_config": False, "rules": [Rule.sagemaker(_GRADIENTS)]},
    "two rules of one name": {"rules": [Rule.sagemaker(_GRADIENTS)] * 2},
}


def refusal(mistake: dict[str, Any], folder: Path) -> str:
    """Return what `prepare` says of a mistake; empty if it takes it."""
    try:
        prepare(job_name="refused", output_path=folder, **mistake)
    except ValueError as error:
        return str(error)
    return ""
