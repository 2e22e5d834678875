"""Parses the rules that a job configures, and the problems of its configuration.

`job.json` is untrusted: an invalid entry must not prevent other rules from evaluation. A rule's
name becomes part of keys and folder names, so entries with an invalid name are skipped and
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["PACK", "PROBLEMS", "RequestedRule", "is_rule_name", "parse_rule_requests"]

PACK: Final = "Pack"
"""Member of an entry with the name of the rule's pack; missing for rules without a pack."""
PROBLEMS: Final = "DebugRuleConfigurations"
"""Name for errors of the whole list; no rule can have it."""

_MAX_NAME: Final = 256
_NAME: Final = f"1 to {_MAX_NAME} printable characters, no '#' first"
_MAX_PROBLEMS: Final = 5
_TEXTS: Final = ("source_s3_uri", "rule_to_invoke")


@dataclass(frozen=True)
class RequestedRule:
    """A rule that a job configures.

    Attributes:
        parameters: Its parameters; empty if they are invalid.
        problem: Why it cannot be evaluated; empty if its entry is valid.
        pack: The rule's pack; empty for rules without a pack.
    """

    parameters: Mapping[str, Any]
    problem: str = ""
    pack: str = ""

    @property
    def source(self) -> str | None:
        """File of a custom rule; None for an installed rule."""
        source: str | None = self.parameters.get("source_s3_uri")
        return source

    def invoked(self, name: str) -> str:
        """Return the name of the rule's class.

        Args:
            name: The rule's configuration name, which is the default of the class name.
        """
        return str(self.parameters.get("rule_to_invoke") or name)


def is_rule_name(text: str) -> bool:
    """Return whether a text is a valid configuration name: 1 to 256 printable characters.

    CreateTrainingJob accepts any text of that length. In the functions' table, "#" begins the keys
    of other items.
    """
    return 0 < len(text) <= _MAX_NAME and text.isprintable() and text[0] != "#"


def parse_rule_requests(
    entries: Iterable[object],
) -> tuple[dict[str, RequestedRule], tuple[str, ...]]:
    """Return the rules that a job configures.

    Args:
        entries: `DebugRuleConfigurations`, unchecked.

    Returns:
        Each rule by its configuration name, in the order of the entries; and the first problems
        of the list.
    """
    rules: dict[str, RequestedRule] = {}
    problems: list[str] = []
    for number, entry in enumerate(entries, start=1):
        members = entry if isinstance(entry, Mapping) else {}
        name = members.get("RuleConfigurationName")
        if not isinstance(name, str) or not is_rule_name(name) or name == PROBLEMS:
            wanted = "another" if name == PROBLEMS else _NAME
            problems.append(
                f"entry {number} of {PROBLEMS} is ignored, because its RuleConfigurationName is "
                f"{name!r:.60}: give it {wanted}"
            )
            continue
        if name in rules:
            problems.append(f"{name!r:.60} is there again as entry {number}, which alone counts")
        rules[name] = _asked(members)
    return rules, tuple(problems[:_MAX_PROBLEMS])


def _asked(entry: Mapping[str, Any]) -> RequestedRule:
    named = entry.get(PACK)
    pack = named if isinstance(named, str) else ""
    parameters = entry.get("RuleParameters") or {}
    if not isinstance(parameters, Mapping):
        problem = f"RuleParameters are {parameters!r:.60}, but must be an object"
        return RequestedRule({}, problem, pack)
    for key in _TEXTS:
        value = parameters.get(key)
        if value is not None and not isinstance(value, str):
            problem = f"{key} in RuleParameters is {value!r:.60}, but must be a text"
            return RequestedRule({}, problem, pack)
    return RequestedRule(parameters, "", pack)
