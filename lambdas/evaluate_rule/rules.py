"""The rule of this function, with the parameters that a job gives it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.evaluation.registry import create_rule

if TYPE_CHECKING:
    from lambdas.shared.settings import CustomRuleFile
    from rule_runtime.evaluation.rule import Rule

__all__ = ["RuleConfigurationError", "RuleFactory"]

_RULE_TO_INVOKE: Final = "rule_to_invoke"
_SOURCE: Final = "source_s3_uri"
_MAX_RULES: Final = 100
_PACKAGE: Final = "LAMBDA_TASK_ROOT"
_CUSTOM_RULES: Final = "custom_rules"


class RuleConfigurationError(ValueError):
    """A job's parameters, or the deployment's, from which no rule can be made."""


class RuleFactory:
    """Makes the configured rule, once for each set of parameters.

    Args:
        name: Name under which the rule is configured.
        parameters: The deployment's parameters, `rule_to_invoke` among them.
        custom: The file of the function's package that the rule is in; None for a built-in rule.
    """

    def __init__(
        self, name: str, parameters: Mapping[str, str], custom: CustomRuleFile | None = None
    ) -> None:
        self._name = name
        self._custom = custom
        self._parameters = parameters
        self._made: dict[str, Rule] = {}

    def __call__(self, job_parameters: Mapping[str, Any]) -> Rule:
        """Return the rule; parameters of the job go before those of the deployment.

        Raises:
            RuleConfigurationError: The parameters make no rule, or ask for another one.
        """
        try:
            identity = json.dumps(job_parameters, sort_keys=True)
            if identity not in self._made:
                made = self._make(job_parameters)
                if len(self._made) >= _MAX_RULES:
                    self._made.clear()
                self._made[identity] = made
        except (ValueError, TypeError, RecursionError, ImportError) as error:
            raise RuleConfigurationError(str(error)) from error
        return self._made[identity]

    def _make(self, job_parameters: Mapping[str, Any]) -> Rule:
        deployed = self._parameters[_RULE_TO_INVOKE]
        wanted = job_parameters.get(_RULE_TO_INVOKE, deployed)
        if wanted != deployed:
            raise RuleConfigurationError(
                f"the job asks for {wanted!r:.80} under the name {self._name}, which this "
                f"deployment configures as {deployed}: use another RuleConfigurationName"
            )
        parameters = {**self._parameters, **job_parameters}
        if self._custom is None:
            return create_rule(deployed, parameters)
        return self._load(self._custom, deployed, parameters)

    def _load(self, custom: CustomRuleFile, name: str, parameters: Mapping[str, Any]) -> Rule:
        """Return a rule out of the package, wherever the job has its own copy of the file."""
        from rule_runtime.custom_rules.loader import load_custom_rule  # noqa: PLC0415 - rarely needed

        package = Path(os.environ.get(_PACKAGE) or Path(__file__).parents[2])
        given = {key: value for key, value in parameters.items() if key != _SOURCE}
        folder = package / _CUSTOM_RULES
        return load_custom_rule(
            folder / custom.name, name, given, allowed=[folder], sha256=custom.sha256
        )
