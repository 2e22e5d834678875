"""For authors of rules: trials made in a test, and the contract that every rule keeps."""

from __future__ import annotations

from rule_runtime.testing.trial_builder import TrialBuilder

__all__ = ["TrialBuilder"]
