"""What tests of your own rules need: trials made in memory, and the contract of every rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hook_layer.lazy_names import lazy_names

__all__ = ["RuleContract", "TrialBuilder"]

if TYPE_CHECKING:
    from rule_runtime.testing.rule_contract import RuleContract
    from rule_runtime.testing.trial_builder import TrialBuilder
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "RuleContract": "rule_runtime.testing.rule_contract",
            "TrialBuilder": "rule_runtime.testing.trial_builder",
        },
    )
