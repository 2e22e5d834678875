"""The evidence of a finding: location, measured value, remedy, and lines of the script."""

from __future__ import annotations

import operator
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.known_collections import OF_LOGGED
from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.json_codec import JsonRecord

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Rule
    from rule_runtime.trial.step_view import StepView

__all__ = ["ANY_MEASURE", "Evidence", "completed", "completed_for_silence", "lines_of"]

_BUILT_IN: Final = "rule_runtime.rules."
ANY_MEASURE: Final = "*"
"""Stands for all measures of a rule."""
_MEASURE: Final = "check"
"""Default name of a finding's value."""
_OF_CALL: Final = re.compile(r"_(input|output)_\d+$")
_BEFORE_NAME: Final = re.compile(r"^|[/_]")
_AFTER_NAME: Final = re.compile(r"[./_:]|$")
_LAYERS, _LOSSES, _OPTIMIZERS = "layers", "losses", "optimizers"


@dataclass(frozen=True, kw_only=True)
class Evidence(JsonRecord):
    """The location of a finding, the measured value and a remedy.

    Attributes:
        step: Global step of the first finding.
        mode: Name of the mode of that step, e.g. `TRAIN`.
        worker: The worker whose tensor it is.
        tensor: Name of the worst tensor of that step.
        measure: Name of the measure, e.g. `abs_mean`.
        value: The measured value.
        threshold: The threshold of the value.
        sentence: The finding in one line, beginning with the tensor's name.
        remedy: What to try first.
        first_step: Global step of the first finding; by default `step`.
        last_step: Global step of the last finding so far; by default `step`.
        count: Number of steps with a finding so far.
        mode_step: The step's number within its mode; None if unknown.
        rule: Name of the built-in rule, or of the one that a custom rule extends; "" for others,
            None in findings of earlier versions.
        is_fatal: Whether the run cannot recover; None if it may.
        stopped_by: What keeps a gradient from the tensor; None if unknown.
        lines: Files and lines of the script: of the `tensor`'s layer or loss, of the `loss`, of the
            `optimizer`; None if unknown.
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
    rule: str | None = None
    is_fatal: bool | None = None
    stopped_by: str | None = None
    lines: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        for member in fields(self):
            if member.type in _CONVERSIONS:
                self._convert(member.name, *_CONVERSIONS[member.type])
        if self.first_step < 0:
            object.__setattr__(self, "first_step", self.step)
        if self.last_step < 0:
            object.__setattr__(self, "last_step", self.step)

    def _convert(self, name: str, convert: Callable[[Any], Any], expected: str) -> None:
        """Convert a member computed by a rule to its type."""
        value = getattr(self, name)
        try:
            object.__setattr__(self, name, convert(value))
        except (TypeError, ValueError):
            shown = reprlib.repr(value)
            text = f"the {name} of a finding is {shown}, but must be {expected}"
            raise TypeError(text) from None

    @property
    def line(self) -> str:
        """The finding on one line, with the worker, the mode and the step within that mode."""
        is_same = self.mode_step in (None, self.step)
        mode = self.mode if is_same else f"{self.mode} step {self.mode_step}"
        return f"{self.sentence} ({self.worker}, {mode})"

    @property
    def seen(self) -> str:
        """The steps at which it was found."""
        if self.count == 1:
            return f"Seen at step {self.first_step}."
        return f"Seen at {self.count} steps, {self.first_step} to {self.last_step}."

    def seen_again(self, step: int) -> Evidence:
        """Return the evidence with a further step; keeps the first finding."""
        return replace(self, last_step=max(self.last_step, step), count=self.count + 1)


def completed(evidence: Evidence, rule: type[Rule], step: StepView) -> Evidence:
    """Return the evidence with its rule; that of a text-only finding with step, tensor, remedy."""
    if not evidence.mode:
        evidence = _located(evidence, rule, step)
    lines = {**(lines_of(step, evidence.tensor, evidence.worker) or {}), **(evidence.lines or {})}
    return _of_rule(replace(evidence, lines=lines or None), rule)


def _located(evidence: Evidence, rule: type[Rule], step: StepView) -> Evidence:
    rows = step.tensors()
    prefix = evidence.sentence.partition(": ")[0]
    tensor = evidence.tensor or (prefix if prefix in rows.names else "")
    workers = dict(zip(reversed(rows.names), reversed(rows.workers), strict=True))
    if not evidence.sentence.startswith(tensor):
        evidence = replace(evidence, sentence=f"{tensor}: {evidence.sentence}")
    evidence = replace(evidence, tensor=tensor, worker=workers.get(tensor, step.workers[0]))
    return _at_step(evidence, rule, step.step, step.mode)


def completed_for_silence(evidence: Evidence, rule: type[Rule], step: int) -> Evidence:
    """Return the evidence of a run that saves nothing, completed for its last step or -1."""
    if not evidence.mode:
        evidence = _at_step(evidence, rule, max(step, 0), ModeKeys.GLOBAL)
    return _of_rule(evidence, rule)


def _of_rule(evidence: Evidence, rule: type[Rule]) -> Evidence:
    own = (kind.__name__ for kind in rule.__mro__ if kind.__module__.startswith(_BUILT_IN))
    is_fatal = not {evidence.measure, ANY_MEASURE}.isdisjoint(rule.fatal_measures)
    return replace(evidence, rule=next(own, ""), is_fatal=evidence.is_fatal or is_fatal or None)


def _at_step(evidence: Evidence, rule: type[Rule], step: int, mode: ModeKeys) -> Evidence:
    name, summary = rule.__name__, rule.summary()
    default_remedy = f"{name}: {summary}" if summary else f"Read the source of {name}."
    return replace(
        evidence,
        step=step,
        mode=mode.name,
        measure=evidence.measure or _MEASURE,
        remedy=evidence.remedy or default_remedy,
        first_step=step,
        last_step=step,
    )


def lines_of(step: StepView, tensor: str, worker: str) -> dict[str, str] | None:
    """Return files and lines that a finding in a tensor concerns; None if no line is known.

    Returns:
        `tensor`: that of its layer or loss, `loss` and `optimizer`: those of the only loss and
        optimizer of the script, or of the tensor's loss; each only if it is known.
    """
    file = step.collections_file(worker)
    if file is None or not file.script_lines:
        return None
    layers, losses, optimizers = (
        file.script_lines.get(kind, {}) for kind in (_LAYERS, _LOSSES, _OPTIMIZERS)
    )
    of_loss = _found(tensor, losses)
    lines = {
        "tensor": of_loss or _found(tensor, layers),
        "loss": of_loss or _only(losses),
        "optimizer": _only(optimizers),
    }
    return {kind: line for kind, line in lines.items() if line} or None


def _found(tensor: str, lines: Mapping[str, str]) -> str:
    """Return the line of the longest name in a tensor's name, as `fc.0` in `Net_fc.0.bias`."""
    return next((lines[name] for name in _names_in(tensor) if name in lines), "")


def _names_in(tensor: str) -> Iterator[str]:
    """Yield what may be the name of a layer or loss in a tensor's name, longest first."""
    if tensor.startswith(OF_LOGGED):
        return
    tensor = _OF_CALL.sub("", tensor)
    begins = [match.end() for match in _BEFORE_NAME.finditer(tensor)]
    ends = [match.start() for match in _AFTER_NAME.finditer(tensor)]
    spans = [(begin, end) for begin in begins for end in ends if begin < end]
    for begin, end in sorted(spans, key=lambda span: (span[0] - span[1], span[0])):
        yield tensor[begin:end]


def _only(lines: Mapping[str, str]) -> str:
    different = {*lines.values()}
    return different.pop() if len(different) == 1 else ""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str.__str__(value)  # names in numpy arrays have a subclass


def _number(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError
    return float(value)


_CONVERSIONS: Final[Mapping[Any, tuple[Callable[[Any], Any], str]]] = {
    "str": (_text, "a text"),
    "float": (_number, "a number"),
    "int": (operator.index, "a whole number"),
}
"""Conversion and expected type of a member, by annotation."""
