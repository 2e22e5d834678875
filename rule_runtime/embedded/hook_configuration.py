"""The configuration of a hook that saves what rules need, in the form of a configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hook_layer.configuration.hook_options import VALUE_LIMITS
from rule_runtime.configuration.named_rules import Rules, collections_for

__all__ = ["hook_configuration"]

_SAVE_INTERVAL: Final = 10
"""Interval of saved steps after the dense start."""


def hook_configuration(
    rules: Rules, save_interval: int | None = None, parameters: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the content of `DebugHookConfig` for rules, with the byte budget.

    Args:
        rules: Name of a pack; or rules and names of built-in rules; or a dict of names and rules.
        save_interval: Interval of saved steps; None for 10 after a dense start.
        parameters: Further parameters of the hook.

    Raises:
        ValueError: A rule or pack does not exist, or needs of rules conflict.
    """
    interval = _SAVE_INTERVAL if save_interval is None else save_interval
    collections = collections_for(rules, interval, begins_densely=save_interval is None)
    return {
        "HookParameters": {
            "save_interval": str(interval),
            **VALUE_LIMITS,
            **(parameters or {}),
        },
        "CollectionConfigurations": [each.to_json() for each in collections],
    }
