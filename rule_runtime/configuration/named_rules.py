"""Resolves rules and packs named in a script, and the collections that they need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.configuration.packs import find_pack
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.rule import Rule

__all__ = ["Rules", "collections_for", "named_rules"]

Rules: TypeAlias = "str | Iterable[Rule | str] | Mapping[str, Rule]"
"""Name of a pack; or rules and names of built-in rules; or a dict of names and rules."""


def collections_for(
    rules: Rules = "recommended",
    save_interval: int | None = None,
    *,
    begins_densely: bool | None = None,
) -> tuple[CollectionConfig, ...]:
    """Return the collections that a hook must save for rules.

    ```python
    hook = Hook("runs/my-job", include_collections=stepwatch.collections_for("recommended"))
    ```

    Args:
        rules: Name of a pack; or rules and names of built-in rules; or a dict of names and rules.
        save_interval: Interval of saved steps. Default: the pack's, which is 10 for `recommended`
            and for single rules.
        begins_densely: Whether to save also every training step up to 10 and every second one up to
            50. Default: as in the pack, if `save_interval` is not given, and only for collections
            without values, because a script's hook has no byte budget by default.

    Raises:
        ValueError: A rule or pack does not exist, no rule is given, or needs of rules conflict.
        TypeError: An entry is not a rule.
    """
    pack = find_pack(rules if isinstance(rules, str) else "recommended")
    if save_interval is not None:
        pack = pack.with_interval(save_interval)
    if begins_densely is not None:
        pack = replace(pack, begins_densely=begins_densely)
    chosen = named_rules(rules).values()
    found = pack.collections_for(chosen)
    if begins_densely is not None:
        return found
    later = replace(pack, begins_densely=False).collections_for(chosen)
    return tuple(
        even if even.parameters.get("save_raw_tensor") == "True" else dense
        for even, dense in zip(later, found, strict=True)
    )


def named_rules(rules: Rules) -> Mapping[str, Rule]:
    """Return rules by displayed name.

    Raises:
        ValueError: A rule or pack does not exist, no rule is given, or two have the same name.
        TypeError: An entry is not a rule.
    """
    if isinstance(rules, str):
        return find_pack(rules).rules()
    if isinstance(rules, Mapping):
        given = [(name, _as_rule(rule)) for name, rule in rules.items()]
    else:
        made = [_as_rule(rule) for rule in rules]
        given = [(type(rule).__name__, rule) for rule in made]
    if not given:
        raise ValueError("rules is empty: give a rule, or 'recommended'")
    named = dict(given)
    if len(named) < len(given):
        names = ", ".join(name for name, _ in given)
        raise ValueError(f"two rules have the same name ({names}): give a dict of names and rules")
    return named


def _as_rule(rule: object) -> Rule:
    if isinstance(rule, str):
        return create_rule(rule)
    if isinstance(rule, Rule):
        return rule
    call = f"; write {rule.__name__}()" if isinstance(rule, type) else ""
    raise TypeError(f"{rule!r} is not a rule{call}")
