"""Actions on a finding that a job lists in its `job.json`.

The original lists actions per rule, in the parameter `action_json`; Stepwatch also accepts a list
for the whole job. If a job lists any actions, a rule without actions requests none. If a job lists
no actions, the deployment decides.

An action always applies to the job that lists it. An action with another job's prefix, which the
original would have stopped, is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.configuration.requested_rules import parse_rule_requests

if TYPE_CHECKING:
    from hook_layer.format.job_file import JobFile

__all__ = ["JobActions"]

_ACTION_PARAMETER: Final = "action_json"
_STOP: Final = "stoptraining"
_MAX_ENDPOINT: Final = 320
"""Maximum length of an address, in characters: 64 before the "@" and 255 after it."""
_MAX_ENDPOINTS: Final = 10


@dataclass(frozen=True)
class JobActions:
    """The actions of a job.

    Attributes:
        training_job_name: Name of the job.
        of_job: Actions for the whole job; None if there are none.
        of_rules: Actions of single rules, by the rule's configuration name.
    """

    training_job_name: str
    of_job: tuple[Mapping[str, Any], ...] | None = None
    of_rules: Mapping[str, tuple[Mapping[str, Any], ...]] | None = None

    @classmethod
    def of(cls, training_job_name: str, job: JobFile | None) -> JobActions:
        """Return the actions in a `job.json`.

        Args:
            training_job_name: Name of the job.
            job: The file; None if there is none.
        """
        if job is None:
            return cls(training_job_name)
        rules, _ = parse_rule_requests(job.debug_rule_configurations or ())
        found = {
            name: _parsed(text)
            for name, rule in rules.items()
            if (text := rule.parameters.get(_ACTION_PARAMETER))
        }
        return cls(training_job_name, job.actions or None, found or None)

    def requests_stop(self, rule_configuration_name: str) -> bool | None:
        """Return whether the job requests its stop on a finding of a rule.

        Returns:
            None if the job lists no actions, so that the deployment's policy applies.
        """
        actions = self._of_rule(rule_configuration_name)
        return None if actions is None else any(map(self._stops_this_job, actions))

    def endpoints(self, rule_configuration_name: str, action: str) -> list[str]:
        """Return the job's addresses for a finding of a rule, at most 10.

        Args:
            rule_configuration_name: The rule.
            action: `email` or `sms`.
        """
        found = [
            endpoint
            for entry in self._of_rule(rule_configuration_name) or ()
            if _name(entry) == action and (endpoint := _endpoint(entry))
        ]
        return list(dict.fromkeys(found))[:_MAX_ENDPOINTS]

    def _of_rule(self, name: str) -> tuple[Mapping[str, Any], ...] | None:
        if self.of_rules is None:
            return self.of_job
        own = self.of_rules.get(name)
        return (self.of_job or ()) if own is None else own

    def _stops_this_job(self, action: Mapping[str, Any]) -> bool:
        prefix = action.get("training_job_prefix") or ""
        # The original converts the prefix to lower case before it compares it.
        return (
            _name(action) == _STOP
            and isinstance(prefix, str)
            and self.training_job_name.casefold().startswith(prefix.casefold())
        )


def _parsed(text: object) -> tuple[Mapping[str, Any], ...]:
    """Parse the actions in a parameter; invalid ones count as none."""
    if not isinstance(text, str):
        return ()
    for candidate in (text, text.replace('\\"', '"')):  # serialized like the client's actions
        try:
            content = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        entries = content if isinstance(content, list) else [content]
        return tuple(entry for entry in entries if isinstance(entry, Mapping))
    return ()


def _name(action: Mapping[str, Any]) -> str:
    return str(action.get("name", "")).lower()


def _endpoint(action: Mapping[str, Any]) -> str:
    """Return an address or number that can be a message attribute; empty otherwise."""
    value = action.get("endpoint")
    if not isinstance(value, str) or len(value) > _MAX_ENDPOINT or not value.isprintable():
        return ""
    return value
