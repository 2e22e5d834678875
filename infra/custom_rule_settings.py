"""Reads the setting `custom_rules`: the files of rules that jobs may use, with their SHA-256."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.settings import SettingError, SeveralMistakesError

__all__ = ["CustomRuleFile", "as_json", "read_custom_rules"]

KEY = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*/)*[A-Za-z0-9_][A-Za-z0-9_.-]*\.py")
KEY_ALLOWED = "the key of a Python file: letters, digits, '_', '-', '.' and '/', as in team/rule.py"
SHA256 = re.compile("[0-9A-Fa-f]{64}")
SHA256_ALLOWED = "the SHA-256 of the file, 64 hexadecimal digits (sha256sum FILE)"
FILES_ALLOWED = "an object of keys and their SHA-256, or its JSON text"


@dataclass(frozen=True)
class CustomRuleFile:
    """A file that jobs may use, with its required SHA-256 in lower case."""

    key: str
    sha256: str


def read_custom_rules(value: Any) -> tuple[CustomRuleFile, ...]:
    """Read the files.

    Raises:
        SettingError: The value has an unsupported form.
        SeveralMistakesError: Parts of it are invalid.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except ValueError:
            raise SettingError(FILES_ALLOWED) from None
    if not isinstance(value, Mapping):
        raise SettingError(FILES_ALLOWED)
    errors = [
        SettingError(KEY_ALLOWED, part=f".{key}", value=key)
        for key in value
        if not KEY.fullmatch(key)
    ]
    errors += [
        SettingError(SHA256_ALLOWED, part=f".{key}", value=sha256)
        for key, sha256 in value.items()
        if not isinstance(sha256, str) or not SHA256.fullmatch(sha256)
    ]
    if errors:
        raise SeveralMistakesError(errors)
    return tuple(CustomRuleFile(key, value[key].lower()) for key in sorted(value))


def as_json(files: Sequence[CustomRuleFile]) -> str:
    """Return the environment variable with the files for a function."""
    return json.dumps({file.key: file.sha256 for file in files})
