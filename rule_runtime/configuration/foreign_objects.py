"""Objects of the SageMaker SDK, and JSON, taken for one of our classes.

The SDK's are known by what they can do, not by their class: it moved its classes from
`sagemaker.debugger` (2.x) to `sagemaker.core.debugger` (3.x), and need not be installed.
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
    """Return a configuration as ours: ours, the SDK's, or JSON.

    Args:
        config: The configuration.
        kind: Our class.
        attributes: What the SDK's objects have, by which they are known.

    Raises:
        TypeError: It is none.
        ValueError: A value is known only while a pipeline runs.
    """
    if isinstance(config, kind):
        return config
    if isinstance(config, Mapping):
        return kind.from_json(config)
    if not all(hasattr(config, name) for name in attributes):
        raise TypeError(f"{config!r} is not a {kind.__name__}")
    # It is private in the SDK, and the one way in which the SDK itself gets the JSON.
    request = config._to_request_dict()  # noqa: SLF001
    return kind.from_json(plain(request, kind.__name__))


def plain(request: Any, what: str) -> dict[str, Any]:
    """Return a copy of plain JSON.

    Args:
        request: The JSON.
        what: What it is of, for the message.

    Raises:
        ValueError: It has a variable of a pipeline, which has no value yet.
    """
    try:
        copy: dict[str, Any] = json.loads(json.dumps(request))
    except TypeError as error:
        raise ValueError(
            f"{what} has a value that is unknown before the job starts ({error}); give the "
            "value instead of a pipeline variable"
        ) from error
    return copy
