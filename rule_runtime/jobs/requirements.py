"""What rules need saved and nobody configured: added to what the hook saves, or told.

The configurations of the original name a collection for some rules, and none for many. So the
file that the hook reads says more than a request of the original's would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hook_layer.collections import CollectionKeys
from hook_layer.errors import misspelled
from hook_layer.save_config import DEFAULT_SAVE_INTERVAL
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.configuration.hook_config import DebuggerHookConfig
from rule_runtime.configuration.merging import merged, steps_of
from rule_runtime.configuration.packs import PATTERNS
from rule_runtime.evaluation.step_bounds import BoundedRule, StepBounds
from rule_runtime.jobs.save_steps import MODES, SaveSteps

if TYPE_CHECKING:
    from rule_runtime.configuration.debug_rule import Rule as ConfiguredRule
    from rule_runtime.evaluation.rule import Rule

__all__ = ["RuleNeeds", "saved_for_rules"]

_BUILT_IN: Final = frozenset(
    value for name, value in vars(CollectionKeys).items() if name.isupper()
) | {f"{layer}_{kind}" for layer in ("relu", "sigmoid", "tanh") for kind in ("input", "output")}
_TRUE: Final = ("true", "1")
_RAW: Final = "save_raw_tensor"
_REGEX: Final = "include_regex"

_Collections = dict[str, CollectionConfig]


@dataclass(frozen=True)
class RuleNeeds:
    """What one rule needs.

    Attributes:
        name: Its configuration name.
        own: Names of the collections that its configuration asks for.
        collections: What it needs to judge.
        steps: Global steps that it judges.
    """

    name: str
    own: frozenset[str]
    collections: tuple[CollectionConfig, ...]
    steps: StepBounds

    @classmethod
    def of(cls, configured: ConfiguredRule, rule: Rule) -> RuleNeeds:
        """Return the needs of a rule.

        Args:
            configured: The rule as the job asks for it.
            rule: The rule that judges.
        """
        own = frozenset(each.name for each in configured.collection_configs)
        patterns = {name: {_REGEX: pattern} for name, pattern in PATTERNS.items()}
        needed = (
            CollectionConfig(each.name, {**patterns.get(each.name, {}), **each.parameters})
            for each in rule.requires()
        )
        steps = rule.steps if isinstance(rule, BoundedRule) else StepBounds()
        return cls(configured.name, own, tuple(needed), steps)


def saved_for_rules(
    hook: DebuggerHookConfig, rules: Sequence[RuleNeeds]
) -> tuple[DebuggerHookConfig, tuple[str, ...]]:
    """Return what the hook saves for the rules, and what they cannot have by it.

    A collection that nobody names is added as the rules need it. One that somebody names is saved
    as they say; what they do not say of it is as the rules need it.

    Args:
        hook: What the hook saves, with what the configurations of the rules name.
        rules: What each rule needs, in the order of the rules.

    Raises:
        ValueError: The hook saves nothing of what a rule needs; or rules need what cannot be had
            together.
    """
    parameters = hook.hook_parameters or {}
    said = {each.name: each for each in hook.collection_configs or ()}
    if rules and _is_true(parameters.get("dry_run")):
        raise _nothing_to_judge([rule.name for rule in rules], "dry_run stores nothing")
    found = _with_needs(said, rules, parameters)
    kept = {
        name: each
        for name, each in found.items()
        if name in said or SaveSteps.of_any_mode(parameters, each.parameters)
    }
    losses = _losses(rules, said, kept, parameters)
    idle = _idle([rule for rule in rules if rule.name not in losses], kept, parameters)
    others = [rule for rule in rules if rule.name not in (*losses, *idle)]
    warnings = [
        *_unlikely_names(said),
        *losses.values(),
        *idle.values(),
        *_rarely_judged(others, kept, parameters),
    ]
    collections = None if hook.collection_configs is None and not kept else kept.values()
    saved = DebuggerHookConfig(
        hook.s3_output_path, hook.container_local_output_path, hook.hook_parameters, collections
    )
    return saved, tuple(warnings)


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
    """Return a collection that only rules ask for, at least as often as the hook saves others."""
    (joined,) = merged(asked)
    if _is_bounded(joined) or not steps_of(joined.parameters):
        return joined
    (often,) = merged((joined, CollectionConfig(joined.name, _often(hook))))
    return often


def _completed(
    said: CollectionConfig, asked: Sequence[CollectionConfig], hook: Mapping[str, str]
) -> CollectionConfig:
    """Return a collection with what rules need where whoever named it said nothing."""
    (need,) = merged(asked)
    parameters = dict(said.parameters)
    says_form = _RAW in parameters or "reductions" in parameters
    if need.parameters.get(_RAW) == "True" and not (says_form or _stores_values({}, hook)):
        parameters[_RAW] = "True"
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


def _losses(
    rules: Sequence[RuleNeeds],
    said: Mapping[str, CollectionConfig],
    kept: Mapping[str, CollectionConfig],
    hook: Mapping[str, str],
) -> dict[str, str]:
    """Return what each rule does not get of what it needs, by the rule's name.

    Raises:
        ValueError: One gets nothing.
    """
    warnings = {}
    for rule in rules:
        never = [
            each.name
            for each in rule.collections
            if each.name not in kept or not SaveSteps.of_any_mode(hook, kept[each.name].parameters)
        ]
        if rule.collections and len(never) == len(rule.collections):
            bounds = "no multiple of save_interval lies from start_step to before end_step"
            why = f"the hook saves {', '.join(never)} at no step ({bounds})"
            raise _nothing_to_judge([rule.name], why)
        missing = [f"{name} at no step" for name in never]
        for each in rule.collections:
            if each.name in said and each.name not in never:
                missing += _missing(each, kept[each.name], hook, is_own=each.name in rule.own)
        if missing:
            warnings[rule.name] = (
                f"the rule {rule.name} judges by less than it asks for, because the hook is "
                f"configured to save {'; '.join(missing)}"
            )
    return warnings


def _idle(
    rules: Sequence[RuleNeeds], kept: Mapping[str, CollectionConfig], hook: Mapping[str, str]
) -> dict[str, str]:
    """Return which rules probably judge no step that is saved, by the rule's name."""
    warnings = {}  # no errors: a rule's bounds count the steps of all modes, a hook's those of one
    for rule in rules:
        first, end = rule.steps.first, rule.steps.end
        steps = _steps_of_rule(rule, kept, hook)
        if steps and not any(each.is_any_of(first, end) for each in steps):
            warnings[rule.name] = (
                f"the rule {rule.name} probably judges nothing: of steps from {first} to before "
                f"{end:g}, which it judges only, the hook saves none; change its start_step and "
                "end_step, or the save_interval of its collections_to_save"
            )
    return warnings


def _rarely_judged(
    rules: Sequence[RuleNeeds], kept: Mapping[str, CollectionConfig], hook: Mapping[str, str]
) -> list[str]:
    """Return which rules a short training would show its first step only."""
    told = []
    for rule in rules:
        steps = _steps_of_rule(rule, kept, hook)
        rarest = min((each.interval or 1 for each in steps if not each.listed), default=1)
        if steps and rarest >= DEFAULT_SAVE_INTERVAL:
            told.append(f"{rule.name} (every {rarest})")
    text = (
        f"what these rules judge is saved at few steps, as they ask for by default: "
        f"{', '.join(told)}; of a shorter training they see one step. For more give them "
        "collections_to_save with a smaller save_interval"
    )
    return [text] if told else []


def _steps_of_rule(
    rule: RuleNeeds, kept: Mapping[str, CollectionConfig], hook: Mapping[str, str]
) -> list[SaveSteps]:
    saved = [kept[each.name].parameters for each in rule.collections if each.name in kept]
    return [SaveSteps.of(hook, parameters, mode) for parameters in saved for mode in MODES]


def _missing(
    need: CollectionConfig, given: CollectionConfig, hook: Mapping[str, str], *, is_own: bool
) -> list[str]:
    """Return what a rule misses of one collection.

    Args:
        need: The collection as the rule needs it.
        given: The collection as it is saved.
        hook: Parameters of the hook.
        is_own: Whether the rule's own configuration says when it is saved.
    """
    missing = []
    if need.parameters.get(_RAW) == "True" and not _stores_values(given.parameters, hook):
        missing.append(f"of {need.name} no values, which it needs (save_raw_tensor=True)")
    for mode in () if is_own else MODES:
        wanted = SaveSteps.of({}, need.parameters, mode).interval
        steps = SaveSteps.of(hook, given.parameters, mode)
        if wanted is None or (steps.interval or 0) <= wanted:
            continue
        missing.append(
            f"{need.name} every {steps.interval} steps in mode {mode.upper()}, where it asks for "
            f"every {wanted}"
        )
        break  # the modes differ rarely
    return missing


def _stores_values(collection: Mapping[str, str], hook: Mapping[str, str]) -> bool:
    for parameters in (collection, hook):
        if _RAW in parameters:
            return _is_true(parameters[_RAW])
        if "reductions" in parameters:
            return False
    return True


def _is_true(value: str | None) -> bool:
    return str(value).strip().lower() in _TRUE


def _unlikely_names(said: Mapping[str, CollectionConfig]) -> list[str]:
    warnings = []
    for name, collection in said.items():
        meant = None if _REGEX in collection.parameters else misspelled(name, _BUILT_IN)
        if meant is not None:
            warnings.append(
                f"the collection {name!r} is none that hooks fill, and has no include_regex: did "
                f"you mean {meant!r}? Otherwise the training script has to fill it"
            )
    return warnings


def _nothing_to_judge(rules: Sequence[str], why: str) -> ValueError:
    return ValueError(
        f"{', '.join(rules)} would have nothing to judge, because {why}: leave the rules out, or "
        "that setting of the hook"
    )
