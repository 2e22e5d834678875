"""Environment variables of the functions: written by infra, read by the functions."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CUSTOM_RULE_FILE",
    "CUSTOM_RULE_SHA256",
    "EVENT_BUS_NAME",
    "RULE_CONFIGURATION_NAME",
    "RULE_PARAMETERS",
    "STATE_TABLE_NAME",
    "STOP_ANY_NATIVE_JOB",
    "STOP_POLICY",
    "STOP_RULES",
    "TENSOR_BUCKET_NAMES",
]

RULE_CONFIGURATION_NAME: Final = "STEPWATCH_RULE_CONFIGURATION_NAME"
"""evaluate_rule: name under which this function's rule is configured, e.g. `VanishingGradient`."""

RULE_PARAMETERS: Final = "STEPWATCH_RULE_PARAMETERS"
"""evaluate_rule: JSON object of strings.

For example `{"rule_to_invoke": "VanishingGradient", "threshold": "1e-7"}`.
"""

CUSTOM_RULE_FILE: Final = "STEPWATCH_CUSTOM_RULE_FILE"
"""evaluate_rule: file below the package's `custom_rules` that has the class `rule_to_invoke`.

Not set for built-in rules. A job cannot change it.
"""

CUSTOM_RULE_SHA256: Final = "STEPWATCH_CUSTOM_RULE_SHA256"
"""evaluate_rule: SHA-256 that the file must have; set with it."""

STATE_TABLE_NAME: Final = "STEPWATCH_STATE_TABLE_NAME"
"""All functions: the DynamoDB table of evaluation states and registrations."""

TENSOR_BUCKET_NAMES: Final = "STEPWATCH_TENSOR_BUCKET_NAMES"
"""All functions: comma-separated names of the buckets that this deployment watches."""

EVENT_BUS_NAME: Final = "STEPWATCH_EVENT_BUS_NAME"
"""evaluate_rule: the bus that status events go to; native events only arrive at `default`."""

STOP_POLICY: Final = "STEPWATCH_STOP_POLICY"
"""stop_job: `stop`, or `observe` (judge and tell, never stop)."""

STOP_RULES: Final = "STEPWATCH_STOP_RULES"
"""stop_job: comma-separated names of the deployed rules whose finding stops a job; empty: all."""

STOP_ANY_NATIVE_JOB: Final = "STEPWATCH_STOP_ANY_NATIVE_JOB"
"""stop_job: `true` lets native events and direct invocations stop jobs not registered here."""
