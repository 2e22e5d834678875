"""Selects the rules that a function evaluates for a job, and creates them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from rule_runtime.configuration.requested_rules import RequestedRule
from rule_runtime.engine.registry import create_rule

if TYPE_CHECKING:
    from lambdas.shared.registration import Registration
    from rule_runtime.engine.rule import Rule

__all__ = [
    "MAX_PARAMETERS_BYTES",
    "NOT_CONFIGURED",
    "RULE_TO_INVOKE",
    "BuiltInRules",
    "DeployedRules",
    "MadeRules",
    "RuleConfigurationError",
    "RuleSource",
    "requested_rule",
    "usable_parameters",
]

RULE_TO_INVOKE: Final = "rule_to_invoke"
MAX_PARAMETERS_BYTES: Final = 64 << 10
"""Maximum parameters of a rule as JSON; CreateTrainingJob accepts 100 with 512 characters each."""
NOT_CONFIGURED: Final = (
    "it is no longer deployed or configured in job.json, so the evaluation cannot finish: deploy "
    "it again, or let the next run configure it"
)
_MAX_RULES: Final = 100


class RuleConfigurationError(ValueError):
    """No rule can be created from the parameters of a job or of the deployment."""


class RuleSource(Protocol):
    """The rules that a function evaluates."""

    def names(self, job: Registration) -> Sequence[str]:
        """Return the configuration names of a job's rules that this function evaluates."""
        ...

    def includes(self, name: str, job: Registration) -> bool:
        """Return whether this function evaluates a rule that a wake names."""
        ...

    def rule(self, name: str, job: Registration) -> Rule:
        """Return a rule with the job's parameters.

        Raises:
            RuleConfigurationError: The rule does not exist, or its parameters are invalid.
            StorageError: Its file is temporarily unreadable.
        """
        ...


class MadeRules:
    """Caches a limited number of rules by their parameters."""

    def __init__(self) -> None:
        self._made: dict[str, Rule] = {}

    def rule(self, parameters: Mapping[str, Any], make: Callable[[], Rule]) -> Rule:
        """Return the rule with these parameters, created at the first call.

        Args:
            parameters: All parameters that it depends on.
            make: Creates it.

        Raises:
            RuleConfigurationError: The parameters are invalid.
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


def requested_rule(job: Registration, name: str) -> RequestedRule:
    """Return the job's parameters for a rule; none if the job does not list it."""
    return (job.rules or {}).get(name, RequestedRule({}))


def usable_parameters(requested: RequestedRule) -> Mapping[str, Any]:
    """Return a job's parameters for a rule.

    Raises:
        RuleConfigurationError: They are invalid.
    """
    if requested.problem:
        raise RuleConfigurationError(requested.problem)
    return requested.parameters


def _identity(parameters: Mapping[str, Any]) -> str:
    text = json.dumps(parameters, sort_keys=True)
    if len(text) > MAX_PARAMETERS_BYTES:
        raise RuleConfigurationError(
            f"RuleParameters are {len(text)} bytes of JSON, at most {MAX_PARAMETERS_BYTES} are "
            "allowed: shorten them"
        )
    return text


class DeployedRules:
    """Rules of the deployment.

    Args:
        parameters: The deployment's parameters of each rule by its configuration name, including
            `rule_to_invoke`.
    """

    def __init__(self, parameters: Mapping[str, Mapping[str, str]]) -> None:
        self._parameters = parameters
        self._made = MadeRules()

    def names(self, job: Registration) -> Sequence[str]:
        """Return the names of the rules that the job requests."""
        requested = job.rules
        return [name for name in self._parameters if requested is None or name in requested]

    def includes(self, name: str, job: Registration) -> bool:  # noqa: ARG002 - as others do
        """Return whether a wake names one of these rules."""
        return name in self._parameters

    def rule(self, name: str, job: Registration) -> Rule:
        """Return a rule; parameters of the job override those of the deployment.

        Raises:
            RuleConfigurationError: It is not deployed, or its parameters are invalid or name
                another rule.
        """
        wanted = usable_parameters(requested_rule(job, name))
        # The name is part of the identity: several rules may have the same parameters.
        return self._made.rule({"": name, **wanted}, lambda: self._make(name, wanted))

    def _make(self, name: str, wanted: Mapping[str, Any]) -> Rule:
        if name not in self._parameters:
            raise RuleConfigurationError(NOT_CONFIGURED)
        deployed = self._parameters[name][RULE_TO_INVOKE]
        invoked = wanted.get(RULE_TO_INVOKE, deployed)
        if invoked != deployed:
            raise RuleConfigurationError(
                f"the job configures {invoked!r:.80} under the name {name}, which this "
                f"deployment configures as {deployed}: use another RuleConfigurationName"
            )
        return create_rule(deployed, {**self._parameters[name], **wanted})


class BuiltInRules:
    """All built-in rules: those of the deployment, and those that jobs configure.

    Args:
        deployed: The former.
        of_jobs: The latter; None if jobs must not configure rules.
    """

    def __init__(self, deployed: RuleSource, of_jobs: RuleSource | None) -> None:
        self._deployed = deployed
        self._of_jobs = of_jobs

    def names(self, job: Registration) -> Sequence[str]:
        """Return the names of a job's rules."""
        of_jobs = () if self._of_jobs is None else self._of_jobs.names(job)
        return [*self._deployed.names(job), *of_jobs]

    def includes(self, name: str, job: Registration) -> bool:
        """Return whether a wake names one of these rules, or a rule of no other function."""
        return (
            self._of_jobs is None
            or self._of_jobs.includes(name, job)
            or self._deployed.includes(name, job)
        )

    def rule(self, name: str, job: Registration) -> Rule:
        """Return a rule with the job's parameters.

        Raises:
            RuleConfigurationError: The rule does not exist, or its parameters are invalid.
        """
        if self._of_jobs is None or self._deployed.includes(name, job):
            return self._deployed.rule(name, job)
        return self._of_jobs.rule(name, job)
