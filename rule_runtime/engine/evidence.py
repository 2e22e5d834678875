"""What a finding rests on: where it was seen, what was measured and what to try."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

__all__ = ["Evidence", "json_number"]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a finding rests on: where it was seen, what was measured and what to try.

    Attributes:
        step: Global step of the first finding.
        mode: Name of the mode of that step, e.g. `TRAIN`.
        worker: The worker whose tensor it is.
        tensor: Name of the worst tensor of that step.
        measure: Name of what was measured, e.g. `abs_mean`.
        value: The measured value.
        threshold: What the value was compared with.
        sentence: The finding in one line, beginning with the tensor's name.
        remedy: What to try first.
        first_step: Global step of the first finding; `step` unless given.
        last_step: Global step of the last finding so far; `step` unless given.
        count: Number of steps with a finding so far.
        mode_step: The step's number within its mode; None where nobody said it.
    """

    step: int
    mode: str
    worker: str
    tensor: str
    measure: str
    value: float
    threshold: float
    sentence: str
    remedy: str
    first_step: int = -1
    last_step: int = -1
    count: int = 1
    mode_step: int | None = None

    def __post_init__(self) -> None:
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise TypeError(_wrong_member(name, getattr(self, name), "a text"))
        for name in _NUMBERS:
            object.__setattr__(self, name, _as_number(name, getattr(self, name)))
        for name in _COUNTS:
            object.__setattr__(self, name, _as_count(name, getattr(self, name)))
        if self.first_step < 0:
            object.__setattr__(self, "first_step", self.step)
        if self.last_step < 0:
            object.__setattr__(self, "last_step", self.step)

    @property
    def line(self) -> str:
        """The finding in one line, with the worker, the mode and its own count of steps."""
        is_same = self.mode_step in (None, self.step)
        mode = self.mode if is_same else f"{self.mode} step {self.mode_step}"
        return f"{self.sentence} ({self.worker}, {mode})"

    @property
    def seen(self) -> str:
        """At which steps it was seen."""
        if self.count == 1:
            return f"Seen at step {self.first_step}."
        return f"Seen at {self.count} steps, {self.first_step} to {self.last_step}."

    def seen_again(self, step: int) -> Evidence:
        """Return the evidence with one more step counted; the first finding is kept.

        Args:
            step: Global step of the further finding.
        """
        return replace(self, last_step=max(self.last_step, step), count=self.count + 1)

    def to_json(self) -> dict[str, Any]:
        """Return a dict that any JSON encoder takes; non-finite numbers become their names."""
        known = {} if self.mode_step is None else {"mode_step": self.mode_step}
        return {
            "step": self.step,
            "mode": self.mode,
            **known,
            "worker": self.worker,
            "tensor": self.tensor,
            "measure": self.measure,
            "value": json_number(self.value),
            "threshold": json_number(self.threshold),
            "sentence": self.sentence,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "count": self.count,
            "remedy": self.remedy,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evidence:
        """Return the evidence that `to_json` wrote.

        Args:
            data: The decoded JSON object.
        """
        return cls(
            step=int(data["step"]),
            mode=str(data["mode"]),
            worker=str(data["worker"]),
            tensor=str(data["tensor"]),
            measure=str(data["measure"]),
            value=float(data["value"]),  # float() reads "NaN", "Infinity" and "-Infinity"
            threshold=float(data["threshold"]),
            sentence=str(data["sentence"]),
            first_step=int(data["first_step"]),
            last_step=int(data["last_step"]),
            count=int(data["count"]),
            remedy=str(data["remedy"]),
            mode_step=None if data.get("mode_step") is None else int(data["mode_step"]),
        )


_TEXTS: Final = ("mode", "worker", "tensor", "measure", "sentence", "remedy")
_NUMBERS: Final = ("value", "threshold")
_COUNTS: Final = ("step", "first_step", "last_step", "count")


def _as_number(name: str, value: object) -> float:
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)  # type: ignore[arg-type]  # whatever a rule computed
    except (TypeError, ValueError):
        pass
    raise TypeError(_wrong_member(name, value, "a number"))


def _as_count(name: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]  # whatever a rule computed
    except TypeError:
        raise TypeError(_wrong_member(name, value, "a whole number")) from None


def _wrong_member(name: str, value: object, expected: str) -> str:
    return f"the {name} of a finding is {reprlib.repr(value)}, but must be {expected}"


def json_number(value: float) -> float | str:
    """Return a number as any JSON encoder takes it: one that is not finite becomes its name.

    Args:
        value: The number.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
