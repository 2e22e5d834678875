"""The stored settings of a collection, with the original's attributes.

The classes accept files as they are and need no hook; only the hook's own classes validate
settings. A stored run never changes, so `set_save_config` and `merge_default_save_config` exist
only in the hook's classes.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.modes import ModeKeys
from rule_runtime.trial.modes import Mode, as_mode

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "StoredReductionConfig",
    "StoredSaveConfig",
    "StoredSaveConfigMode",
    "StoredSettings",
]

_DEFAULT_INTERVAL: Final = 500
_ABSOLUTE: Final = "abs_"
_NORMS: Final = {"l1": "l1", "l2": "l2", "l1_norm": "l1", "l2_norm": "l2"}


class StoredSettings(ABC):
    """The content of a collections file and its JSON."""

    @classmethod
    @abstractmethod
    def from_dict(cls, params: Any) -> Self | None:
        """Return the settings of a mapping, as from `to_json_dict`."""

    @abstractmethod
    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields as in the collections file."""

    @classmethod
    def from_json(cls, json_str: str) -> Self | None:
        """Return the settings from the text of `to_json`.

        Raises:
            ValueError: The text is not JSON, or a key is not a mode.
            TypeError: The JSON is not an object.
        """
        return cls.from_dict(json.loads(json_str))

    def to_json(self) -> str:
        """Return `to_json_dict()` as JSON text."""
        return json.dumps(self.to_json_dict())


@dataclass(frozen=True)
class StoredSaveConfigMode(StoredSettings):
    """Steps at which a collection was saved in one mode; steps are counted within it.

    Attributes:
        save_interval: Interval of saved steps.
        start_step: First step of the interval.
        end_step: First step after the interval; None for no end.
        save_steps: Steps that are always saved.
    """

    save_interval: int = _DEFAULT_INTERVAL
    start_step: int = 0
    end_step: int | None = None
    save_steps: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, members: object) -> StoredSaveConfigMode | None:
        """Return the settings of a mode in a file; ignores values that are not integers."""
        if not isinstance(members, dict):
            return None
        listed = members.get("save_steps")
        steps = listed if isinstance(listed, list) else []
        return cls(
            save_interval=_whole(members.get("save_interval"), 1) or _DEFAULT_INTERVAL,
            start_step=_whole(members.get("start_step")) or 0,
            end_step=_whole(members.get("end_step")),
            save_steps=[step for step in steps if _whole(step) is not None],
        )

    @classmethod
    def from_dict(
        cls,
        params: Mapping[str, Any] | StoredSaveConfigMode | None,
        default_values: Mapping[str, Any] | None = None,
    ) -> StoredSaveConfigMode | None:
        """Return the settings of a mapping of the four fields; returns settings and None unchanged.

        `default_values` replace fields that `params` lacks.
        """
        if params is None or isinstance(params, StoredSaveConfigMode):
            return params
        defaults = _mapping("default_values", default_values or {})
        return cls.of({**defaults, **_mapping("params", params)})

    def should_save_step(self, step_num: int) -> bool:
        """Return whether a step of the mode is saved."""
        is_over = self.end_step is not None and step_num >= self.end_step
        is_in_range = step_num >= self.start_step and not is_over
        is_due = is_in_range and step_num % self.save_interval == 0
        return is_due or step_num in self.save_steps

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields as in the collections file."""
        return {
            "save_interval": self.save_interval,
            "save_steps": list(self.save_steps),
            "start_step": self.start_step,
            "end_step": self.end_step,
        }


@dataclass(frozen=True)
class StoredSaveConfig(StoredSettings):
    """Steps at which a collection was saved.

    Attributes:
        mode_save_configs: Settings of each mode; None for modes missing from the file.
    """

    mode_save_configs: dict[ModeKeys, StoredSaveConfigMode | None]

    @classmethod
    def of(cls, members: dict[str, Any] | None) -> StoredSaveConfig | None:
        """Return the settings in a file, by names of modes; None if it has none."""
        if members is None:
            return None
        return cls({m: StoredSaveConfigMode.of(members.get(m.name)) for m in ModeKeys})

    @classmethod
    def from_dict(
        cls, params: Mapping[Any, Any] | None, default_values: Mapping[str, Any] | None = None
    ) -> StoredSaveConfig | None:
        """Return the settings of a mapping by modes or their names; returns None for None.

        `default_values` replace fields that a mode lacks.
        """
        if params is None:
            return None
        configs = {
            as_mode(mode): StoredSaveConfigMode.from_dict(of, default_values)
            for mode, of in _mapping("params", params).items()
        }
        return cls({mode: configs.get(mode) for mode in ModeKeys})

    @classmethod
    def parse(cls, obj: object) -> StoredSaveConfig:
        """Return settings: None gives the default, settings of one mode apply to all modes."""
        if isinstance(obj, StoredSaveConfig):
            return obj
        if obj is None or isinstance(obj, StoredSaveConfigMode):
            return cls(dict.fromkeys(ModeKeys, obj or StoredSaveConfigMode()))
        return cls.from_dict(_mapping("obj", obj)) or cls.parse(None)

    def get_save_config(self, mode: Mode) -> StoredSaveConfigMode | None:
        """Return the settings of a mode; None if the file has none."""
        return self.mode_save_configs[as_mode(mode)]

    def should_save_step(self, mode: Mode, step_num: int) -> bool:
        """Return whether a step of a mode is saved; False if the file does not mention the mode."""
        config = self.get_save_config(mode)
        return config is not None and config.should_save_step(step_num)

    def to_json_dict(self) -> dict[str, Any]:
        """Return one entry per mode by its name, as in the collections file."""
        configs = self.mode_save_configs.items()
        return {mode.name: config and config.to_json_dict() for mode, config in configs}


@dataclass(frozen=True)
class StoredReductionConfig(StoredSettings):
    """The reductions that were saved of a collection's tensors, and whether values were saved.

    Attributes:
        names: Names of the reductions in the file, such as `mean` or `abs_l2_norm`.
        save_raw_tensor: Whether values were saved.
        save_shape: Whether shapes were saved.
    """

    names: tuple[str, ...] = ()
    save_raw_tensor: bool = False
    save_shape: bool = False

    @classmethod
    def of(cls, members: dict[str, Any] | None) -> StoredReductionConfig | None:
        """Return the settings in a file; None if it has none."""
        if members is None:
            return None
        names = members.get("reductions")
        parts = names.split(",") if isinstance(names, str) else ()
        return cls(
            tuple(part.strip() for part in parts if part.strip()),
            members.get("save_raw_tensor") is True,
            members.get("save_shape") is True,
        )

    @classmethod
    def from_dict(cls, params: Mapping[str, Any] | None) -> StoredReductionConfig | None:
        """Return the settings of a mapping of the three fields; returns None for None."""
        return cls.of(None if params is None else dict(_mapping("params", params)))

    @property
    def reductions(self) -> list[str]:
        """The reductions of values, without norms."""
        return self._of_kind(is_absolute=False, is_norm=False)

    @property
    def abs_reductions(self) -> list[str]:
        """The reductions of absolute values, without norms."""
        return self._of_kind(is_absolute=True, is_norm=False)

    @property
    def norms(self) -> list[str]:
        """The norms: `l1`, `l2`."""
        return self._of_kind(is_absolute=False, is_norm=True)

    @property
    def abs_norms(self) -> list[str]:
        """The norms of the absolute values."""
        return self._of_kind(is_absolute=True, is_norm=True)

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields as in the collections file."""
        return {
            "save_raw_tensor": self.save_raw_tensor,
            "reductions": ",".join(self.names),
            "save_shape": self.save_shape,
        }

    def _of_kind(self, *, is_absolute: bool, is_norm: bool) -> list[str]:
        fit = [n for n in self.names if n.startswith(_ABSOLUTE) is is_absolute]
        plain = [name.removeprefix(_ABSOLUTE) for name in fit]
        return [_NORMS.get(name, name) for name in plain if (name in _NORMS) is is_norm]


def _mapping(name: str, value: object) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}={value!r:.200} must be a dict")
    return value


def _whole(value: object, least: int = 0) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= least else None
