"""Which findings stop a run."""

from __future__ import annotations

from typing import NamedTuple

from rule_runtime.engine.evidence import Evidence

__all__ = ["StopPolicy"]


class StopPolicy(NamedTuple):
    """Which findings stop a run.

    Attributes:
        rules: Names of the rules of which any finding does.
        if_fatal: Names of the rules of which a fatal finding does.
    """

    rules: frozenset[str] = frozenset()
    if_fatal: frozenset[str] = frozenset()

    def stops(self, rule: str, evidence: Evidence | None) -> bool:
        """Return whether a finding of a rule, given by its configured name, stops the run."""
        is_fatal = evidence is not None and bool(evidence.is_fatal)
        return rule in self.rules or (is_fatal and rule in self.if_fatal)
