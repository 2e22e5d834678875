"""Settings of the functions: the environment, read once into frozen dataclasses."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lambdas.contracts import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CustomRuleFile", "EvaluateRuleSettings", "SettingsError", "StopJobSettings"]

# CreateTrainingJob takes any text; "#" begins the keys of our other items.
_RULE_NAME: Final = re.compile(r"[^#\x00-\x1f][^\x00-\x1f]{0,255}")
_BUCKET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}")
_FLAGS: Final = {"true": True, "false": False}
_POLICIES: Final = ("stop", "observe")
_RULE_TO_INVOKE: Final = "rule_to_invoke"


class SettingsError(ValueError):
    """The environment lacks variables or holds values that cannot be used; the message has all."""


@dataclass(frozen=True)
class CustomRuleFile:
    """The file that a custom rule is in.

    Attributes:
        name: Its path below the folder of custom rules.
        sha256: SHA-256 that it must have.
    """

    name: str
    sha256: str


@dataclass(frozen=True)
class EvaluateRuleSettings:
    """What an evaluator must know.

    Attributes:
        rule_configuration_name: Name under which the rule is configured.
        rule_parameters: The rule's parameters as strings, `rule_to_invoke` among them.
        state_table_name: The table of evaluation states and registrations.
        tensor_bucket_names: Buckets that may be read; objects of others are refused.
        event_bus_name: The bus that status events go to.
        custom_rule: The file that the rule is in; None for a built-in rule.
    """

    rule_configuration_name: str
    rule_parameters: Mapping[str, str]
    state_table_name: str
    tensor_bucket_names: frozenset[str]
    event_bus_name: str = "default"
    custom_rule: CustomRuleFile | None = None

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> EvaluateRuleSettings:
        """Return the settings in `variables`.

        Raises:
            SettingsError: Variables are missing or invalid; all of them are named.
        """
        reader = _Reader(variables)
        settings = cls(
            rule_configuration_name=reader.rule_name(environment.RULE_CONFIGURATION_NAME),
            rule_parameters=reader.rule_parameters(environment.RULE_PARAMETERS),
            state_table_name=reader.text(environment.STATE_TABLE_NAME),
            tensor_bucket_names=reader.bucket_names(environment.TENSOR_BUCKET_NAMES),
            event_bus_name=reader.text(environment.EVENT_BUS_NAME, default="default"),
            custom_rule=reader.custom_rule(
                environment.CUSTOM_RULE_FILE, environment.CUSTOM_RULE_SHA256
            ),
        )
        reader.raise_problems()
        return settings


@dataclass(frozen=True)
class StopJobSettings:
    """What the function that stops jobs must know.

    Attributes:
        state_table_name: The table of evaluation states and registrations.
        tensor_bucket_names: Buckets in which a stop signal may be written.
        observe_only: True when findings are told but no job is stopped.
        stop_rules: Rules whose finding stops a job; empty means every rule.
        stop_any_native_job: True when a native event or a direct invocation may stop a job that
            is not registered here.
    """

    state_table_name: str
    tensor_bucket_names: frozenset[str]
    observe_only: bool = False
    stop_rules: frozenset[str] = frozenset()
    stop_any_native_job: bool = True

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> StopJobSettings:
        """Return the settings in `variables`.

        Raises:
            SettingsError: Variables are missing or invalid; all of them are named.
        """
        reader = _Reader(variables)
        settings = cls(
            state_table_name=reader.text(environment.STATE_TABLE_NAME),
            tensor_bucket_names=reader.bucket_names(environment.TENSOR_BUCKET_NAMES),
            observe_only=reader.choice(environment.STOP_POLICY, _POLICIES) == "observe",
            stop_rules=reader.names(environment.STOP_RULES),
            stop_any_native_job=reader.flag(environment.STOP_ANY_NATIVE_JOB, default=True),
        )
        reader.raise_problems()
        return settings

    def stops(self, rule_configuration_name: str) -> bool:
        """Tell whether a finding of this rule is one that stops jobs."""
        return not self.stop_rules or rule_configuration_name in self.stop_rules


class _Reader:
    """Typed access to environment variables that collects what is wrong with them."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._problems: list[str] = []

    def raise_problems(self) -> None:
        if self._problems:
            raise SettingsError(
                "the function's environment is not usable: " + "; ".join(self._problems)
            )

    def text(self, name: str, default: str | None = None) -> str:
        value = self._variables.get(name, "").strip() or default
        if value is None:
            self._problems.append(f"{name} is not set")
            return ""
        return value

    def rule_name(self, name: str) -> str:
        value = self.text(name)
        if value and _RULE_NAME.fullmatch(value) is None:
            self._problems.append(
                f"{name} is {value[:80]!r}: 1 to 256 printable characters expected, no '#' first"
            )
        return value

    def names(self, name: str) -> frozenset[str]:
        parts = self._variables.get(name, "").split(",")
        return frozenset(part.strip() for part in parts if part.strip())

    def bucket_names(self, name: str) -> frozenset[str]:
        if not self.text(name):
            return frozenset()
        names = self.names(name)
        wrong = sorted(bucket for bucket in names if _BUCKET_NAME.fullmatch(bucket) is None)
        if wrong or not names:
            self._problems.append(f"{name} holds no bucket names: {wrong or 'nothing'}")
        return names

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name, default=choices[0]).lower()
        if value not in choices:
            self._problems.append(f"{name} is {value!r}: one of {', '.join(choices)} expected")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name, default=str(default)).lower()
        if value not in _FLAGS:
            self._problems.append(f"{name} is {value!r}: true or false expected")
        return _FLAGS.get(value, default)

    def custom_rule(self, file: str, sha256: str) -> CustomRuleFile | None:
        if not (self._variables.get(file, "").strip() or self._variables.get(sha256, "").strip()):
            return None
        found = CustomRuleFile(self.text(file), self.text(sha256))
        if found.sha256 and _SHA256.fullmatch(found.sha256) is None:
            self._problems.append(
                f"{sha256} is {found.sha256[:80]!r}: 64 hexadecimal digits expected"
            )
        return found

    def rule_parameters(self, name: str) -> dict[str, str]:
        text = self.text(name)
        if not text:
            return {}
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            self._problems.append(f"{name} is no JSON: {error}")
            return {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            self._problems.append(f"{name} is {text[:80]!r}: a JSON object of strings expected")
            return {}
        if not value.get(_RULE_TO_INVOKE):
            self._problems.append(f"{name} does not say {_RULE_TO_INVOKE}")
        return value
