"""Stores the attributes of an original client's rule as JSON between two steps."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import pickle
import sys
import types
from collections import defaultdict
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rule_runtime.custom_rules.json_values import UnkeepableError, kept, restored
from rule_runtime.trial.tensor import Tensor

if TYPE_CHECKING:
    from rule_runtime.custom_rules.smdebug_rule import Rule

_logger: Final = logging.getLogger("stepwatch")

__all__ = ["MAX_KEPT_CHARACTERS", "KeptAttributes"]

MAX_KEPT_CHARACTERS: Final = 256 << 10
"""Maximum length of the JSON of all attributes, so that it fits into a table."""

_IN_PLACE: Final = '["in place"]'
_OF_THE_BASE: Final = frozenset(
    {"base_trial", "other_trials", "trials", "req_tensors", "logger", "_actions"}
)
"""Attributes that `Rule.__init__` sets in every process."""

_CONSTANT: Final = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
    *(type, functools.partial, logging.Logger, np.ufunc),
)
"""Constant types: taken from the constructor while unchanged."""


class _Handle:
    """A constructor's object that JSON cannot represent: a lock, a client, a table of settings.

    Every process creates its own. It is not stored while it is unchanged.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self._print = _print(value)
        self._has_warned = False

    def is_unchanged(self, value: Any) -> bool:
        """Return whether a value is this object, unchanged as far as pickle can tell."""
        return value is self.value and _print(value) == self._print

    def warn(self, rule: str, name: str) -> None:
        """Warn once that it is not stored."""
        if not self._has_warned:
            message = "%s: the attribute %r, a %s, is created by __init__ in every process"
            _logger.warning(message, rule, name, type(self.value).__qualname__)
        self._has_warned = True


def _print(value: Any) -> bytes | None:
    try:  # only to detect changes; nothing is ever unpickled
        return hashlib.sha256(pickle.dumps(value)).digest()
    except Exception:  # noqa: BLE001 - whatever it is, it says in its own way that it cannot
        return None


class KeptAttributes:
    """Saves the attributes of a rule as JSON and restores them."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        own = {name: value for name, value in vars(rule).items() if name not in _OF_THE_BASE}
        self._constants = {
            name: value for name, value in own.items() if isinstance(value, _CONSTANT)
        }
        self._factories = {
            name: value.default_factory
            for name, value in own.items()
            if type(value) is defaultdict and value.default_factory is not None
        }
        self._handles = {name: _Handle(value) for name, value in own.items() if self._is_one(value)}

    def take(self) -> str:
        """Return the attributes as the text of a JSON object.

        Raises:
            UnkeepableError: If one cannot be stored, or all are too large; names the attribute.
        """
        taken: dict[str, str] = {}
        for name, value in sorted(vars(self._rule).items()):
            is_constant = name in self._constants and value is self._constants[name]
            if name in _OF_THE_BASE or is_constant:
                continue
            try:
                taken[name] = json.dumps(kept(value, self._refer))
            except UnkeepableError as error:
                handle = self._handles.get(name)
                if handle is not None and handle.is_unchanged(value):
                    handle.warn(type(self._rule).__name__, name)
                    taken[name] = _IN_PLACE
                    continue
                raise UnkeepableError(
                    f"the attribute {name!r} cannot be stored between steps, because it is or "
                    f"contains {error}; use numbers, strings, containers of them and small arrays, "
                    "or create it in invoke_at_step"
                ) from None
        text = ", ".join([f"{json.dumps(name)}: {value}" for name, value in taken.items()])
        if len(text) > MAX_KEPT_CHARACTERS:
            largest = max(taken, key=lambda name: len(taken[name]))
            raise UnkeepableError(
                f"the attributes take {len(text)} characters of JSON, and {MAX_KEPT_CHARACTERS} "
                f"can be stored between steps; the attribute {largest!r} alone takes "
                f"{len(taken[largest])}"
            )
        return f"{{{text}}}"

    def put_back(self, taken: str) -> None:
        """Set the rule's attributes to the saved ones, and remove others."""
        attributes = vars(self._rule)
        for name in [name for name in attributes if name not in _OF_THE_BASE]:
            del attributes[name]
        attributes.update(self._constants)
        for name, data in json.loads(taken).items():
            is_handle = data == json.loads(_IN_PLACE)
            attributes[name] = (
                self._handles[name].value if is_handle else restored(data, self._find)
            )

    def _is_one(self, value: Any) -> bool:
        if isinstance(value, _CONSTANT):
            return False
        try:
            kept(value, self._refer)
        except UnkeepableError:
            return True
        return False

    def _of_a_class(self, value: Any) -> list[Any] | None:
        """Return the name and fields of an object whose class the rule's file knows."""
        cls = type(value)
        if self._class(cls.__name__) is not cls:
            return None
        if isinstance(value, Enum) and value.name in cls.__members__:
            return ["member", cls.__name__, value.name]
        if isinstance(value, tuple) and hasattr(cls, "_make"):
            return ["named", cls.__name__, kept(list(value), self._refer)]
        if is_dataclass(cls) and cls.__new__ is object.__new__:
            names = [field.name for field in fields(cls) if hasattr(value, field.name)]
            if vars(value).keys() <= set(names) if hasattr(value, "__dict__") else True:
                pairs = {name: getattr(value, name) for name in names}
                return ["fields", cls.__name__, kept(pairs, self._refer)]
        return None

    def _made_of_class(self, kind: str, name: str, data: Any) -> Any:
        cls: Any = self._class(name)
        if kind == "member":
            return cls[data]
        values = restored(data, self._find)
        if kind == "named":
            return cls._make(values)
        made = object.__new__(cls)
        for field, value in values.items():
            object.__setattr__(made, field, value)
        return made

    def _class(self, name: str) -> type | None:
        module = sys.modules.get(type(self._rule).__module__)
        found = getattr(module, name, None)
        return found if isinstance(found, type) else None

    def _refer(self, value: Any) -> list[Any] | None:
        for name, factory in self._factories.items():
            if factory is value:
                return ["reference", "factory", name]
        of_class = self._of_a_class(value)
        if of_class is not None:
            return ["reference", *of_class]
        trials = self._rule.trials
        trial = value.trial if isinstance(value, Tensor) else value
        for at, known in enumerate(trials):
            if trial is known:
                return ["reference", at, value.name if isinstance(value, Tensor) else None]
        return None

    def _find(self, data: list[Any]) -> Any:
        if data[1] == "factory":
            return self._factories[data[2]]
        if data[1] in ("member", "named", "fields"):
            return self._made_of_class(*data[1:])
        trial = self._rule.trials[data[1]]
        return trial if data[2] is None else trial.tensor(data[2])
