"""Tools for authors of rules: trials for tests, and the contract of every rule."""

from __future__ import annotations

from rule_runtime.testing.trial_builder import TrialBuilder

__all__ = ["TrialBuilder"]
