"""Adds the needs of rules to the hook configuration, and reports unmet needs.

Configurations of SageMaker Debugger name collections only for some rules. So the hook's file
contains more than a request to SageMaker Debugger would.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.save_config import DEFAULT_SAVE_INTERVAL
from hook_layer.format.known_collections import KNOWN_COLLECTIONS, meant_collection
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.configuration.hook_config import DebuggerHookConfig
from rule_runtime.configuration.merging import merged, steps_of
from rule_runtime.configuration.sdk_objects import as_hook_config
from rule_runtime.engine.registry import UnknownRuleError, create_rule
from rule_runtime.engine.step_bounds import StepBounds

if TYPE_CHECKING:
    from rule_runtime.configuration.debug_rule import Rule as ConfiguredRule
    from rule_runtime.engine.rule import Rule

__all__ = [
    "RuleNeeds",
    "SaidBy",
    "SaveSteps",
    "collections_said_by",
    "saved_for_rules",
    "without_validation",
]

_MODES: Final = ("train", "eval", "predict", "global")
"""Prefixes of parameters that apply to one mode."""
logger = logging.getLogger("stepwatch")
_REGEX: Final = "include_regex"
_OF_VALIDATION: Final = "eval.save_interval"
_EVAL: Final = "eval"
"""Prefix of parameters for validation steps."""
_LONGEST_PASS: Final = 100
"""Usual maximum of steps per validation pass: with a longer interval, most passes save none."""
_FEWEST: Final = 2
"""Fewest validation losses that can show a trend."""
_HOOK_CONFIG: Final = "hook_config"
"""Source of collections that no rule's configuration names."""
_RAW: Final = "save_raw_tensor"
"""Parameter that sets whether values are stored."""
_TRUE: Final = ("true", "1")
_BUILT_IN: Final = frozenset(
    value for name, value in vars(CollectionKeys).items() if name.isupper()
) | {f"{layer}_{kind}" for layer in ("relu", "sigmoid", "tanh") for kind in ("input", "output")}
_Collections = dict[str, CollectionConfig]
SaidBy = Mapping[str, Sequence[str]]
"""The sources of each collection's configuration, by its name."""


@dataclass(frozen=True)
class SaveSteps:
    """The steps at which a collection is saved in one mode.

    Attributes:
        interval: Interval of saved steps; None if not set.
        start: First step; None if not set.
        end: First step that is not saved; None if not set.
        listed: Steps that are always saved.
    """

    interval: int | None
    start: int | None
    end: int | None
    listed: tuple[int, ...]

    @classmethod
    def of(cls, hook: Mapping[str, str], collection: Mapping[str, str], mode: str) -> SaveSteps:
        """Return the save steps of a collection in a mode; the most specific parameter wins.

        Args:
            hook: Checked parameters of the hook.
            collection: Checked parameters of the collection.
            mode: One of `MODES`.
        """

        def found(key: str) -> str | None:
            for parameters in (collection, hook):
                for name in (f"{mode}.{key}", key):
                    if name in parameters:
                        return parameters[name]
            return None

        def number(key: str) -> int | None:
            value = found(key)
            return None if value is None else int(value)

        return cls(
            number("save_interval"),
            number("start_step"),
            number("end_step"),
            tuple(int(step) for step in (found("save_steps") or "").split(",") if step.strip()),
        )

    @classmethod
    def of_any_mode(cls, hook: Mapping[str, str], collection: Mapping[str, str]) -> bool:
        """Return whether a collection is saved at all, in any mode.

        Args:
            hook: Checked parameters of the hook.
            collection: Checked parameters of the collection.
        """
        return any(cls.of(hook, collection, mode).is_any for mode in _MODES)

    @property
    def is_any(self) -> bool:
        """Whether any step is saved: a listed step, or a multiple of the interval in bounds."""
        return self.is_any_of(0, math.inf)

    def most(self, interval: int) -> float:
        """Return the maximum number of saved steps; infinite without an end.

        Args:
            interval: Interval to use if none is set.
        """
        if self.end is None:
            return math.inf
        first = -(-(self.start or 0) // interval) * interval
        return len(self.listed) + max(0, -(-(self.end - first) // interval))

    def is_any_of(self, first: int, end: float) -> bool:
        """Return whether any step of a range is saved; without an interval, any step may be.

        Args:
            first: First step of the range.
            end: First step after the range.
        """
        if any(first <= step < end for step in self.listed):
            return True
        interval = self.interval or 1  # only the framework's hook knows its default
        begin = max(first, self.start or 0)
        saved = -(-begin // interval) * interval
        return saved < min(end, math.inf if self.end is None else self.end)


@dataclass(frozen=True)
class RuleNeeds:
    """The needs of one rule.

    Attributes:
        name: Its configuration name.
        own: Names of the collections in its configuration.
        collections: The collections that it needs.
        steps: Global steps that it evaluates.
        validation: Interval of the validation steps that it needs, by collection name.
    """

    name: str
    own: frozenset[str]
    collections: tuple[CollectionConfig, ...]
    steps: StepBounds
    validation: Mapping[str, int]

    @classmethod
    def of(
        cls,
        configured: ConfiguredRule,
        rule: Rule,
        of_pack: Sequence[CollectionConfig] | None = None,
    ) -> RuleNeeds:
        """Return the needs of a rule.

        Args:
            configured: The rule in the job's configuration.
            rule: The rule that evaluates.
            of_pack: Saved collections for it as part of a pack; None for its own requirements.
        """
        own = frozenset(each.name for each in configured.collection_configs)
        patterns = {name: {_REGEX: pattern} for name, pattern in KNOWN_COLLECTIONS.items()}
        needed = (
            CollectionConfig(each.name, {**patterns.get(each.name, {}), **each.parameters})
            for each in (rule.requires() if of_pack is None else of_pack)
        )
        validation = {
            each.name: int(each.parameters[_OF_VALIDATION])
            for each in rule.requires()
            if _OF_VALIDATION in each.parameters
        }
        collections = tuple(_renamed(each, configured.collection_configs) for each in needed)
        return cls(configured.name, own, collections, rule.step_bounds, validation)

    @classmethod
    def checked(
        cls, rule: ConfiguredRule, of_pack: Sequence[CollectionConfig] | None
    ) -> RuleNeeds | None:
        """Return the needs of a rule after a check of its parameters; None if unknown here.

        Args:
            rule: The rule in the job's configuration.
            of_pack: See `of`.

        Raises:
            ValueError: The evaluators would refuse its parameters.
        """
        if rule.source:
            return None
        invoked = rule.rule_to_invoke or rule.name
        try:
            return cls.of(rule, create_rule(invoked, rule.rule_parameters), of_pack)
        except UnknownRuleError as error:
            # It may come from a distribution that only the deployment has.
            logger.warning("rule %s: %s here, so nothing of it is checked", rule.name, error)
            return None
        except ValueError as error:
            raise ValueError(f"rule {rule.name!r}: {error}") from error


def _renamed(need: CollectionConfig, own: Sequence[CollectionConfig]) -> CollectionConfig:
    """Return a need, under the name of the rule's own collection of such tensors if there is one.

    The regular expression of a collection such as `conv1.*weight` looks like a name of its tensors.
    """
    pattern = need.parameters.get(_REGEX)
    if pattern is None or any(each.name == need.name for each in own):
        return need
    form = {key: value for key, value in need.parameters.items() if key != _REGEX}
    for each in own:
        names = [text.lstrip("^.*") for text in each.parameters.get(_REGEX, "").split(",")]
        if any(re.search(pattern, name) for name in names if name):
            return CollectionConfig(each.name, form)
    return need


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
            few = _too_few(SaveSteps.of(hook, collections[name].parameters, _EVAL))
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


def _too_few(steps: SaveSteps) -> str:
    """Return in words how many validation steps are saved if these are too few; otherwise "".

    Args:
        steps: Save steps of a collection in mode EVAL.
    """
    interval = steps.interval or DEFAULT_SAVE_INTERVAL
    most = steps.most(interval)
    if most < _FEWEST:
        return f"{most:.0f} step" if most else "no step"
    return f"one of {interval} steps" if interval > _LONGEST_PASS and not steps.listed else ""


@dataclass(frozen=True)
class _SavedCollections:
    """The saved collections of a hook, and the sources of their configuration.

    Attributes:
        collections: The collections by name, with settings filled in by the rules' needs.
        said_by: The sources of each collection's configuration: `hook_config` or rules.
        hook: Parameters of the hook.
    """

    collections: Mapping[str, CollectionConfig]
    said_by: Mapping[str, Sequence[str]]
    hook: Mapping[str, str]

    def unmet(self, rules: Sequence[RuleNeeds]) -> list[str]:
        """Return the unmet needs of rules as warnings.

        Raises:
            ValueError: Nothing that a rule needs is saved.
        """
        lacking = {rule.name: found for rule in rules if (found := self._lacking(rule))}
        idle = {
            rule.name: reason
            for rule in rules
            if rule.name not in lacking and (reason := self._idle(rule))
        }
        others = [rule for rule in rules if rule.name not in (*lacking, *idle)]
        return [
            *_in_one_line(lacking),
            *idle.values(),
            *self._rarely_evaluated(others),
            *without_validation(rules, self.collections, self.hook),
        ]

    def _lacking(self, rule: RuleNeeds) -> str:
        never = [
            each.name
            for each in rule.collections
            if each.name not in self.collections
            or not SaveSteps.of_any_mode(self.hook, self.collections[each.name].parameters)
        ]
        if rule.collections and len(never) == len(rule.collections):
            bounds = "no multiple of save_interval is from start_step to before end_step"
            why = f"the hook saves {', '.join(never)} at no step ({bounds})"
            raise _nothing_to_evaluate([rule.name], why)
        lacking = [f"the hook saves {name} at no step" for name in never]
        blamed: dict[str, None] = {}
        for each in rule.collections:
            said_by = self.said_by.get(each.name, ())
            if not said_by or each.name in never:
                continue
            if found := self._missing(each, is_own=each.name in rule.own):
                has = "has" if len(said_by) == 1 else "have"
                lacking.append(f"{' and '.join(said_by)} {has} {' and '.join(found)}")
                blamed |= dict.fromkeys(name for name in said_by if name != _HOOK_CONFIG)
        remedy = f"; collections_to_save of {', '.join(blamed)} can say otherwise" if blamed else ""
        return "; ".join(lacking) + remedy

    def _missing(self, need: CollectionConfig, *, is_own: bool) -> list[str]:
        """Return what is missing of one collection for a rule.

        Args:
            need: The collection as the rule needs it.
            is_own: Whether the rule's own configuration sets the save steps.
        """
        parameters = self.collections[need.name].parameters
        missing = []
        if need.parameters.get(_RAW) == "True" and not _stores_values(parameters, self.hook):
            missing.append(f"{need.name} saved without values, which are needed ({_RAW}=True)")
        for mode in () if is_own else _MODES:
            wanted = SaveSteps.of({}, need.parameters, mode).interval
            steps = SaveSteps.of(self.hook, parameters, mode)
            is_reported = mode == _EVAL and _too_few(steps)
            if is_reported or wanted is None or (steps.interval or 0) <= wanted:
                continue
            missing.append(
                f"{need.name} saved every {steps.interval} steps in mode {mode.upper()}, but "
                f"every {wanted} are needed"
            )
            break  # the modes differ rarely
        return missing

    def _idle(self, rule: RuleNeeds) -> str:
        """Return a warning if a rule's step range contains no saved step; otherwise ""."""
        # Not an error: a rule's bounds count steps of all modes, a hook's bounds steps of one mode.
        first, end = rule.steps.first, rule.steps.end
        steps = self._steps_of(rule)
        if not steps or any(each.is_any_of(first, end) for each in steps):
            return ""
        return (
            f"the rule {rule.name} probably evaluates no step: the hook saves no step from "
            f"{first} to before {end:g}, its range; change its start_step and end_step, or the "
            "save_interval of its collections_to_save"
        )

    def _rarely_evaluated(self, rules: Sequence[RuleNeeds]) -> list[str]:
        """Return a warning about rules that see only the first step of a short run."""
        rare = {}
        for rule in rules:
            steps = self._steps_of(rule)
            rarest = min((each.interval or 1 for each in steps if not each.listed), default=1)
            if steps and rarest >= DEFAULT_SAVE_INTERVAL:
                rare[f"{rule.name} (every {rarest})"] = bool(rule.own)
        # The hook's steps apply to a collection only if no rule's configuration sets steps.
        where = "them collections_to_save with" if any(rare.values()) else "hook_parameters"
        text = (
            f"these rules save few steps by default: "
            f"{', '.join(rare)}; in a shorter run they see one step. To see more, give {where} "
            "a smaller save_interval"
        )
        return [text] if rare else []

    def _steps_of(self, rule: RuleNeeds) -> list[SaveSteps]:
        names = rule.own.union(each.name for each in rule.collections)
        saved = [each.parameters for name, each in self.collections.items() if name in names]
        modes = [(parameters, mode) for parameters in saved for mode in _MODES]
        return [SaveSteps.of(self.hook, parameters, mode) for parameters, mode in modes]


def _stores_values(collection: Mapping[str, str], hook: Mapping[str, str]) -> bool:
    """Return whether the values of a collection are stored."""
    for parameters in (collection, hook):
        if _RAW in parameters:
            return _is_true(parameters[_RAW])
        if "reductions" in parameters:
            return False
    return True


def _is_true(value: str | None) -> bool:
    """Return whether a hook reads a parameter as true."""
    return str(value).strip().lower() in _TRUE


def _nothing_to_evaluate(rules: Iterable[str], why: str) -> ValueError:
    """Return the error for rules without any saved data."""
    return ValueError(
        f"{', '.join(rules)} cannot be evaluated, because {why}: remove the rules, or "
        "that setting of the hook"
    )


def _in_one_line(lacking: Mapping[str, str]) -> list[str]:
    """Return one line for all rules with the same missing data."""
    rules: dict[str, list[str]] = {}
    for name, reason in lacking.items():
        rules.setdefault(reason, []).append(name)
    return [
        f"the rule {names[0]} lacks data that it needs: {reason}"
        if len(names) == 1
        else f"the rules {', '.join(names)} lack data that they need: {reason}"
        for reason, names in rules.items()
    ]


def collections_said_by(hook_config: object, rules: Iterable[ConfiguredRule]) -> SaidBy:
    """Return which sources configure each collection: `hook_config` or rules.

    Args:
        hook_config: Hook configuration of Stepwatch or the SageMaker SDK; None without one.
        rules: The rules, whose configurations may name collections.
    """
    own = () if hook_config is None else as_hook_config(hook_config).collection_configs or ()
    asked = [(_HOOK_CONFIG, each.name) for each in own]
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
    if rules and _is_true(parameters.get("dry_run")):
        raise _nothing_to_evaluate([rule.name for rule in rules], "dry_run stores nothing")
    found = _with_needs(said, rules, parameters)
    kept = {
        name: each
        for name, each in found.items()
        if name in said or SaveSteps.of_any_mode(parameters, each.parameters)
    }
    who = {name: said_by.get(name, (_HOOK_CONFIG,)) for name in said}
    unmet = _SavedCollections(kept, who, parameters).unmet(rules)
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
