"""Parses untrusted JSON safely: a single error family, no recursion, no unexpected types."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NoReturn

from hook_layer.format.errors import FormatError

__all__ = ["Document", "load_json", "load_object"]

_MAX_INTEGER: Final = (1 << 63) - 1


def load_json(
    data: bytes, *, file: str, error: type[FormatError], max_bytes: int, is_strict: bool = False
) -> Any:
    """Parse untrusted JSON.

    A reader fetches at most `max_bytes + 1` bytes. The parsed data may need about 25 times as much
    memory. A strict parser rejects repeated keys in an object; otherwise the last one wins.

    Raises:
        FormatError: Of the type `error`, if the data is too long or not JSON.
    """
    if len(data) > max_bytes:
        raise error(f"longer than the {max_bytes} bytes allowed", file=file)
    try:
        text = data.decode()
        document = json.loads(text, object_pairs_hook=_without_repeats if is_strict else None)
        if "\\ud" in text or "\\uD" in text:  # half a character can be written, but not printed
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as failure:
        raise error(f"no JSON: {failure.msg}", file=file, offset=failure.pos) from None
    except UnicodeDecodeError as failure:
        raise error("no UTF-8 text", file=file, offset=failure.start) from None
    except UnicodeEncodeError:
        raise error("a text has half of a surrogate pair", file=file) from None
    except RecursionError:
        raise error("JSON nested too deeply", file=file) from None
    except ValueError as failure:  # a repeated key, or an integer with too many digits
        raise error(f"no JSON: {failure}", file=file) from None
    return document


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!a:.120} occurs twice in one object")
    return members


def load_object(
    data: bytes, *, file: str, error: type[FormatError], max_bytes: int, is_strict: bool = False
) -> dict[str, Any]:
    """Parse one untrusted JSON object, like `load_json`.

    Raises:
        FormatError: Of the type `error`, if the data is too long or not one JSON object.
    """
    document = load_json(data, file=file, error=error, max_bytes=max_bytes, is_strict=is_strict)
    if not isinstance(document, dict):
        raise error(f"a JSON object expected, {type(document).__name__} found", file=file)
    return document


@dataclass(frozen=True)
class Document:
    """Typed access to the values of a parsed JSON object.

    Methods raise `error` with the file and the path of a value that is missing or has a wrong type.
    """

    file: str
    error: type[FormatError]

    def fail(self, message: str) -> NoReturn:
        """Raise the document's error."""
        raise self.error(message, file=self.file)

    def text(self, value: object, path: str) -> str:
        """Return a string."""
        if not isinstance(value, str):
            self.fail(f"{path}: text expected, {_shown(value)} found")
        return value

    def optional_text(self, value: object, path: str) -> str | None:
        """Return a string or None."""
        return None if value is None else self.text(value, path)

    def count(self, value: object, path: str) -> int:
        """Return an integer from 0 to 2^63 - 1."""
        if type(value) is not int or not 0 <= value <= _MAX_INTEGER:
            self.fail(f"{path}: a number of 0 or more expected, {_shown(value)} found")
        return value

    def optional_count(self, value: object, path: str) -> int | None:
        """Return an integer from 0 to 2^63 - 1, or None."""
        return None if value is None else self.count(value, path)

    def flag(self, value: object, path: str) -> bool:
        """Return a boolean."""
        if not isinstance(value, bool):
            self.fail(f"{path}: true or false expected, {_shown(value)} found")
        return value

    def items(self, value: object, path: str) -> list[Any]:
        """Return a list."""
        if not isinstance(value, list):
            self.fail(f"{path}: a list expected, {_shown(value)} found")
        return value

    def members(self, value: object, path: str) -> dict[str, Any]:
        """Return an object."""
        if not isinstance(value, dict):
            self.fail(f"{path}: an object expected, {_shown(value)} found")
        return value

    def texts(self, value: object, path: str) -> tuple[str, ...]:
        """Return a list of strings."""
        items = self.items(value, path)
        if items and set(map(type, items)) != {str}:
            for i, item in enumerate(items):
                self.text(item, f"{path}[{i}]")
        return tuple(items)

    def shapes(self, value: object, path: str) -> list[list[int]]:
        """Return a list of lists of non-negative integers."""
        shapes = self.items(value, path)
        is_nested = not shapes or set(map(type, shapes)) == {list}
        if not is_nested or not self.are_counts(list(chain.from_iterable(shapes))):
            for i, shape in enumerate(shapes):
                self.shape(shape, f"{path}[{i}]")
        return shapes

    def shape(self, value: object, path: str) -> tuple[int, ...]:
        """Return a list of non-negative integers."""
        lengths = self.items(value, path)
        if not self.are_counts(lengths):
            for i, length in enumerate(lengths):
                self.count(length, f"{path}[{i}]")
        return tuple(lengths)

    @staticmethod
    def are_counts(values: Sequence[Any]) -> bool:
        """Return whether `count` accepts all values."""
        if not values:
            return True
        return set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= _MAX_INTEGER


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, (dict, list)) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004
