"""Checks whether rules that need validation losses get any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from hook_layer.configuration.save_config import DEFAULT_SAVE_INTERVAL
from rule_runtime.jobs.save_steps import SaveSteps

if TYPE_CHECKING:
    from rule_runtime.configuration.collection_config import CollectionConfig
    from rule_runtime.jobs.rule_needs import RuleNeeds

__all__ = ["EVAL", "too_few", "without_validation"]

EVAL: Final = "eval"
"""Prefix of parameters for validation steps."""
_LONGEST_PASS: Final = 100
"""Usual maximum of steps per validation pass: with a longer interval, most passes save none."""
_FEWEST: Final = 2
"""Fewest validation losses that can show a trend."""


def without_validation(
    rules: Iterable[RuleNeeds], collections: Mapping[str, CollectionConfig], hook: Mapping[str, str]
) -> list[str]:
    """Return warnings about rules that get few or no validation steps.

    Args:
        rules: The needs of each rule.
        collections: The saved collections by name.
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
    """Return in words how many validation steps are saved if these are too few; otherwise "".

    Args:
        steps: Save steps of a collection in mode EVAL.
    """
    interval = steps.interval or DEFAULT_SAVE_INTERVAL
    most = steps.most(interval)
    if most < _FEWEST:
        return f"{most:.0f} step" if most else "no step"
    return f"one of {interval} steps" if interval > _LONGEST_PASS and not steps.listed else ""
