"""The attributes of a rule written for the original client, as JSON between two steps."""

from __future__ import annotations

import functools
import json
import logging
import types
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rule_runtime.custom_rules.kept_values import UnkeepableError, kept, restored
from rule_runtime.trial.tensor import Tensor

if TYPE_CHECKING:
    from rule_runtime.custom_rules.smdebug_rule import Rule

__all__ = ["MAX_KEPT_CHARACTERS", "KeptAttributes"]

MAX_KEPT_CHARACTERS: Final = 256 << 10
"""Length of the JSON of all attributes; what is kept between calls has to fit into a table."""

_OF_THE_BASE: Final = frozenset(
    {"base_trial", "other_trials", "trials", "req_tensors", "logger", "_actions"}
)
"""Attributes that `Rule.__init__` makes anew in every process."""

_CONSTANT: Final = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
    *(type, functools.partial, logging.Logger, np.ufunc),
)
"""What cannot change: taken from the constructor as long as it is what the constructor made."""


class KeptAttributes:
    """Takes the attributes of a rule out as JSON, and puts them in again.

    Args:
        rule: The rule, as its constructor made it.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._constants = {
            name: value
            for name, value in vars(rule).items()
            if name not in _OF_THE_BASE and isinstance(value, _CONSTANT)
        }

    def take(self) -> str:
        """Return the attributes as the text of a JSON object.

        Raises:
            UnkeepableError: If one cannot be kept, or all are too much; the message names it.
        """
        taken: dict[str, str] = {}
        for name, value in sorted(vars(self._rule).items()):
            is_constant = name in self._constants and value is self._constants[name]
            if name in _OF_THE_BASE or is_constant:
                continue
            try:
                taken[name] = json.dumps(kept(value, self._refer))
            except UnkeepableError as error:
                raise UnkeepableError(
                    f"the attribute {name!r} cannot be kept between steps, for it is or holds "
                    f"{error}; keep numbers, strings, containers of them and small arrays, or make "
                    "it anew in invoke_at_step"
                ) from None
        text = ", ".join([f"{json.dumps(name)}: {value}" for name, value in taken.items()])
        if len(text) > MAX_KEPT_CHARACTERS:
            largest = max(taken, key=lambda name: len(taken[name]))
            raise UnkeepableError(
                f"the attributes take {len(text)} characters of JSON, and {MAX_KEPT_CHARACTERS} "
                f"may be kept between steps; the attribute {largest!r} alone takes "
                f"{len(taken[largest])}"
            )
        return f"{{{text}}}"

    def put_back(self, taken: str) -> None:
        """Give the rule the attributes that were taken, and no others.

        Args:
            taken: What `take` returned, in this process or another.
        """
        attributes = vars(self._rule)
        for name in [name for name in attributes if name not in _OF_THE_BASE]:
            del attributes[name]
        attributes.update(self._constants)
        for name, data in json.loads(taken).items():
            attributes[name] = restored(data, self._find)

    def _refer(self, value: Any) -> list[Any] | None:
        trials = self._rule.trials
        trial = value.trial if isinstance(value, Tensor) else value
        for at, known in enumerate(trials):
            if trial is known:
                return ["reference", at, value.name if isinstance(value, Tensor) else None]
        return None

    def _find(self, data: list[Any]) -> Any:
        trial = self._rule.trials[data[1]]
        return trial if data[2] is None else trial.tensor(data[2])
