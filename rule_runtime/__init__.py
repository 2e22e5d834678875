"""Reading trials and judging them: `create_trial`, `Rule`, `available_rules`.

What a name needs is imported when it is first asked for: an evaluator, whose start is imports,
needs nothing of what `create_trial` does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rule_runtime.evaluation.registry import available_rules
    from rule_runtime.evaluation.rule import Rule
    from rule_runtime.trial.opening import create_trial

__all__ = ["Rule", "available_rules", "create_trial"]

_HOMES: Final = {
    "Rule": "rule_runtime.evaluation.rule",
    "available_rules": "rule_runtime.evaluation.registry",
    "create_trial": "rule_runtime.trial.opening",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
