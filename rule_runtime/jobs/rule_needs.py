"""The saved data that a rule needs to evaluate a job."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hook_layer.format.known_collections import KNOWN_COLLECTIONS
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.registry import UnknownRuleError, create_rule
from rule_runtime.engine.step_bounds import StepBounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rule_runtime.configuration.debug_rule import Rule as ConfiguredRule
    from rule_runtime.engine.rule import Rule

__all__ = ["RuleNeeds"]

logger = logging.getLogger("stepwatch")

_REGEX: Final = "include_regex"
_OF_VALIDATION: Final = "eval.save_interval"


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
