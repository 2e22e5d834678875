"""Parses environment variables, and collects all mistakes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.configuration.requested_rules import is_rule_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CustomRules", "EnvironmentReader", "SettingsError"]

_BUCKET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}")
_FLAGS: Final = {"true": True, "false": False}
_RULE_TO_INVOKE: Final = "rule_to_invoke"


class SettingsError(ValueError):
    """Environment variables are missing or invalid; the message lists all."""


@dataclass(frozen=True)
class CustomRules:
    """The deployer's own files of rules, which jobs may use.

    Attributes:
        bucket_name: Their bucket; empty if jobs can use none.
        sha256_by_key: Required SHA-256 of each file, by key.
    """

    bucket_name: str = ""
    sha256_by_key: Mapping[str, str] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        """The location from which files may be loaded."""
        return f"s3://{self.bucket_name}"

    def sha256_of(self, source: object) -> str | None:
        """Return the required SHA-256 of a file; None if it must not be used."""
        if not isinstance(source, str) or not source.startswith(f"{self.uri}/"):
            return None
        return self.sha256_by_key.get(source.removeprefix(f"{self.uri}/"))


class EnvironmentReader:
    """Parses environment variables, and collects mistakes.

    Args:
        variables: The environment.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._problems: list[str] = []

    def raise_problems(self) -> None:
        """Raise an error for all collected mistakes.

        Raises:
            SettingsError: There are mistakes.
        """
        if self._problems:
            raise SettingsError(
                "the function's environment is invalid: " + "; ".join(self._problems)
            )

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string; a variable without a default is required."""
        value = self._variables.get(name, "").strip() or default
        if value is None:
            self._problems.append(f"{name} is not set")
            return ""
        return value

    def rule_name(self, name: str, others: Sequence[str] = ()) -> str:
        """Return the name of a configured rule, or one of the placeholders for other rules."""
        value = self.text(name)
        if value and not is_rule_name(value) and value not in others:
            self._problems.append(
                f"{name} is {value[:80]!r}: 1 to 256 printable characters expected, no '#' first"
            )
        return value

    def names(self, name: str) -> frozenset[str]:
        """Return comma-separated names; empty if the variable is not set."""
        parts = self._variables.get(name, "").split(",")
        return frozenset(part.strip() for part in parts if part.strip())

    def bucket_names(self, name: str) -> frozenset[str]:
        """Return the names of buckets, at least one."""
        if not self.text(name):
            return frozenset()
        names = self.names(name)
        wrong = sorted(bucket for bucket in names if _BUCKET_NAME.fullmatch(bucket) is None)
        if wrong or not names:
            self._problems.append(f"{name} holds no bucket names: {wrong or 'nothing'}")
        return names

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of several words; the first if the variable is not set."""
        value = self.text(name, default=choices[0]).lower()
        if value not in choices:
            self._problems.append(f"{name} is {value!r}: one of {', '.join(choices)} expected")
        return value

    def choices(self, name: str, choices: Sequence[str]) -> frozenset[str]:
        """Return several of these words, comma-separated; empty if the variable is not set."""
        found = self.names(name)
        if wrong := sorted(found.difference(choices)):
            self._problems.append(f"{name} has {wrong}: of {', '.join(choices)} expected")
        return found

    def flag(self, name: str, *, default: bool) -> bool:
        """Return whether it is `true`."""
        value = self.text(name, default=str(default)).lower()
        if value not in _FLAGS:
            self._problems.append(f"{name} is {value!r}: true or false expected")
        return _FLAGS.get(value, default)

    def custom_rules(self, bucket: str, files: str) -> CustomRules:
        """Return the files that two variables name and pin; empty if neither is set."""
        if not (self._variables.get(bucket, "").strip() or self._variables.get(files, "").strip()):
            return CustomRules()
        found = CustomRules(self.text(bucket), self.texts(files))
        if found.bucket_name and _BUCKET_NAME.fullmatch(found.bucket_name) is None:
            self._problems.append(f"{bucket} is {found.bucket_name[:80]!r}: no name of a bucket")
        for key, sha256 in sorted(found.sha256_by_key.items()):
            if _SHA256.fullmatch(sha256) is None:
                self._problems.append(
                    f"{files} has {sha256[:80]!r} for {key[:80]!r}: 64 hexadecimal digits expected"
                )
        return found

    def number(self, name: str, default: float) -> float:
        """Return a positive number."""
        text = self.text(name, default=str(default))
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            self._problems.append(f"{name} is {text[:80]!r}: a number above 0 expected")
            return default
        return value

    def texts(self, name: str) -> dict[str, str]:
        """Return a JSON object of strings, which may be empty."""
        return self._json_texts(name, self.text(name)) or {}

    def rule_parameters(self, name: str) -> dict[str, str]:
        """Return a rule's parameters, including `rule_to_invoke`."""
        text = self.text(name)
        value = self._json_texts(name, text)
        if value is None:
            return {}
        if not value.get(_RULE_TO_INVOKE):
            self._problems.append(f"{name} lacks {_RULE_TO_INVOKE}")
        return value

    def grouped_rules(self, name: str) -> dict[str, dict[str, str]] | None:
        """Return the parameters of several rules, by name; None if the variable is not set."""
        text = self._variables.get(name, "").strip()
        if not text:
            return None
        value = _parsed(text)
        if not isinstance(value, dict) or not all(map(_is_texts, value.values())):
            self._problems.append(
                f"{name} is {text[:80]!r}: a JSON object of such objects expected"
            )
            return {}
        return {rule: {_RULE_TO_INVOKE: rule, **given} for rule, given in value.items()}

    def _json_texts(self, name: str, text: str) -> dict[str, str] | None:
        if not text:
            return None
        value = _parsed(text)
        if _is_texts(value):
            return dict(value)
        self._problems.append(f"{name} is {text[:80]!r}: a JSON object of strings expected")
        return None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
