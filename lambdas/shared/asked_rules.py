"""The rules that a `job.json` asks for, and what is wrong with how it does.

The file says whatever its writer likes. A rule's name becomes part of keys of the table, so one
that cannot be is left out here, and told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hook_layer.format.job_file import JobFile

__all__ = ["PROBLEMS", "asked_rules", "is_rule_name"]

PROBLEMS: Final = "DebugRuleConfigurations"
"""Name under which is told what is wrong with the whole list; no rule can have it."""

_MAX_NAME: Final = 256
_MAX_PROBLEMS: Final = 5


def is_rule_name(text: str) -> bool:
    """Tell whether a text can be a rule's configuration name: 1 to 256 printable characters.

    CreateTrainingJob takes any text of that length; "#" begins the keys of our other items.
    """
    return 0 < len(text) <= _MAX_NAME and text.isprintable() and text[0] != "#"


def asked_rules(
    job: JobFile,
) -> tuple[Mapping[str, Mapping[str, Any]] | None, tuple[str, ...]]:
    """Return what a job asks for.

    Args:
        job: The `job.json`.

    Returns:
        Parameters of each rule by its configuration name, in the order of the file; None when the
        deployed rules apply with their own parameters. And the first things that are wrong with the
        list.
    """
    if job.debug_rule_configurations is None:
        return None, ()
    rules: dict[str, Mapping[str, Any]] = {}
    problems: list[str] = []
    for number, rule in enumerate(job.debug_rule_configurations, start=1):
        name = rule.get("RuleConfigurationName")
        if not isinstance(name, str) or not is_rule_name(name) or name == PROBLEMS:
            problems.append(
                f"entry {number} is left out, for its RuleConfigurationName is {name!r:.60}: give "
                f"it 1 to {_MAX_NAME} printable characters, no '#' first, other than {PROBLEMS}"
            )
            continue
        if name in rules:
            problems.append(f"{name!r:.60} is there again as entry {number}, which alone counts")
        parameters = rule.get("RuleParameters") or {}
        if not isinstance(parameters, dict):
            problems.append(f"RuleParameters of {name!r:.60} are no object, and left out")
            parameters = {}
        rules[name] = parameters
    return rules, tuple(problems[:_MAX_PROBLEMS])
