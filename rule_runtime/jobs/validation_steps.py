"""Whether rules that compare with losses of validation get any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from hook_layer.save_config import DEFAULT_SAVE_INTERVAL
from rule_runtime.jobs.save_steps import SaveSteps

if TYPE_CHECKING:
    from rule_runtime.configuration.collection_config import CollectionConfig
    from rule_runtime.jobs.rule_needs import RuleNeeds

__all__ = ["EVAL", "too_few", "without_validation"]

EVAL: Final = "eval"
"""Beginning of parameters that count in steps of validation."""
_LONGEST_PASS: Final = 100
"""Steps that a pass of validation seldom exceeds: of a longer interval most passes have no step."""
_FEWEST: Final = 2
"""Losses of validation below which nothing can be said to get worse."""


def without_validation(
    rules: Iterable[RuleNeeds], collections: Mapping[str, CollectionConfig], hook: Mapping[str, str]
) -> list[str]:
    """Return which rules probably cannot judge, for hardly a step of validation is saved for them.

    Args:
        rules: What each rule needs.
        collections: What the hook saves, by the collection's name.
        hook: Parameters of the hook.
    """
    found: dict[str, list[str]] = {}
    remedies: dict[str, int] = {}
    for rule in rules:
        for name, wanted in rule.validation.items():
            if name not in collections:
                continue
            few = too_few(SaveSteps.of(hook, collections[name].parameters, EVAL))
            if few:
                found.setdefault(f"the hook saves {name} at {few}", []).append(rule.name)
                remedies[name] = min(wanted, remedies.get(name, wanted))
    if not found:
        return []
    remedy = "; ".join(f"give {name} eval.save_interval={each}" for name, each in remedies.items())
    message = "; ".join(
        f"{', '.join(names)} probably cannot be evaluated: {why}" for why, names in found.items()
    )
    text = (
        f"{message} of mode EVAL, and they compare with validation; {remedy} (XGBoost has no such "
        "steps, and lacks nothing)"
    )
    return [text]


def too_few(steps: SaveSteps) -> str:
    """Return how many steps of validation are saved, in words, where these are too few; else "".

    Args:
        steps: When a collection is saved in mode EVAL.
    """
    interval = steps.interval or DEFAULT_SAVE_INTERVAL
    most = steps.most(interval)
    if most < _FEWEST:
        return f"{most:.0f} step" if most else "no step"
    return f"one of {interval} steps" if interval > _LONGEST_PASS and not steps.listed else ""
