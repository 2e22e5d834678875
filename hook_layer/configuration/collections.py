"""Collections: tensors that are saved together, selected by name or by regular expression."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.json_values import as_object, as_text, load_json, refuse
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode, save_config_changes
from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import ModeKeys

__all__ = [
    "LOSS_INPUTS",
    "OF_TRAINING",
    "OPTIMIZER_STEPS",
    "SCALARS",
    "Collection",
    "CollectionKeys",
    "checked_pattern",
]

_MAX_REMEMBERED: Final = 1 << 14
"""Number of cached matches of patterns and a name; a large model has some thousand."""


class CollectionKeys:
    """Names of the built-in collections; frameworks have different ones."""

    DEFAULT = "default"
    ALL = "all"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    LOSSES = "losses"
    BIASES = "biases"
    LAYERS = "layers"
    SM_METRICS = "sm_metrics"
    OPTIMIZER_VARIABLES = "optimizer_variables"
    TENSORFLOW_SUMMARIES = "tensorflow_summaries"
    METRICS = "metrics"
    HYPERPARAMETERS = "hyperparameters"
    PREDICTIONS = "predictions"
    LABELS = "labels"
    FEATURE_IMPORTANCE = "feature_importance"
    AVERAGE_SHAP = "average_shap"
    FULL_SHAP = "full_shap"
    TREES = "trees"


SCALARS: Final = frozenset(
    (
        CollectionKeys.LOSSES,
        CollectionKeys.METRICS,
        CollectionKeys.FEATURE_IMPORTANCE,
        CollectionKeys.AVERAGE_SHAP,
        CollectionKeys.SM_METRICS,
    )
)
"""Collections of scalars: stored unchanged, never reduced, without histograms."""
LOSS_INPUTS: Final = "loss_inputs"
"""An optional collection: the tensors that losses compare, regardless of their names."""
OPTIMIZER_STEPS: Final = "optimizer_steps"
"""An optional collection: counts of faults in optimizer steps."""
OF_TRAINING: Final = frozenset((CollectionKeys.GRADIENTS, CollectionKeys.OPTIMIZER_VARIABLES))
"""Collections that are not saved in the modes EVAL and PREDICT."""


class Collection:
    """A group of tensors with its own save and reduction configuration.

    Args:
        name: Name of the collection.
        include_regex: Includes tensors whose name contains a match of one of these.
        tensor_names: Includes tensors with these names.
        reduction_config: What is stored of its tensors (default: the hook's).
        save_config: When they are stored (default: the hook's).
        save_histogram: Whether TensorBoard gets histograms of them.

    Attributes:
        num_name_changes: How often a user added or removed a name.
    """

    num_name_changes = 0

    def __init__(  # noqa: PLR0917 - the original's arguments
        self,
        name: str,
        include_regex: str | Sequence[str] | None = None,
        tensor_names: Iterable[str] | None = None,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | Mapping[ModeKeys, SaveConfigMode] | None = None,
        save_histogram: bool = True,
    ) -> None:
        as_text("name of a collection", name)
        self.name = name
        self.include_regex: list[str] = []
        self.tensor_names: set[str] = _texts("tensor_names", tensor_names or ())
        self.reduction_config = reduction_config
        self.save_config = save_config
        self.save_histogram = save_histogram
        self.include([] if include_regex is None else include_regex)

    @property
    def reduction_config(self) -> ReductionConfig | None:
        """What is stored of the tensors; None: the hook's default."""
        return self._reduction_config

    @reduction_config.setter
    def reduction_config(self, value: ReductionConfig | None) -> None:
        if value is not None and not isinstance(value, ReductionConfig):
            raise HookConfigurationError(f"reduction_config={value!r} must be a ReductionConfig")
        self._reduction_config = value

    @property
    def save_config(self) -> SaveConfig | None:
        """When the tensors are stored; None: the hook's default."""
        return self._save_config

    @save_config.setter
    def save_config(self, value: SaveConfig | Mapping[ModeKeys, SaveConfigMode] | None) -> None:
        self._save_config = None if value is None else SaveConfig.parse(value)
        save_config_changes.number += 1

    def include(self, t: str | Sequence[str]) -> None:
        """Add a regular expression, or a list of them.

        Raises:
            HookConfigurationError: It is not a regular expression.
        """
        if not isinstance(t, (str, Iterable)):
            refuse("include_regex", t, "must be a regular expression, or a list of them")
        for pattern in [t] if isinstance(t, str) else t:
            self.include_regex.append(checked_pattern(pattern, f"collection {self.name}"))

    def add_tensor_name(self, tname: str) -> None:
        """Add a tensor by its name."""
        self.num_name_changes += tname not in self.tensor_names
        self.tensor_names.add(tname)

    def remove_tensor_name(self, tname: str) -> None:
        """Remove a name, if it exists."""
        self.num_name_changes += tname in self.tensor_names
        self.tensor_names.discard(tname)

    def has_tensor_name(self, tname: str) -> bool:
        """Return whether the tensor was added by name, or seen and matched."""
        return tname in self.tensor_names

    def matches(self, tname: str) -> bool:
        """Return whether the tensor is included by its name or by a regular expression."""
        return tname in self.tensor_names or _matches(tuple(self.include_regex), tname)

    def state(self) -> tuple[int, ...]:
        """Return numbers that change with what it contains and what is stored of that."""
        num_patterns = len(self.include_regex)
        has_names = not num_patterns and bool(self.tensor_names)
        config = id(self._reduction_config)
        return id(self), num_patterns, has_names, config, self.num_name_changes

    def to_json_dict(self) -> dict[str, Any]:
        """Return the entry of the collections file."""
        return {
            "name": self.name,
            "include_regex": list(self.include_regex),
            "tensor_names": sorted(self.tensor_names),
            "reduction_config": self.reduction_config and self.reduction_config.to_json_dict(),
            "save_config": self.save_config and self.save_config.to_json_dict(),
            "save_histogram": self.save_histogram,
        }

    def to_json(self) -> str:
        """Return `to_json_dict()` as a string."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> Collection:
        """Create a collection from the entry of a collections file.

        Raises:
            HookConfigurationError: The entry is invalid.
        """
        params = as_object("params", params)
        return cls(
            params.get("name"),  # type: ignore[arg-type]  # checked there
            include_regex=params.get("include_regex"),
            tensor_names=params.get("tensor_names"),
            reduction_config=ReductionConfig.from_dict(params.get("reduction_config")),
            save_config=SaveConfig.from_dict(params.get("save_config")),
            save_histogram=params.get("save_histogram", True),
        )

    @classmethod
    def from_json(cls, json_str: str) -> Collection:
        """Create a collection from the result of `to_json`."""
        return cls.from_dict(load_json("json_str", json_str))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collection):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Collection(name={self.name!r}, include_regex={self.include_regex!r})"


def _texts(name: str, value: object) -> set[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        refuse(name, value, "must be a list of texts")
    texts = set(value)
    if not all(isinstance(text, str) for text in texts):
        refuse(name, value, "must be a list of texts")
    return texts


def checked_pattern(pattern: str, where: str) -> str:
    """Return a regular expression after validation.

    Raises:
        HookConfigurationError: It is not a regular expression.
    """
    try:
        re.compile(pattern)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise HookConfigurationError(
            f"{pattern!r:.200} in {where} is not a regular expression: {error}"
        ) from error
    return pattern


@lru_cache(maxsize=_MAX_REMEMBERED)
def _matches(patterns: tuple[str, ...], name: str) -> bool:
    """Return whether a name matches one of the regular expressions; cached for later steps."""
    return any(re.search(pattern, name) for pattern in patterns)
