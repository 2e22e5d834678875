"""Adds the needs of rules to the hook configuration, and reports unmet needs.

Configurations of SageMaker Debugger name collections only for some rules. So the hook's file
contains more than a request to SageMaker Debugger would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from hook_layer.configuration.collections import CollectionKeys
from hook_layer.format.known_collections import meant_collection
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.configuration.hook_config import DebuggerHookConfig
from rule_runtime.configuration.merging import merged, steps_of
from rule_runtime.configuration.sdk_objects import as_hook_config
from rule_runtime.jobs.save_steps import SaveSteps
from rule_runtime.jobs.unmet_needs import (
    HOOK_CONFIG,
    RAW,
    SavedCollections,
    is_true,
    nothing_to_evaluate,
    stores_values,
)

if TYPE_CHECKING:
    from rule_runtime.configuration.debug_rule import Rule
    from rule_runtime.jobs.rule_needs import RuleNeeds

__all__ = ["SaidBy", "collections_said_by", "saved_for_rules"]

_BUILT_IN: Final = frozenset(
    value for name, value in vars(CollectionKeys).items() if name.isupper()
) | {f"{layer}_{kind}" for layer in ("relu", "sigmoid", "tanh") for kind in ("input", "output")}
_REGEX: Final = "include_regex"

_Collections = dict[str, CollectionConfig]
SaidBy = Mapping[str, Sequence[str]]
"""The sources of each collection's configuration, by its name."""


def collections_said_by(hook_config: object, rules: Iterable[Rule]) -> SaidBy:
    """Return which sources configure each collection: `hook_config` or rules.

    Args:
        hook_config: Hook configuration of Stepwatch or the SageMaker SDK; None without one.
        rules: The rules, whose configurations may name collections.
    """
    own = () if hook_config is None else as_hook_config(hook_config).collection_configs or ()
    asked = [(HOOK_CONFIG, each.name) for each in own]
    asked += [(rule.name, each.name) for rule in rules for each in rule.collection_configs]
    found: dict[str, list[str]] = {}
    for who, name in dict.fromkeys(asked):
        found.setdefault(name, []).append(who)
    return found


def saved_for_rules(
    hook: DebuggerHookConfig,
    rules: Sequence[RuleNeeds],
    said_by: SaidBy = MappingProxyType({}),
) -> tuple[DebuggerHookConfig, tuple[str, ...]]:
    """Return the hook configuration with the rules' needs, and the needs that it does not meet.

    Collections without a configuration are added as the rules need them. Configured collections
    keep their settings; the rules' needs fill in missing settings.

    Args:
        hook: What the hook saves, including collections from the rules' configurations.
        rules: The needs of each rule, in the order of the rules.
        said_by: The sources of each collection's configuration; default `hook_config`.

    Raises:
        ValueError: The hook saves nothing that a rule needs, or needs of rules conflict.
    """
    parameters = hook.hook_parameters or {}
    said = {each.name: each for each in hook.collection_configs or ()}
    if rules and is_true(parameters.get("dry_run")):
        raise nothing_to_evaluate([rule.name for rule in rules], "dry_run stores nothing")
    found = _with_needs(said, rules, parameters)
    kept = {
        name: each
        for name, each in found.items()
        if name in said or SaveSteps.of_any_mode(parameters, each.parameters)
    }
    who = {name: said_by.get(name, (HOOK_CONFIG,)) for name in said}
    unmet = SavedCollections(kept, who, parameters).unmet(rules)
    collections = None if hook.collection_configs is None and not kept else kept.values()
    saved = DebuggerHookConfig(
        hook.s3_output_path, hook.container_local_output_path, hook.hook_parameters, collections
    )
    return saved, (*_unlikely_names(said), *unmet)


def _with_needs(
    said: Mapping[str, CollectionConfig], rules: Sequence[RuleNeeds], hook: Mapping[str, str]
) -> _Collections:
    needs: dict[str, list[CollectionConfig]] = {}
    for rule in rules:
        for each in rule.collections:
            needs.setdefault(each.name, []).append(each)
    found = dict(said)
    for name, asked in needs.items():
        found[name] = _completed(said[name], asked, hook) if name in said else _added(asked, hook)
    return found


def _added(asked: Sequence[CollectionConfig], hook: Mapping[str, str]) -> CollectionConfig:
    """Return a collection that only rules need, saved at least as often as others."""
    (joined,) = merged(asked)
    if _is_bounded(joined) or not steps_of(joined.parameters):
        return joined
    (often,) = merged((joined, CollectionConfig(joined.name, _often(hook))))
    return often


def _completed(
    said: CollectionConfig, asked: Sequence[CollectionConfig], hook: Mapping[str, str]
) -> CollectionConfig:
    """Return a collection with its missing settings filled in by the rules' needs."""
    (need,) = merged(asked)
    parameters = dict(said.parameters)
    says_form = RAW in parameters or "reductions" in parameters
    if need.parameters.get(RAW) == "True" and not (says_form or stores_values({}, hook)):
        parameters[RAW] = "True"
    has_steps = steps_of(parameters) or _is_bounded(need)
    if not has_steps and (steps := steps_of(need.parameters)):
        given = CollectionConfig(said.name, _often(hook))
        (joined,) = merged((given, CollectionConfig(said.name, steps)))
        parameters |= joined.parameters
    if said.name not in _BUILT_IN and _REGEX in need.parameters:
        parameters.setdefault(_REGEX, need.parameters[_REGEX])
    return CollectionConfig(said.name, parameters)


def _often(hook: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in hook.items() if key.endswith("save_interval")}


def _is_bounded(collection: CollectionConfig) -> bool:
    return any(key.endswith(("start_step", "end_step")) for key in collection.parameters)


def _unlikely_names(said: Mapping[str, CollectionConfig]) -> list[str]:
    warnings = []
    for name, collection in said.items():
        meant = None if _REGEX in collection.parameters else meant_collection(name)
        if meant is not None:
            warnings.append(
                f"no hook fills the collection {name!r}, and it has no include_regex: did you mean "
                f"{meant!r}? Otherwise the training script must fill it"
            )
    return warnings
