"""Reports the needs of a job's rules that the hook configuration does not meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hook_layer.configuration.save_config import DEFAULT_SAVE_INTERVAL
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.jobs.save_steps import MODES, SaveSteps
from rule_runtime.jobs.validation_steps import EVAL, too_few, without_validation

if TYPE_CHECKING:
    from rule_runtime.jobs.rule_needs import RuleNeeds

__all__ = [
    "HOOK_CONFIG",
    "RAW",
    "SavedCollections",
    "is_true",
    "nothing_to_evaluate",
    "stores_values",
]

HOOK_CONFIG: Final = "hook_config"
"""Source of collections that no rule's configuration names."""
RAW: Final = "save_raw_tensor"
"""Parameter that sets whether values are stored."""

_TRUE: Final = ("true", "1")


@dataclass(frozen=True)
class SavedCollections:
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
            raise nothing_to_evaluate([rule.name], why)
        lacking = [f"the hook saves {name} at no step" for name in never]
        blamed: dict[str, None] = {}
        for each in rule.collections:
            said_by = self.said_by.get(each.name, ())
            if not said_by or each.name in never:
                continue
            if found := self._missing(each, is_own=each.name in rule.own):
                has = "has" if len(said_by) == 1 else "have"
                lacking.append(f"{' and '.join(said_by)} {has} {' and '.join(found)}")
                blamed |= dict.fromkeys(name for name in said_by if name != HOOK_CONFIG)
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
        if need.parameters.get(RAW) == "True" and not stores_values(parameters, self.hook):
            missing.append(f"{need.name} saved without values, which are needed ({RAW}=True)")
        for mode in () if is_own else MODES:
            wanted = SaveSteps.of({}, need.parameters, mode).interval
            steps = SaveSteps.of(self.hook, parameters, mode)
            is_reported = mode == EVAL and too_few(steps)
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
        return [SaveSteps.of(self.hook, parameters, mode) for parameters in saved for mode in MODES]


def stores_values(collection: Mapping[str, str], hook: Mapping[str, str]) -> bool:
    """Return whether the values of a collection are stored."""
    for parameters in (collection, hook):
        if RAW in parameters:
            return is_true(parameters[RAW])
        if "reductions" in parameters:
            return False
    return True


def is_true(value: str | None) -> bool:
    """Return whether a hook reads a parameter as true."""
    return str(value).strip().lower() in _TRUE


def nothing_to_evaluate(rules: Iterable[str], why: str) -> ValueError:
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
