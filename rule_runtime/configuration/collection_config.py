"""A collection that a rule or a user asks the hook to save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rule_runtime.configuration.api_values import as_strings, checked_members
from rule_runtime.configuration.foreign_objects import taken

__all__ = ["CollectionConfig", "as_collection"]


@dataclass(frozen=True, init=False)
class CollectionConfig:
    """Name and parameters of a collection, as in `CollectionConfigurations` of a training job.

    Args:
        name: Name of the collection, e.g. `gradients`.
        parameters: Its parameters, e.g. `{"save_interval": "100"}`; numbers and booleans become
            the strings that the API takes.

    Attributes:
        name: Name of the collection.
        parameters: Its parameters as strings.
    """

    name: str
    parameters: Mapping[str, str]

    def __init__(self, name: str, parameters: Mapping[str, object] | None = None) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "parameters", as_strings(parameters))

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.parameters.items()))))

    def to_json(self) -> dict[str, Any]:
        """Return the member of `CollectionConfigurations`; empty parameters are left out."""
        data: dict[str, Any] = {"CollectionName": self.name}
        if self.parameters:
            data["CollectionParameters"] = dict(self.parameters)
        return data

    @classmethod
    def from_json(cls, member: Mapping[str, Any]) -> CollectionConfig:
        """Return the collection of a member of `CollectionConfigurations`.

        Args:
            member: The member.

        Raises:
            ValueError: It has no name, or something that such a member has not.
        """
        checked_members("a collection", member, ("CollectionName",), ("CollectionParameters",))
        return cls(member["CollectionName"], member.get("CollectionParameters"))


def as_collection(collection: object) -> CollectionConfig:
    """Return a collection as ours: ours, the SDK's, or a member of `CollectionConfigurations`.

    Args:
        collection: The collection.

    Raises:
        TypeError: It is none.
        ValueError: A value is known only while a pipeline runs.
    """
    return taken(collection, CollectionConfig, "parameters")
