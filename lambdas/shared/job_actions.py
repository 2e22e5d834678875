"""What a job wants done on a finding, as its `job.json` says when it comes to that.

The original gave each rule its actions in the parameter `action_json`; ours can also be listed for
the whole job. Anyone who lists any has said all that is wanted: a rule without actions of its own
then asks for nothing. A job that lists none leaves it to the deployment.

An action only ever concerns the job that lists it. One that names another job's prefix, which the
original would have stopped, asks for nothing here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.configuration.requested_rules import asked_rules

if TYPE_CHECKING:
    from hook_layer.format.job_file import JobFile

__all__ = ["JobActions"]

_ACTION_PARAMETER: Final = "action_json"
_STOP: Final = "stoptraining"
_MAX_ENDPOINT: Final = 320
"""Longest address, in characters: 64 before the "@" and 255 behind it."""
_MAX_ENDPOINTS: Final = 10


@dataclass(frozen=True)
class JobActions:
    """The actions of a job.

    Attributes:
        training_job_name: Name of the job.
        of_job: Actions that are listed for the whole job; None when none are.
        of_rules: Actions that rules have of their own, by the rule's configuration name.
    """

    training_job_name: str
    of_job: tuple[Mapping[str, Any], ...] | None = None
    of_rules: Mapping[str, tuple[Mapping[str, Any], ...]] | None = None

    @classmethod
    def of(cls, training_job_name: str, job: JobFile | None) -> JobActions:
        """Return the actions that a `job.json` lists.

        Args:
            training_job_name: Name of the job.
            job: The file; None when there is none.
        """
        if job is None:
            return cls(training_job_name)
        rules, _ = asked_rules(job.debug_rule_configurations or ())
        found = {
            name: _parsed(text)
            for name, rule in rules.items()
            if (text := rule.parameters.get(_ACTION_PARAMETER))
        }
        return cls(training_job_name, job.actions or None, found or None)

    def asks_to_stop(self, rule_configuration_name: str) -> bool | None:
        """Return whether the job asks to be stopped on a finding of a rule.

        Returns:
            None when the job lists no actions at all, so that the deployment's policy applies.
        """
        actions = self._of_rule(rule_configuration_name)
        return None if actions is None else any(map(self._stops_this_job, actions))

    def endpoints(self, rule_configuration_name: str, action: str) -> list[str]:
        """Return the addresses that the job names for a finding of a rule, at most 10.

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
        # The original wrote the prefix in small letters before it compared it.
        return (
            _name(action) == _STOP
            and isinstance(prefix, str)
            and self.training_job_name.casefold().startswith(prefix.casefold())
        )


def _parsed(text: object) -> tuple[Mapping[str, Any], ...]:
    """Return the actions in a parameter; what cannot be read asks for nothing, as with others."""
    if not isinstance(text, str):
        return ()
    for candidate in (text, text.replace('\\"', '"')):  # as the client's actions are serialised
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
    """Return an address or number that can be an attribute of a message, else nothing."""
    value = action.get("endpoint")
    if not isinstance(value, str) or len(value) > _MAX_ENDPOINT or not value.isprintable():
        return ""
    return value
