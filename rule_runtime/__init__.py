"""Reads trials and evaluates rules: `create_trial`, `Rule`, `available_rules`, `evaluate`.

Names are imported lazily, because an evaluator must start fast and does not need the imports of
`create_trial`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hook_layer.lazy_names import lazy_names

if TYPE_CHECKING:
    from rule_runtime.engine.registry import available_rules
    from rule_runtime.engine.rule import Rule
    from rule_runtime.engine.stored_run import evaluate
    from rule_runtime.trial.opening import create_trial
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Rule": "rule_runtime.engine.rule",
            "available_rules": "rule_runtime.engine.registry",
            "create_trial": "rule_runtime.trial.opening",
            "evaluate": "rule_runtime.engine.stored_run",
        },
    )

__all__ = ["Rule", "available_rules", "create_trial", "evaluate"]
