"""Checks the debugging parameters of CreateTrainingJob against the API's limits.

Source: the API reference of CreateTrainingJob, with the shapes DebugHookConfig,
CollectionConfiguration, DebugRuleConfiguration and TensorBoardOutputConfig.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

__all__ = ["ApiLimitError", "check_limits"]

_MAX_COLLECTIONS: Final = 20
_MAX_RULES: Final = 20
_MAX_HOOK_PARAMETERS: Final = 20
_MAX_COLLECTION_PARAMETERS: Final = 20
_MAX_RULE_PARAMETERS: Final = 100
_MAX_NAME: Final = 256
_MAX_VALUE: Final = 256
_MAX_IMAGE: Final = 255
_MAX_URI: Final = 1024
_MAX_LOCAL_PATH: Final = 4096
_URI: Final = re.compile(r"(https|s3)://([^/]+)/?(.*)")
_INSTANCE: Final = re.compile(r"ml\.[a-z0-9-]+\.[a-z0-9-]+")

_HOOK: Final = ("S3OutputPath", "LocalPath", "HookParameters", "CollectionConfigurations")
_COLLECTION: Final = ("CollectionName", "CollectionParameters")
_RULE: Final = (
    "RuleConfigurationName",
    "RuleEvaluatorImage",
    "LocalPath",
    "S3OutputPath",
    "InstanceType",
    "VolumeSizeInGB",
    "RuleParameters",
)
_TENSORBOARD: Final = ("S3OutputPath", "LocalPath")

_Problems = Iterator[str]


class ApiLimitError(ValueError):
    """The request exceeds limits of the training API, or has the wrong form.

    Attributes:
        problems: The problems, each with field, value and limit.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("CreateTrainingJob would refuse this: " + "; ".join(problems))
        self.problems = tuple(problems)


def check_limits(request: Mapping[str, Any]) -> None:
    """Check the debugging members of a CreateTrainingJob request.

    Args:
        request: The request, or only its members `DebugHookConfig`, `DebugRuleConfigurations` and
            `TensorBoardOutputConfig`. Other members are ignored.

    Raises:
        ApiLimitError: A member is too long, too many, missing, or of the wrong form; lists all
            problems.
    """
    problems: list[str] = []
    if (hook := request.get("DebugHookConfig")) is not None:
        problems += _hook(hook, "DebugHookConfig")
    if (rules := request.get("DebugRuleConfigurations")) is not None:
        problems += _rules(rules, "DebugRuleConfigurations")
    if (tensorboard := request.get("TensorBoardOutputConfig")) is not None:
        problems += _tensorboard(tensorboard, "TensorBoardOutputConfig")
    if problems:
        raise ApiLimitError(problems)


def _hook(hook: Any, field: str) -> _Problems:
    if not isinstance(hook, Mapping):
        yield f"{field} is {_shown(hook)}, but must be an object"
        return
    yield from _members(hook, field, _HOOK)
    yield from _paths(hook, field, needs_s3=True)
    if (parameters := hook.get("HookParameters")) is not None:
        yield from _parameters(parameters, f"{field}.HookParameters", _MAX_HOOK_PARAMETERS)
    collections = hook.get("CollectionConfigurations")
    if collections is None:
        return
    field += ".CollectionConfigurations"
    yield from _count(collections, field, _MAX_COLLECTIONS)
    for number, collection in enumerate(_listed(collections)):
        yield from _collection(collection, f"{field}[{number}]")


def _collection(collection: Any, field: str) -> _Problems:
    if not isinstance(collection, Mapping):
        yield f"{field} is {_shown(collection)}, but must be an object"
        return
    yield from _members(collection, field, _COLLECTION)
    name = collection.get("CollectionName")
    yield from _text(name, f"{field}.CollectionName", _MAX_NAME, least=1)
    if (parameters := collection.get("CollectionParameters")) is not None:
        yield from _parameters(
            parameters, f"{field}.CollectionParameters ({name})", _MAX_COLLECTION_PARAMETERS
        )


def _rules(rules: Any, field: str) -> _Problems:
    yield from _count(rules, field, _MAX_RULES)
    seen: set[str] = set()
    for number, rule in enumerate(_listed(rules)):
        place = f"{field}[{number}]"
        if not isinstance(rule, Mapping):
            yield f"{place} is {_shown(rule)}, but must be an object"
            continue
        name = rule.get("RuleConfigurationName")
        if isinstance(name, str) and name in seen:
            yield (
                f"{place}.RuleConfigurationName is {name!r} for a second time: give one of the "
                "rules another name"
            )
        seen.add(str(name))
        yield from _rule(rule, place)


def _rule(rule: Mapping[str, Any], field: str) -> _Problems:
    yield from _members(rule, field, _RULE)
    name = rule.get("RuleConfigurationName")
    yield from _text(name, f"{field}.RuleConfigurationName", _MAX_NAME, least=1)
    image = rule.get("RuleEvaluatorImage")
    yield from _text(image, f"{field}.RuleEvaluatorImage ({name})", _MAX_IMAGE, least=1)
    yield from _paths(rule, field)
    instance = rule.get("InstanceType")
    if instance is not None and not (isinstance(instance, str) and _INSTANCE.fullmatch(instance)):
        yield f"{field}.InstanceType is {_shown(instance)}, but must be like ml.t3.medium"
    volume = rule.get("VolumeSizeInGB")
    if volume is not None and (isinstance(volume, bool) or not isinstance(volume, int)):
        yield f"{field}.VolumeSizeInGB is {_shown(volume)}, but must be a whole number of GB"
    elif volume is not None and volume < 0:
        yield f"{field}.VolumeSizeInGB is {volume}, but must be 0 or more"
    if (parameters := rule.get("RuleParameters")) is not None:
        yield from _parameters(parameters, f"{field}.RuleParameters ({name})", _MAX_RULE_PARAMETERS)


def _tensorboard(tensorboard: Any, field: str) -> _Problems:
    if not isinstance(tensorboard, Mapping):
        yield f"{field} is {_shown(tensorboard)}, but must be an object"
        return
    yield from _members(tensorboard, field, _TENSORBOARD)
    yield from _paths(tensorboard, field, needs_s3=True)


def _paths(members: Mapping[str, Any], field: str, *, needs_s3: bool = False) -> _Problems:
    uri = members.get("S3OutputPath")
    if uri is None and needs_s3:
        yield f"{field}.S3OutputPath is missing: give an S3 URI, e.g. s3://bucket/prefix"
    elif uri is not None:
        yield from _text(uri, f"{field}.S3OutputPath", _MAX_URI)
        if isinstance(uri, str) and _URI.fullmatch(uri) is None:
            yield f"{field}.S3OutputPath is {uri!r}, but must be a URI like s3://bucket/prefix"
    if (local := members.get("LocalPath")) is not None:
        yield from _text(local, f"{field}.LocalPath", _MAX_LOCAL_PATH)


def _parameters(parameters: Any, field: str, most: int) -> _Problems:
    if not isinstance(parameters, Mapping):
        yield f"{field} is {_shown(parameters)}, but must be an object of strings"
        return
    if len(parameters) > most:
        yield f"{field} has {len(parameters)} members; the API takes {most}"
    for key, value in parameters.items():
        yield from _text(key, f"a key of {field}", _MAX_NAME, least=1)
        yield from _text(value, f"{field}[{key!r}]", _MAX_VALUE)


def _members(members: Mapping[str, Any], field: str, known: Sequence[str]) -> _Problems:
    for key in members:
        if key not in known:
            yield f"{field} has {key!r}, which the API does not know; it knows {', '.join(known)}"


def _count(items: Any, field: str, most: int) -> _Problems:
    if not isinstance(items, Sequence) or isinstance(items, (str, bytes)):
        yield f"{field} is {_shown(items)}, but must be a list"
    elif len(items) > most:
        yield f"{field} has {len(items)} members; the API takes {most}"


def _listed(items: Any) -> Sequence[Any]:
    return items if isinstance(items, (list, tuple)) else ()


def _text(value: Any, field: str, most: int, *, least: int = 0) -> _Problems:
    if not isinstance(value, str):
        yield f"{field} is {_shown(value)}, but must be a string"
    elif not least <= len(value) <= most:
        limit = f"{least} to {most}" if least else f"at most {most}"
        yield f"{field} has {len(value)} characters, {_shown(value)}; the API takes {limit}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - enough to know it by
