"""Describes mistakes in settings, and checks combinations of settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.custom_rule_settings import as_json
from infra.rule_settings import grouped_rules
from infra.setting_patterns import TAG_NAME, TAG_VALUE
from infra.settings import SettingError, nearest_name
from lambdas.contracts.events import CUSTOM_RULES, JOB_RULES
from lambdas.contracts.stopping import OBSERVE

__all__ = ["PREFIX", "contradictions", "stack_tag_mistakes", "wrong"]

PREFIX = "stepwatch:"

LARGEST_BATCH_WITHOUT_WINDOW = 10
"""Lambda accepts a larger batch of SQS messages only with a batching window."""

MAX_CUSTOM_RULES_BYTES = 1500
"""Maximum size of the list of custom rule files, likewise, besides the names of deployed rules."""

MAX_BUCKETS = 16
"""Maximum number of buckets, limited by event patterns and role policies."""
MAX_LISTS_BYTES = 3800
"""Maximum total size of the lists of rules and buckets, likewise."""
LONGEST_BUCKET_NAME = 63

MAX_RULE_LIST_BYTES = 3300
"""Maximum size of the longest rule list, of the 4096 bytes that Lambda allows for variables."""
MAX_GROUPED_RULES_BYTES = 2300
"""Maximum size of the rules of one function; the rest is for buckets, custom rules and URLs."""
LISTED_RULE_BYTES = len('"": "", ')
"""Size of a rule in that list, besides its name."""
MAX_SHORT_NAME = 49
"""Maximum length of a rule's name in letters that fits into the name of its queue at any stage; a
longer one is listed with that name."""
LISTED_QUEUE_BYTES = 80


def wrong(key: str, value: Any, error: SettingError) -> str:
    """Return the line that describes a mistake in a setting."""
    shown = value if error.value is None else error.value
    hint = f"; nearest: {error.nearest}" if error.nearest else ""
    return f"{PREFIX}{key}{error.part} = {shown!r}: allowed: {error.allowed}{hint}"


def contradictions(values: Mapping[str, Any], rule_names: tuple[str, ...]) -> list[str]:
    """Return a line for each invalid combination of valid settings."""
    return [
        *_unknown_rules(values, rule_names),
        *_unreachable_agreement(values, rule_names),
        *_batching(values),
        *_buckets(values),
        *_too_many_rules(values, rule_names),
        *_too_many_buckets(values),
        *_custom_rules(values),
    ]


def stack_tag_mistakes(tags: object) -> list[str]:
    """Return a line for each stack tag in cdk.json that AWS would reject."""
    if not isinstance(tags, list) or not all(_is_tag(tag) for tag in tags):
        return [f'tags = {tags!r}: allowed: a list of {{"Key": "<name>", "Value": "<text>"}}']
    return [
        f"tags: {member} = {tag[member]!r}: allowed: {allowed}"
        for tag in tags
        for member, (pattern, allowed) in (("Key", TAG_NAME), ("Value", TAG_VALUE))
        if not re.fullmatch(pattern, tag[member])
    ]


def _is_tag(tag: object) -> bool:
    return (
        isinstance(tag, Mapping)
        and tag.keys() == {"Key", "Value"}
        and all(isinstance(text, str) for text in tag.values())
    )


def _unknown_rules(values: Mapping[str, Any], rule_names: tuple[str, ...]) -> Iterator[str]:
    for key in ("stop_rules", "stop_observed_rules") if rule_names else ():
        for name in values.get(key, ()):
            if name not in rule_names:
                nearest = nearest_name(name, rule_names)
                allowed = f"the configured rules {', '.join(rule_names)}"
                yield wrong(key, name, SettingError(allowed, nearest=nearest))


def _unreachable_agreement(values: Mapping[str, Any], rule_names: tuple[str, ...]) -> Iterator[str]:
    needed, observed = values.get("stop_min_rules", 1), values.get("stop_observed_rules", ())
    stopping = set(values.get("stop_rules") or rule_names) - set(observed)
    if rule_names and values.get("stop_policy") != OBSERVE and needed > max(len(stopping), 1):
        names = ", ".join(sorted(stopping)) or "none"
        allowed = (
            f"at most the number of rules that may stop jobs, {len(stopping)} ({names}); or more "
            f"rules in {PREFIX}stop_rules"
        )
        yield wrong("stop_min_rules", needed, SettingError(allowed))


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
                yield wrong(key, name, SettingError("names that no other setting lists"))
            seen.add(name)


def _bucket_names(values: Mapping[str, Any]) -> list[str]:
    first = values.get("tensor_bucket_name") or "?" * LONGEST_BUCKET_NAME
    return [first, *values.get("new_tensor_buckets", ()), *values.get("tensor_buckets", ())]


def _too_many_buckets(values: Mapping[str, Any]) -> Iterator[str]:
    num_buckets = len(_bucket_names(values))
    if num_buckets > MAX_BUCKETS:
        allowed = f"at most {MAX_BUCKETS} buckets in all; watch others by another {PREFIX}stage"
        yield wrong("tensor_buckets", f"{num_buckets} buckets", SettingError(allowed))


def _too_many_rules(values: Mapping[str, Any], rule_names: tuple[str, ...]) -> Iterator[str]:
    if values.get("evaluators") == "grouped":
        rules = values.get("rules", ())
        size = len(grouped_rules(rules)) + sum(len(rule.name) + 1 for rule in rules)
        if size > MAX_GROUPED_RULES_BYTES:
            allowed = (
                "fewer rules or parameters: their list does not fit into a function's environment; "
                f"deploy some of them under another {PREFIX}stage"
            )
            yield wrong("rules", f"{len(rule_names)} rules", SettingError(allowed))
        return
    # The placeholders are listed with names of queues, too; unused ones need little room.
    listed = [LISTED_RULE_BYTES + len(name) for name in rule_names]
    listed += [LISTED_QUEUE_BYTES for name in rule_names if len(name) > MAX_SHORT_NAME]
    lists = (rule_names, values.get("stop_rules", ()), values.get("stop_observed_rules", ()))
    size = max(
        sum(listed) + 2 * (LISTED_QUEUE_BYTES + LISTED_RULE_BYTES) + len(JOB_RULES + CUSTOM_RULES),
        sum(len(name) + 1 for names in lists for name in names),
    )
    buckets = sum(len(name) + 1 for name in _bucket_names(values))
    if size > MAX_RULE_LIST_BYTES or size + buckets > MAX_LISTS_BYTES:
        allowed = (
            "fewer rules, or shorter names: the list of their names does not fit into a "
            f"function's environment; deploy some of them under another {PREFIX}stage"
        )
        yield wrong("rules", f"{len(rule_names)} rules", SettingError(allowed))


def _custom_rules(values: Mapping[str, Any]) -> Iterator[str]:
    files, bucket = values.get("custom_rules", ()), values.get("custom_rule_bucket")
    keys = [file.key for file in files]
    if files and not values.get("per_job_rules", True):
        allowed = f"none with {PREFIX}per_job_rules = false, for only jobs use them"
        yield wrong("custom_rules", keys, SettingError(allowed))
    if len(as_json(files)) > MAX_CUSTOM_RULES_BYTES:
        allowed = (
            "fewer files: their list does not fit into a function's environment; put several rules "
            "into one file"
        )
        yield wrong("custom_rules", keys, SettingError(allowed))
    if bucket is None:
        return
    if not files:
        allowed = f"nothing without {PREFIX}custom_rules, which name the files in it"
        yield wrong("custom_rule_bucket", bucket, SettingError(allowed))
    if bucket in _bucket_names(values):
        allowed = "a bucket that no training process writes to"
        yield wrong("custom_rule_bucket", bucket, SettingError(allowed))
