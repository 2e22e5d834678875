"""Reading trials and judging them: `create_trial`, `Rule`, `available_rules`."""

from __future__ import annotations

from rule_runtime.evaluation.registry import available_rules
from rule_runtime.evaluation.rule import Rule
from rule_runtime.trial.opening import create_trial

__all__ = ["Rule", "available_rules", "create_trial"]
