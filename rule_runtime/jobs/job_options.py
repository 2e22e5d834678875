"""The rules, hook configuration and actions that `prepare` was given, with packs resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rule_runtime.configuration.actions import StopTraining, as_actions, listed_actions
from rule_runtime.configuration.hook_config import DebuggerHookConfig
from rule_runtime.configuration.merging import steps_of
from rule_runtime.configuration.sdk_objects import as_hook_config
from rule_runtime.jobs.pack_rules import PackRule, deployed_collections, with_packs
from rule_runtime.jobs.rule_needs import RuleNeeds

if TYPE_CHECKING:
    from rule_runtime.configuration.collection_config import CollectionConfig
    from rule_runtime.configuration.debug_rule import Rule
    from rule_runtime.configuration.packs import Pack

__all__ = ["JobOptions"]


@dataclass(frozen=True)
class JobOptions:
    """The debugging options of a job.

    Attributes:
        rules: The rules; each pack is replaced by its rules.
        of_packs: Details of the rules that came from a pack, by name.
        hook_config: Hook configuration of Stepwatch or the SageMaker SDK.
        actions: Actions on a finding, for the whole job.
        is_for_deployed: Whether no rules are given, so that the deployed ones apply.
    """

    rules: tuple[Rule, ...]
    of_packs: Mapping[str, PackRule]
    hook_config: object
    actions: object
    is_for_deployed: bool

    @classmethod
    def of(
        cls, rules: Iterable[object] | str | Pack | None, hook_config: object, actions: object
    ) -> JobOptions:
        """Return the options from the arguments of `prepare`.

        Raises:
            TypeError: A rule is neither a rule nor a pack.
            ValueError: There is no such pack.
        """
        listed, of_packs = with_packs(
            () if rules is None else rules, says_steps=_says_steps(hook_config)
        )
        if rules is None and hook_config is None:
            hook_config = DebuggerHookConfig(collection_configs=deployed_collections())
        return cls(listed, of_packs, hook_config, actions, rules is None)

    @property
    def requests_stop(self) -> bool:
        """Whether any action, of a rule or the whole job, stops the job."""
        return any(
            isinstance(action, StopTraining)
            for given in (self.actions, *(rule.actions for rule in self.rules))
            for action in listed_actions(as_actions(given))
        )

    def needs(self, rules: Iterable[Rule]) -> list[RuleNeeds]:
        """Return the saved data that rules need, for rules with checked parameters.

        Raises:
            ValueError: The evaluators would refuse a rule's parameters.
        """
        checked = (RuleNeeds.checked(rule, self._saved_for(rule)) for rule in rules)
        return [found for found in checked if found]

    def _saved_for(self, rule: Rule) -> tuple[CollectionConfig, ...] | None:
        of_pack = self.of_packs.get(rule.name)
        return None if of_pack is None else of_pack.collections


def _says_steps(hook_config: object) -> bool:
    """Return whether the parameters of a hook set the saved steps."""
    hook = as_hook_config(hook_config) if hook_config else DebuggerHookConfig()
    return bool(steps_of(hook.hook_parameters or {}))
