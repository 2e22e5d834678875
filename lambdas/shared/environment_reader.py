"""Typed access to environment variables, which collects all that is wrong with them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CustomRuleFile", "EnvironmentReader", "SettingsError"]

# CreateTrainingJob takes any text; "#" begins the keys of our other items.
_RULE_NAME: Final = re.compile(r"[^#\x00-\x1f][^\x00-\x1f]{0,255}")
_BUCKET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}")
_FLAGS: Final = {"true": True, "false": False}
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


class EnvironmentReader:
    """Typed access to environment variables that collects what is wrong with them.

    Args:
        variables: The environment.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._problems: list[str] = []

    def raise_problems(self) -> None:
        """Tell all that was found to be wrong.

        Raises:
            SettingsError: Something was.
        """
        if self._problems:
            raise SettingsError(
                "the function's environment is not usable: " + "; ".join(self._problems)
            )

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text; one without a default must be set."""
        value = self._variables.get(name, "").strip() or default
        if value is None:
            self._problems.append(f"{name} is not set")
            return ""
        return value

    def rule_name(self, name: str) -> str:
        """Return the name of a configured rule."""
        value = self.text(name)
        if value and _RULE_NAME.fullmatch(value) is None:
            self._problems.append(
                f"{name} is {value[:80]!r}: 1 to 256 printable characters expected, no '#' first"
            )
        return value

    def names(self, name: str) -> frozenset[str]:
        """Return names separated by commas, none when it is not set."""
        parts = self._variables.get(name, "").split(",")
        return frozenset(part.strip() for part in parts if part.strip())

    def bucket_names(self, name: str) -> frozenset[str]:
        """Return the names of buckets, one at least."""
        if not self.text(name):
            return frozenset()
        names = self.names(name)
        wrong = sorted(bucket for bucket in names if _BUCKET_NAME.fullmatch(bucket) is None)
        if wrong or not names:
            self._problems.append(f"{name} holds no bucket names: {wrong or 'nothing'}")
        return names

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of some words, the first when it is not set."""
        value = self.text(name, default=choices[0]).lower()
        if value not in choices:
            self._problems.append(f"{name} is {value!r}: one of {', '.join(choices)} expected")
        return value

    def choices(self, name: str, choices: Sequence[str]) -> frozenset[str]:
        """Return several of these words, comma-separated; empty where none is given."""
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

    def custom_rule(self, file: str, sha256: str) -> CustomRuleFile | None:
        """Return the file that two variables name and pin, None when neither is set."""
        if not (self._variables.get(file, "").strip() or self._variables.get(sha256, "").strip()):
            return None
        found = CustomRuleFile(self.text(file), self.text(sha256))
        if found.sha256 and _SHA256.fullmatch(found.sha256) is None:
            self._problems.append(
                f"{sha256} is {found.sha256[:80]!r}: 64 hexadecimal digits expected"
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
        """Return a rule's parameters, `rule_to_invoke` among them."""
        text = self.text(name)
        value = self._json_texts(name, text)
        if value is None:
            return {}
        if not value.get(_RULE_TO_INVOKE):
            self._problems.append(f"{name} does not say {_RULE_TO_INVOKE}")
        return value

    def _json_texts(self, name: str, text: str) -> dict[str, str] | None:
        if not text:
            return None
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            self._problems.append(f"{name} is no JSON: {error}")
            return None
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            self._problems.append(f"{name} is {text[:80]!r}: a JSON object of strings expected")
            return None
        return value
