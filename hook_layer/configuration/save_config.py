"""Defines when a collection is saved: every n steps, in a range, and at listed steps; per mode."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hook_layer.configuration.json_values import as_integer, as_object, known_keys, load_json
from hook_layer.errors import HookConfigurationError, nearest
from hook_layer.format.modes import ModeKeys

__all__ = ["DEFAULT_SAVE_INTERVAL", "SaveConfig", "SaveConfigMode", "save_config_changes"]

DEFAULT_SAVE_INTERVAL: Final = 500
_FIELDS: Final = ("save_interval", "save_steps", "start_step", "end_step")


@dataclass
class _Changes:
    number: int = 0


save_config_changes: Final = _Changes()
"""Counts added collections and changes of save configurations in this process."""


class SaveConfigMode:
    """When to save in one mode.

    A step is saved if it is in `save_steps`, or if it is in `[start_step, end_step)` and divisible
    by `save_interval`. Steps are counted per mode.

    Args:
        save_interval: Interval between saved steps (default 500).
        start_step: First step for the interval (default 0).
        end_step: End of the range, exclusive (default: no end); 0: an empty range.
        save_steps: Additional steps to save.

    Raises:
        HookConfigurationError: A value is not an integer, out of range, or the range has no step.
    """

    __slots__ = ("_listed", "end_step", "save_interval", "save_steps", "start_step")

    def __init__(
        self,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: Sequence[int] | None = None,
    ) -> None:
        default = DEFAULT_SAVE_INTERVAL
        self.save_interval = (
            default
            if save_interval is None
            else as_integer("save_interval", save_interval, minimum=1)
        )
        self.start_step = (
            0 if start_step is None else as_integer("start_step", start_step, minimum=0)
        )
        self.end_step = None if end_step is None else as_integer("end_step", end_step, minimum=0)
        if self.end_step and self.start_step >= self.end_step:
            raise HookConfigurationError(
                f"start_step={self.start_step} must be below end_step={self.end_step}; for "
                "save_steps only, set end_step=0"
            )
        if isinstance(save_steps, (str, bytes)) or not isinstance(
            save_steps, (Sequence, type(None))
        ):
            raise HookConfigurationError(
                f"save_steps={save_steps!r} must be a list of integers, e.g. [0, 10]"
            )
        self.save_steps = [as_integer("save_steps", step, minimum=0) for step in save_steps or ()]
        self._listed: tuple[list[int], tuple[int, ...]] = (self.save_steps, ())

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, and count the change."""
        object.__setattr__(self, name, value)
        save_config_changes.number += name in _FIELDS

    def should_save_step(self, step_num: int) -> bool:
        """Return whether step `step_num` of this mode is saved."""
        if self._next_listed(step_num) == step_num:
            return True
        if step_num < self.start_step or (self.end_step is not None and step_num >= self.end_step):
            return False
        return step_num % self.save_interval == 0

    def next_step(self, step_num: int) -> float:
        """Return the next saved step of this mode after `step_num`; infinity if there is none."""
        interval = self.save_interval
        after = max(self.start_step, step_num + 1)
        regular = -(-after // interval) * interval
        is_over = self.end_step is not None and regular >= self.end_step
        listed = self._next_listed(step_num + 1)
        return listed if is_over else min(regular, listed)

    def _next_listed(self, step_num: int) -> float:
        """Return the first of `save_steps` from `step_num` on; infinity if there is none."""
        steps, in_order = self._listed  # a long list takes long to search
        if steps is not self.save_steps or len(in_order) != len(steps):  # it was changed
            in_order = (*sorted(self.save_steps),)
            self._listed = self.save_steps, in_order
        place = bisect_left(in_order, step_num)
        return in_order[place] if place < len(in_order) else math.inf

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields in the format of the collections file."""
        return {
            "save_interval": self.save_interval,
            "save_steps": list(self.save_steps),
            "start_step": self.start_step,
            "end_step": self.end_step,
        }

    @classmethod
    def from_dict(
        cls, params: Mapping[str, Any] | None, default_values: Mapping[str, Any] | None = None
    ) -> SaveConfigMode | None:
        """Create from a mapping of the four fields; None gives None.

        Raises:
            HookConfigurationError: `params` is no mapping, or has an unknown field or invalid
                value.
        """
        if params is None:
            return None
        given = {
            **known_keys("default_values.", as_object("default_values", default_values), _FIELDS),
            **known_keys("params.", as_object("params", params), _FIELDS),
        }
        return cls(**given)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SaveConfigMode):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    def __hash__(self) -> int:
        return hash((self.save_interval, self.start_step, self.end_step, tuple(self.save_steps)))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _FIELDS)
        return f"SaveConfigMode({fields})"


class SaveConfig:
    """When to save, for every mode.

    Pass either the four plain arguments, for all modes, or `mode_save_configs` with one
    `SaveConfigMode` per mode. Missing modes use the hook's default, and the four arguments then
    have no effect.

    Raises:
        HookConfigurationError: A mode, a `SaveConfigMode` or a number is invalid.
    """

    def __init__(
        self,
        mode_save_configs: Mapping[ModeKeys, SaveConfigMode | None] | None = None,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: Sequence[int] | None = None,
    ) -> None:
        self.mode_save_configs: dict[ModeKeys, SaveConfigMode | None]
        one = SaveConfigMode(save_interval, start_step, end_step, save_steps)
        if mode_save_configs is None:
            self.mode_save_configs = dict.fromkeys(ModeKeys, one)
            return
        for mode, config in mode_save_configs.items():
            if not isinstance(mode, ModeKeys) or not isinstance(
                config, (SaveConfigMode, type(None))
            ):
                raise HookConfigurationError(
                    f"mode_save_configs has {mode!r}: {config!r}; it must map ModeKeys to "
                    "SaveConfigMode, e.g. {modes.TRAIN: SaveConfigMode(save_interval=10)}"
                )
        self.mode_save_configs = {mode: mode_save_configs.get(mode) for mode in ModeKeys}

    def get_save_config(self, mode: ModeKeys) -> SaveConfigMode:
        """Return the configuration of a mode.

        Raises:
            HookConfigurationError: This mode is missing, and no default was merged.
        """
        config = self.mode_save_configs[mode]
        if config is None:
            raise HookConfigurationError(
                f"no SaveConfigMode for mode {mode.name}: give one, or merge_default_save_config()"
            )
        return config

    def set_save_config(self, mode: ModeKeys, save_config_mode: SaveConfigMode) -> None:
        """Set the configuration of a mode."""
        if not isinstance(save_config_mode, SaveConfigMode):
            raise HookConfigurationError(
                f"save_config_mode={save_config_mode!r} must be a SaveConfigMode"
            )
        self.mode_save_configs[mode] = save_config_mode
        save_config_changes.number += 1

    def should_save_step(self, mode: ModeKeys, step_num: int) -> bool:
        """Return whether step `step_num`, counted in `mode`, is saved."""
        return self.get_save_config(mode).should_save_step(step_num)

    def merge_default_save_config(self, default_save_config: SaveConfig) -> None:
        """Fill missing modes from `default_save_config`."""
        for mode, config in self.mode_save_configs.items():
            if config is None:
                default = default_save_config.mode_save_configs[mode]
                self.mode_save_configs[mode] = default or SaveConfigMode()

    def to_json_dict(self) -> dict[str, Any]:
        """Return one entry per mode name, in the format of the collections file."""
        return {
            mode.name: config.to_json_dict() if config else None
            for mode, config in self.mode_save_configs.items()
        }

    def to_json(self) -> str:
        """Return `to_json_dict()` as a string."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(
        cls, params: Mapping[Any, Any] | None, default_values: Mapping[str, Any] | None = None
    ) -> SaveConfig | None:
        """Create from a mapping of modes (or their names) to configurations (or dicts).

        Raises:
            HookConfigurationError: The mapping is invalid.
        """
        if params is None:
            return None
        configs: dict[ModeKeys, SaveConfigMode | None] = {}
        for key, value in as_object("params", params).items():
            mode = _mode(key)
            is_config = isinstance(value, SaveConfigMode)
            configs[mode] = value if is_config else SaveConfigMode.from_dict(value, default_values)
        return cls(mode_save_configs=configs)

    @classmethod
    def from_json(cls, json_str: str) -> SaveConfig | None:
        """Create from the result of `to_json`."""
        return cls.from_dict(load_json("json_str", json_str))

    @classmethod
    def from_save_config_mode(cls, save_config_mode: SaveConfigMode) -> SaveConfig:
        """Create from one configuration for all modes."""
        return cls(mode_save_configs=dict.fromkeys(ModeKeys, save_config_mode))

    @classmethod
    def parse(cls, obj: object) -> SaveConfig:
        """Create from None, a SaveConfig, a SaveConfigMode, or a mapping of modes.

        Raises:
            HookConfigurationError: `obj` is something else.
        """
        if obj is None:
            return cls()
        if isinstance(obj, SaveConfig):
            return obj
        if isinstance(obj, SaveConfigMode):
            return cls.from_save_config_mode(obj)
        if isinstance(obj, Mapping):
            return cls.from_dict(obj) or cls()
        raise HookConfigurationError(
            f"save_config={obj!r} must be a SaveConfig, a SaveConfigMode or a dict of modes"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SaveConfig):
            return NotImplemented
        return self.mode_save_configs == other.mode_save_configs

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"SaveConfig({self.mode_save_configs})"


def _mode(key: object) -> ModeKeys:
    if isinstance(key, ModeKeys):
        return key
    names = [mode.name for mode in ModeKeys]
    if key not in names:
        raise HookConfigurationError(f"unknown mode {key!r}: {nearest(str(key), names)}")
    return ModeKeys[str(key)]
