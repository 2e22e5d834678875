"""The configuration of a hook that saves what rules need, in the form of a configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hook_layer.configuration.hook_options import VALUE_LIMITS
from hook_layer.format.known_collections import SCALAR
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.configuration.named_rules import Rules, collections_for

__all__ = ["hook_configuration"]

_SAVE_INTERVAL: Final = 10
"""Interval of saved steps after the dense start."""
_NO_MEMBERS: Final[Mapping[str, Sequence[str]]] = {}


def hook_configuration(
    rules: Rules,
    save_interval: int | None = None,
    parameters: Mapping[str, str] | None = None,
    members: Mapping[str, Sequence[str]] = _NO_MEMBERS,
) -> dict[str, Any]:
    """Return the content of `DebugHookConfig` for rules, with the byte budget.

    Args:
        rules: Name of a pack; or rules and names of built-in rules; or a dict of names and rules.
        save_interval: Interval of saved steps; None for 10 after a dense start.
        parameters: Further parameters of the hook.
        members: Names of logged scalars by the collection that they belong to as well.

    Raises:
        ValueError: A rule or pack does not exist, or needs of rules conflict.
    """
    interval = _SAVE_INTERVAL if save_interval is None else save_interval
    collections = collections_for(rules, interval, begins_densely=save_interval is None)
    named = {each.name: dict(each.parameters) for each in collections}
    for name, scalars in members.items():
        if scalars:
            given = named.setdefault(name, {})
            patterns = [_pattern(scalar) for scalar in scalars]
            given["include_regex"] = ",".join(filter(None, [given.get("include_regex"), *patterns]))
    return {
        "HookParameters": {
            "save_interval": str(interval),
            **VALUE_LIMITS,
            **(parameters or {}),
        },
        "CollectionConfigurations": [
            CollectionConfig(name, given).to_json() for name, given in named.items()
        ],
    }


def _pattern(scalar: str) -> str:
    """Return the pattern of a logged scalar; commas separate patterns."""
    return f"^{SCALAR}{re.escape(scalar)}$".replace(",", r"\x2c")
