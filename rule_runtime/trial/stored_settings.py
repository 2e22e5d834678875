"""How a collection was saved, as its worker wrote it; attributes are those of the original's.

The hook's own classes check what people give; what a file holds is taken as it is, and is read
without a hook being installed. What changes a setting is of the hook's classes alone, for a stored
run changes no more: `set_save_config`, `merge_default_save_config`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hook_layer.format.modes import ModeKeys
from rule_runtime.trial.modes import Mode, as_mode

__all__ = ["StoredReductionConfig", "StoredSaveConfig", "StoredSaveConfigMode"]

_DEFAULT_INTERVAL: Final = 500
_ABSOLUTE: Final = "abs_"
_NORMS: Final = {"l1": "l1", "l2": "l2", "l1_norm": "l1", "l2_norm": "l2"}


@dataclass(frozen=True)
class StoredSaveConfigMode:
    """When a collection was saved in one mode; steps are counted within it.

    Attributes:
        save_interval: Every so many steps.
        start_step: First step for the interval.
        end_step: First step that the interval no longer saves; None for no such step.
        save_steps: Steps that are saved in any case.
    """

    save_interval: int = _DEFAULT_INTERVAL
    start_step: int = 0
    end_step: int | None = None
    save_steps: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, members: object) -> StoredSaveConfigMode | None:
        """Return what a file says of a mode, None if it says nothing.

        Args:
            members: The four fields; what is no whole number is as if it was not there.
        """
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
        """Return the settings of a mapping of the four fields; settings and None give themselves.

        Args:
            params: The fields, as `to_json_dict` gives them.
            default_values: Those that count where `params` lacks one.

        Raises:
            TypeError: One is no mapping.
        """
        if params is None or isinstance(params, StoredSaveConfigMode):
            return params
        return cls.of(
            {**_mapping("default_values", default_values or {}), **_mapping("params", params)}
        )

    def should_save_step(self, step_num: int) -> bool:
        """Return whether a step is saved.

        Args:
            step_num: The step within the mode.
        """
        is_over = self.end_step is not None and step_num >= self.end_step
        is_in_range = step_num >= self.start_step and not is_over
        is_due = is_in_range and step_num % self.save_interval == 0
        return is_due or step_num in self.save_steps

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields as the collections file has them."""
        return {
            "save_interval": self.save_interval,
            "save_steps": list(self.save_steps),
            "start_step": self.start_step,
            "end_step": self.end_step,
        }


@dataclass(frozen=True)
class StoredSaveConfig:
    """When a collection was saved.

    Attributes:
        mode_save_configs: That of each mode, None where the file says nothing of it.
    """

    mode_save_configs: dict[ModeKeys, StoredSaveConfigMode | None]

    @classmethod
    def of(cls, members: dict[str, Any] | None) -> StoredSaveConfig | None:
        """Return what a file says, None if it says nothing.

        Args:
            members: The fields of each mode by its name.
        """
        if members is None:
            return None
        return cls({m: StoredSaveConfigMode.of(members.get(m.name)) for m in ModeKeys})

    @classmethod
    def from_dict(
        cls, params: Mapping[Any, Any] | None, default_values: Mapping[str, Any] | None = None
    ) -> StoredSaveConfig | None:
        """Return the settings of a mapping by modes; None gives None.

        Args:
            params: By a mode or its name its settings, their four fields, or None.
            default_values: Fields that count where those of a mode lack one.

        Raises:
            TypeError: It is no mapping, or a mode's settings are none.
            ValueError: A key is no mode.
        """
        if params is None:
            return None
        configs = {
            as_mode(mode): StoredSaveConfigMode.from_dict(of, default_values)
            for mode, of in _mapping("params", params).items()
        }
        return cls({mode: configs.get(mode) for mode in ModeKeys})

    @classmethod
    def from_json(cls, json_str: str) -> StoredSaveConfig | None:
        """Return the settings of the text `json_str`, which `to_json` gives.

        Raises:
            ValueError: It is no JSON, or a key is no mode.
            TypeError: As of `from_dict`.
        """
        return cls.from_dict(json.loads(json_str))

    @classmethod
    def parse(cls, obj: object) -> StoredSaveConfig:
        """Return settings as such: None is the default, one mode's settings are those of all.

        Args:
            obj: None, settings of all modes or of one, or a mapping by modes.

        Raises:
            TypeError: It is something else.
            ValueError: A key is no mode.
        """
        if isinstance(obj, StoredSaveConfig):
            return obj
        if obj is None or isinstance(obj, StoredSaveConfigMode):
            return cls(dict.fromkeys(ModeKeys, obj or StoredSaveConfigMode()))
        return cls.from_dict(_mapping("obj", obj)) or cls.parse(None)

    def get_save_config(self, mode: Mode) -> StoredSaveConfigMode | None:
        """Return when the collection was saved in a mode, None if the file does not say it.

        Args:
            mode: The mode.
        """
        return self.mode_save_configs[as_mode(mode)]

    def should_save_step(self, mode: Mode, step_num: int) -> bool:
        """Return whether a step is saved; False if the file says nothing of its mode.

        Args:
            mode: The mode.
            step_num: The step within it.
        """
        config = self.get_save_config(mode)
        return config is not None and config.should_save_step(step_num)

    def to_json_dict(self) -> dict[str, Any]:
        """Return one entry for each mode by its name, as the collections file has them."""
        configs = self.mode_save_configs.items()
        return {mode.name: config and config.to_json_dict() for mode, config in configs}

    def to_json(self) -> str:
        """Return `to_json_dict()` as a text."""
        return json.dumps(self.to_json_dict())


@dataclass(frozen=True)
class StoredReductionConfig:
    """Which reductions were saved of a collection's tensors, and whether their values were.

    Attributes:
        names: The reductions as the file names them: `mean`, `abs_l2_norm`.
        save_raw_tensor: Whether values were saved.
        save_shape: Whether shapes were saved.
    """

    names: tuple[str, ...] = ()
    save_raw_tensor: bool = False
    save_shape: bool = False

    @classmethod
    def of(cls, members: dict[str, Any] | None) -> StoredReductionConfig | None:
        """Return what a file says, None if it says nothing.

        Args:
            members: `reductions`, names with commas between them, and the two flags.
        """
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
        """Return the settings of a mapping of the three fields; None gives None.

        Args:
            params: The fields, as `to_json_dict` gives them.

        Raises:
            TypeError: It is no mapping.
        """
        return cls.of(None if params is None else dict(_mapping("params", params)))

    @classmethod
    def from_json(cls, json_str: str) -> StoredReductionConfig | None:
        """Return the settings of the text `json_str`, which `to_json` gives.

        Raises:
            ValueError: It is no JSON.
            TypeError: It is no object.
        """
        return cls.from_dict(json.loads(json_str))

    @property
    def reductions(self) -> list[str]:
        """Those that are no norms, of the values."""
        return self._of_kind(is_absolute=False, is_norm=False)

    @property
    def abs_reductions(self) -> list[str]:
        """Those that are no norms, of the absolute values."""
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
        """Return the fields as the collections file has them."""
        return {
            "save_raw_tensor": self.save_raw_tensor,
            "reductions": ",".join(self.names),
            "save_shape": self.save_shape,
        }

    def to_json(self) -> str:
        """Return `to_json_dict()` as a text."""
        return json.dumps(self.to_json_dict())

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
