"""What is wrong with settings: how it is said, and what is wrong between several of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.settings import SettingError, nearest_name

__all__ = ["PREFIX", "contradictions", "wrong"]

PREFIX = "stepwatch:"

LARGEST_BATCH_WITHOUT_WINDOW = 10
"""Lambda accepts a larger batch of SQS messages only with a batching window."""

MAX_QUEUE_LIST_BYTES = 3300
"""Room for the list of the rules' queues, of the 4096 bytes that Lambda allows for variables."""
QUEUE_URL_BYTES = len("https://sqs.us-gov-west-1.amazonaws.com/123456789012/Stepwatch--")


def wrong(key: str, value: Any, error: SettingError) -> str:
    """Return the line that tells what is wrong with a setting.

    Args:
        key: The setting without prefix.
        value: What the user wrote.
        error: What is allowed.
    """
    shown = value if error.value is None else error.value
    hint = f"; nearest: {error.nearest}" if error.nearest else ""
    return f"{PREFIX}{key}{error.part} = {shown!r}: allowed: {error.allowed}{hint}"


def contradictions(values: Mapping[str, Any], rule_names: tuple[str, ...]) -> list[str]:
    """Return a line for each thing that is wrong between settings that are right one by one.

    Args:
        values: The settings that could be read.
        rule_names: Names of the configured rules, as far as they are known.
    """
    return [
        *_unknown_rules(values, rule_names),
        *_batching(values),
        *_buckets(values),
        *_too_many_rules(values, rule_names),
    ]


def _unknown_rules(values: Mapping[str, Any], rule_names: tuple[str, ...]) -> Iterator[str]:
    for key in ("stop_rules", "stop_observed_rules") if rule_names else ():
        for name in values.get(key, ()):
            if name not in rule_names:
                nearest = nearest_name(name, rule_names)
                allowed = f"the configured rules {', '.join(rule_names)}"
                yield wrong(key, name, SettingError(allowed, nearest=nearest))


def _batching(values: Mapping[str, Any]) -> Iterator[str]:
    size, window = values.get("batch_size", 0), values.get("batching_window_s", 1)
    if size > LARGEST_BATCH_WITHOUT_WINDOW and window == 0:
        allowed = f"at least 1 with a {PREFIX}batch_size above 10 (here {size})"
        yield wrong("batching_window_s", window, SettingError(allowed))


def _buckets(values: Mapping[str, Any]) -> Iterator[str]:
    first = values.get("tensor_bucket_name")
    seen = {first} if first else set()
    for key in ("new_tensor_buckets", "tensor_buckets"):
        for name in values.get(key, ()):
            if name in seen:
                yield wrong(key, name, SettingError("names that no other setting has"))
            seen.add(name)


def _too_many_rules(values: Mapping[str, Any], rule_names: tuple[str, ...]) -> Iterator[str]:
    quotes_and_commas = len('"": "", ')
    stage = len(values.get("stage", "dev"))
    size = sum(QUEUE_URL_BYTES + stage + 2 * len(name) + quotes_and_commas for name in rule_names)
    if size > MAX_QUEUE_LIST_BYTES:
        allowed = (
            "fewer rules, or shorter names: the list of their queues does not fit into a "
            f"function's environment; deploy some of them under another {PREFIX}stage"
        )
        yield wrong("rules", f"{len(rule_names)} rules", SettingError(allowed))
