"""The rules that a job asks for, as they can be judged, and what is wrong with how it does.

The files say whatever their writer likes: one bad entry must not keep the other rules from judging.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["AskedRule", "asked_rules"]

_MAX_NAME: Final = 256
_TEXTS: Final = ("source_s3_uri", "rule_to_invoke")


@dataclass(frozen=True)
class AskedRule:
    """A rule that a job asks for.

    Attributes:
        parameters: Its parameters; none where they cannot be used.
        problem: Why it cannot judge; empty if its entry is well formed.
    """

    parameters: Mapping[str, Any]
    problem: str = ""

    @property
    def source(self) -> str | None:
        """File of a custom rule; None for a rule that is installed."""
        source: str | None = self.parameters.get("source_s3_uri")
        return source

    def invoked(self, name: str) -> str:
        """Return the name of the class that judges.

        Args:
            name: The rule's configuration name, which is that of the class unless it is told.
        """
        return str(self.parameters.get("rule_to_invoke") or name)


def asked_rules(entries: Iterable[object]) -> tuple[dict[str, AskedRule], tuple[str, ...]]:
    """Return the rules that a job asks for.

    Args:
        entries: `DebugRuleConfigurations`, unchecked.

    Returns:
        Each rule by its configuration name, in the order of the entries; and why entries are left
        out, which have no name that a verdict could be stored by.
    """
    rules: dict[str, AskedRule] = {}
    problems = []
    for number, entry in enumerate(entries, start=1):
        name = entry.get("RuleConfigurationName") if isinstance(entry, Mapping) else None
        if not isinstance(entry, Mapping) or not _is_name(name):
            problems.append(
                f"entry {number} of DebugRuleConfigurations is left out, for its "
                f"RuleConfigurationName is {name!r:.60}: give it 1 to {_MAX_NAME} printable "
                "characters"
            )
            continue
        rules[str(name)] = _asked(entry.get("RuleParameters") or {})
    return rules, tuple(problems)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable()


def _asked(parameters: object) -> AskedRule:
    if not isinstance(parameters, Mapping):
        return AskedRule({}, f"RuleParameters are {parameters!r:.60}, but must be an object")
    for key in _TEXTS:
        value = parameters.get(key)
        if value is not None and not isinstance(value, str):
            return AskedRule({}, f"{key} in RuleParameters is {value!r:.60}, but must be a text")
    return AskedRule(parameters)
