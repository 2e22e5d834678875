"""A collection that a rule or a user asks the hook to save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final

from rule_runtime.configuration.api_values import as_strings, checked_members
from rule_runtime.configuration.foreign_objects import taken

__all__ = ["CollectionConfig", "as_collection", "as_collections"]


@dataclass(frozen=True, init=False)
class CollectionConfig:
    """Name and parameters of a collection, as in `CollectionConfigurations` of a training job.

    Args:
        name: Name of the collection, e.g. `gradients`.
        parameters: Its parameters, e.g. `{"save_interval": "100"}`; numbers and booleans are
            converted to strings for the API.

    Attributes:
        name: Name of the collection.
        parameters: Its parameters as strings.
    """

    name: str
    parameters: Mapping[str, str]

    def __init__(self, name: str, parameters: Mapping[str, object] | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a collection is {name!r} and must be text")
        if not isinstance(parameters, (Mapping, NoneType)):
            raise TypeError(
                f"the parameters of the collection {name!r} are {parameters!r}, but must be a "
                'dict, such as {"save_interval": "10"}'
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "parameters", as_strings(parameters))

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.parameters.items()))))

    def to_json(self) -> dict[str, Any]:
        """Return the member of `CollectionConfigurations`; empty parameters are omitted."""
        data: dict[str, Any] = {"CollectionName": self.name}
        if self.parameters:
            data["CollectionParameters"] = dict(self.parameters)
        return data

    @classmethod
    def from_json(cls, member: Mapping[str, Any]) -> CollectionConfig:
        """Return the collection from a member of `CollectionConfigurations`.

        Raises:
            ValueError: The name is missing, or a member is unknown.
        """
        checked_members("a collection", member, ("CollectionName",), ("CollectionParameters",))
        return cls(member["CollectionName"], member.get("CollectionParameters"))


def as_collection(collection: object) -> CollectionConfig:
    """Convert a collection of the SageMaker SDK or a member of `CollectionConfigurations`.

    Raises:
        TypeError: It is not a collection.
        ValueError: A value is known only while a pipeline runs.
    """
    return taken(collection, CollectionConfig, "parameters")


def as_collections(given: object) -> tuple[CollectionConfig, ...]:
    """Return a rule's collections, each given by name or in full.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(given, (tuple, list)):
        try:
            return tuple(
                CollectionConfig(each) if isinstance(each, str) else as_collection(each)
                for each in given
            )
        except (TypeError, ValueError) as error:
            raise TypeError(f"collections has an invalid member: {error}; {_EXPECTED}") from None
    raise TypeError(f"collections={given!r} is not valid; {_EXPECTED}")


_EXPECTED: Final = (
    'write a tuple of names, such as ("weights",), or of CollectionConfig("weights", '
    '{"save_interval": "10"})'
)
