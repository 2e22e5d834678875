"""Converts objects of the SageMaker SDK and JSON to Stepwatch's classes.

Objects of the SDK are recognised by their attributes, not by class. The SDK moved its classes from
`sagemaker.debugger` (2.x) to `sagemaker.core.debugger` (3.x), and may not be installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["plain", "taken"]


class _FromJson(Protocol):
    @classmethod
    def from_json(cls, member: Mapping[str, Any]) -> Self: ...


_Config = TypeVar("_Config", bound=_FromJson)


def taken(config: Any, kind: type[_Config], *attributes: str) -> _Config:
    """Convert an object of the SDK or JSON to a class of Stepwatch.

    Args:
        config: The configuration.
        kind: The class.
        attributes: Attributes that identify the SDK's objects.

    Raises:
        TypeError: The object cannot be converted.
        ValueError: A value is known only while a pipeline runs.
    """
    if isinstance(config, kind):
        return config
    if isinstance(config, Mapping):
        return kind.from_json(config)
    if not all(hasattr(config, name) for name in attributes):
        raise TypeError(f"{config!r} is not a {kind.__name__}")
    # It is private, but the only way to the JSON, also for the SDK itself.
    request = config._to_request_dict()  # noqa: SLF001
    return kind.from_json(plain(request, kind.__name__))


def plain(request: Any, what: str) -> dict[str, Any]:
    """Return a copy of plain JSON.

    Args:
        request: The JSON.
        what: Its description, for the message.

    Raises:
        ValueError: It contains a pipeline variable, which has no value yet.
    """
    try:
        copy: dict[str, Any] = json.loads(json.dumps(request))
    except TypeError as error:
        raise ValueError(
            f"{what} has a value that is unknown before the job starts ({error}); give the "
            "value instead of a pipeline variable"
        ) from error
    return copy
