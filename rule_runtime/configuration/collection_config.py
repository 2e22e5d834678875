"""A collection that a rule or a user asks the hook to save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CollectionConfig"]


@dataclass(frozen=True)
class CollectionConfig:
    """Name and parameters of a collection, as in `CollectionConfigurations` of a training job.

    Attributes:
        name: Name of the collection, e.g. `gradients`.
        parameters: Its parameters as strings, e.g. `{"save_interval": "100"}`.
    """

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.parameters.items()))))

    def to_json(self) -> dict[str, Any]:
        """Return the member of `CollectionConfigurations`; empty parameters are left out."""
        data: dict[str, Any] = {"CollectionName": self.name}
        if self.parameters:
            data["CollectionParameters"] = dict(self.parameters)
        return data
