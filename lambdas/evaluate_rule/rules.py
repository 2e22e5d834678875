"""Which rules a function evaluates for a job, and how they are made with the job's parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from rule_runtime.engine.registry import create_rule

if TYPE_CHECKING:
    from lambdas.shared.registration import Registration
    from rule_runtime.configuration.requested_rules import AskedRule
    from rule_runtime.engine.rule import Rule

__all__ = [
    "MAX_PARAMETERS_BYTES",
    "RULE_TO_INVOKE",
    "DeployedRule",
    "Duty",
    "MadeRules",
    "RuleConfigurationError",
    "usable_parameters",
]

RULE_TO_INVOKE: Final = "rule_to_invoke"
MAX_PARAMETERS_BYTES: Final = 64 << 10
"""Longest parameters of a rule as JSON; CreateTrainingJob takes 100 of at most 512 characters."""
_MAX_RULES: Final = 100


class RuleConfigurationError(ValueError):
    """A job's parameters, or the deployment's, from which no rule can be made."""


class Duty(Protocol):
    """What a function evaluates."""

    def names(self, job: Registration) -> Sequence[str]:
        """Return the configuration names of the rules that a job has evaluated here."""
        ...

    def includes(self, name: str, job: Registration) -> bool:
        """Return whether a rule that somebody calls for is evaluated here."""
        ...

    def rule(self, name: str, job: Registration) -> Rule:
        """Return a rule as the job wants it.

        Raises:
            RuleConfigurationError: There is no such rule, or its parameters are wrong.
            StorageError: Its file cannot be read now.
        """
        ...


class MadeRules:
    """Rules by what they were made of; only so many are kept."""

    def __init__(self) -> None:
        self._made: dict[str, Rule] = {}

    def rule(self, parameters: Mapping[str, Any], make: Callable[[], Rule]) -> Rule:
        """Return the rule of these parameters, made at the first call.

        Args:
            parameters: All that it depends on.
            make: Makes it.

        Raises:
            RuleConfigurationError: They make no rule.
        """
        try:
            identity = _identity(parameters)
            if identity not in self._made:
                made = make()
                if len(self._made) >= _MAX_RULES:
                    self._made.clear()
                self._made[identity] = made
        except (ValueError, TypeError, RecursionError, ImportError) as error:
            raise RuleConfigurationError(str(error)) from error
        return self._made[identity]


def usable_parameters(asked: AskedRule) -> Mapping[str, Any]:
    """Return the parameters that a job gives a rule.

    Raises:
        RuleConfigurationError: They cannot be used.
    """
    if asked.problem:
        raise RuleConfigurationError(asked.problem)
    return asked.parameters


def _identity(parameters: Mapping[str, Any]) -> str:
    text = json.dumps(parameters, sort_keys=True)
    if len(text) > MAX_PARAMETERS_BYTES:
        raise RuleConfigurationError(
            f"RuleParameters are {len(text)} bytes of JSON, at most {MAX_PARAMETERS_BYTES} are "
            "allowed: shorten them"
        )
    return text


class DeployedRule:
    """The one rule of a function, with the deployment's parameters.

    Args:
        name: Name under which the rule is configured.
        parameters: The deployment's parameters, `rule_to_invoke` among them.
    """

    def __init__(self, name: str, parameters: Mapping[str, str]) -> None:
        self._name = name
        self._parameters = parameters
        self._made = MadeRules()

    def names(self, job: Registration) -> Sequence[str]:
        """Return the rule's name if the job wants it."""
        return (self._name,) if job.asks_for(self._name) else ()

    def includes(self, name: str, job: Registration) -> bool:  # noqa: ARG002 - as others do
        """Return whether it is this rule that somebody calls for."""
        return name == self._name

    def rule(self, name: str, job: Registration) -> Rule:
        """Return the rule; parameters of the job go before those of the deployment.

        Raises:
            RuleConfigurationError: The parameters make no rule, or ask for another one.
        """
        wanted = usable_parameters(job.asked(name))
        return self._made.rule(wanted, lambda: self._make(wanted))

    def _make(self, wanted: Mapping[str, Any]) -> Rule:
        deployed = self._parameters[RULE_TO_INVOKE]
        invoked = wanted.get(RULE_TO_INVOKE, deployed)
        if invoked != deployed:
            raise RuleConfigurationError(
                f"the job asks for {invoked!r:.80} under the name {self._name}, which this "
                f"deployment configures as {deployed}: use another RuleConfigurationName"
            )
        return create_rule(deployed, {**self._parameters, **wanted})
