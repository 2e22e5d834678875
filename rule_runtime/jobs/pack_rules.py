"""Resolves packs in the rules of a job, and the saved data of the default deployed pack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hook_layer.configuration.collections import CollectionKeys
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.configuration.debug_rule import Rule
from rule_runtime.configuration.hook_config import DebuggerHookConfig
from rule_runtime.configuration.merging import steps_of
from rule_runtime.configuration.packs import Pack, find_pack
from rule_runtime.configuration.sdk_objects import as_rule
from rule_runtime.jobs.rule_needs import RuleNeeds, SaveSteps, without_validation

__all__ = ["PackRule", "deployed_collections", "unsaved_for_deployed", "with_packs"]

_DEPLOYED: Final = "recommended"
"""Default pack of a deployment."""
_ALWAYS_SAVED: Final = frozenset({CollectionKeys.LOSSES})


@dataclass(frozen=True)
class PackRule:
    """Details of a rule that came from a pack.

    Attributes:
        pack: Name of the pack.
        collections: The collections that it needs, with the pack's save steps and form.
    """

    pack: str
    collections: tuple[CollectionConfig, ...]


def with_packs(
    rules: object, *, says_steps: bool = False
) -> tuple[tuple[Rule, ...], Mapping[str, PackRule]]:
    """Return the rules, with each pack replaced by its rules.

    Args:
        rules: Rules of Stepwatch or the SageMaker SDK, and packs or their names; also a single pack
            or name. A listed rule replaces a pack's rule of the same name.
        says_steps: Whether the hook's parameters set the saved steps; then no pack has a dense
            start.

    Returns:
        The rules, and details of the rules that came from a pack, by name.

    Raises:
        TypeError: An entry is neither a rule nor a pack.
        ValueError: There is no such pack.
    """
    alone = (rules,) if isinstance(rules, (str, Pack)) else rules
    if isinstance(alone, Mapping) or not isinstance(alone, Iterable):
        raise TypeError(
            f"rules is {rules!r:.80}, but must be a list of rules, or a pack: put it into a list"
        )
    listed = [_pack(each) if isinstance(each, (str, Pack)) else as_rule(each) for each in alone]
    own = {each.name for each in listed if isinstance(each, Rule)}
    found: list[Rule] = []
    of_packs: dict[str, PackRule] = {}
    for each in listed:
        if isinstance(each, Rule):
            found.append(each)
            continue
        needs = _needs(replace(each, begins_densely=each.begins_densely and not says_steps))
        for name in each.parameters.keys() - own:
            of_packs[name] = PackRule(each.name, needs[name])
        found += [_configured(each, name) for name in each.parameters if name not in own]
    return tuple(found), of_packs


def deployed_collections() -> tuple[CollectionConfig, ...]:
    """Return the collections that the default deployed rules need."""
    return find_pack(_DEPLOYED).collections()


def unsaved_for_deployed(hook: DebuggerHookConfig) -> tuple[str, ...]:
    """Return warnings about default deployed rules that lack data."""
    saved = _saved(hook)
    if CollectionKeys.ALL in saved:
        return ()
    needs = {
        name: {each.name for each in collections}
        for name, collections in _needs(find_pack(_DEPLOYED)).items()
    }
    lacking = [name for name, wanted in needs.items() if wanted - saved]
    missing = sorted(set().union(*needs.values()) - saved)
    text = (
        f"{len(lacking)} of the {len(needs)} rules of the pack {_DEPLOYED}, the default "
        "of deployments, lack tensors: hook_config "
        f"does not save {', '.join(missing)}. Give rules={_DEPLOYED!r}, which adds them, or add "
        f"find_pack({_DEPLOYED!r}).collections() of rule_runtime.configuration.packs to its "
        "collection_configs; or rules=[...], if other rules evaluate the job"
    )
    return (text,) if lacking else _unvalidated(hook)


def _unvalidated(hook: DebuggerHookConfig) -> tuple[str, ...]:
    """Return a warning about deployed rules that get few validation losses."""
    pack = find_pack(_DEPLOYED)
    needs = [RuleNeeds.of(_configured(pack, name), rule) for name, rule in pack.rules().items()]
    named = {each.name: each for each in hook.collection_configs or ()}
    always = {name: CollectionConfig(name) for name in _ALWAYS_SAVED}
    return tuple(without_validation(needs, {**always, **named}, hook.hook_parameters or {}))


def _pack(given: str | Pack) -> Pack:
    if isinstance(given, Pack):
        return given
    try:
        return find_pack(given)
    except ValueError as error:
        raise ValueError(
            f"rules: {error} (a text names a pack; make a rule by Rule.sagemaker or Rule.custom)"
        ) from None


def _needs(pack: Pack) -> dict[str, tuple[CollectionConfig, ...]]:
    rules = pack.rules()
    steps = {each.name: steps_of(each.parameters) for each in pack.collections_for(rules.values())}
    return {
        name: tuple(_at(each, steps[each.name]) for each in pack.collections_for([rule]))
        for name, rule in rules.items()
    }


def _at(collection: CollectionConfig, steps: Mapping[str, str]) -> CollectionConfig:
    """Return a collection in a rule's own form, at the save steps of the pack."""
    own = steps_of(collection.parameters)
    form = {key: value for key, value in collection.parameters.items() if key not in own}
    return CollectionConfig(collection.name, {**form, **steps})


def _configured(pack: Pack, name: str) -> Rule:
    parameters = {"rule_to_invoke": name, **pack.parameters[name]}
    return Rule.from_json({"RuleConfigurationName": name, "RuleParameters": parameters})


def _saved(hook: DebuggerHookConfig) -> frozenset[str]:
    parameters = hook.hook_parameters or {}
    named = frozenset(
        each.name
        for each in hook.collection_configs or ()
        if SaveSteps.of_any_mode(parameters, each.parameters)
    )
    return named | _ALWAYS_SAVED
