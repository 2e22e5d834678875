"""What a rule answers for one step, and how a verdict is told to people and to the training API."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.evaluation.reason_tally import commonest
from rule_runtime.evaluation.wording import counted

if TYPE_CHECKING:
    from rule_runtime.evaluation.state import Counts, EvaluationState

__all__ = [
    "MAX_STATUS_DETAILS_LENGTH",
    "NOT_EVALUATED",
    "Evidence",
    "Failed",
    "IssueFound",
    "NotApplicable",
    "NotEvaluated",
    "Outcome",
    "Passed",
    "RuleStatus",
    "is_insufficient",
    "json_number",
    "status_details",
]

MAX_STATUS_DETAILS_LENGTH: Final = 1024
"""Characters; the limit of `StatusDetails` in the training API."""

NOT_EVALUATED: Final = "not evaluated"
"""What people are told of a rule that had nothing to judge, whose status is an Error to the API."""

_INSUFFICIENT: Final = "InsufficientInformationForRuleInvocation: "
_ELLIPSIS: Final = "..."


class RuleStatus(str, Enum):
    """Status of a rule's evaluation, with the names of the training API."""

    IN_PROGRESS = "InProgress"
    NO_ISSUES_FOUND = "NoIssuesFound"
    ISSUES_FOUND = "IssuesFound"
    ERROR = "Error"
    STOPPING = "Stopping"
    STOPPED = "Stopped"

    @property
    def is_final(self) -> bool:
        """True once the status is a verdict that only a stronger finding may replace."""
        return self in _FINAL


_FINAL: Final = frozenset({RuleStatus.NO_ISSUES_FOUND, RuleStatus.ISSUES_FOUND, RuleStatus.ERROR})


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


@dataclass(frozen=True)
class Passed:
    """The step was judged and nothing is wrong with it."""


@dataclass(frozen=True, init=False)
class IssueFound:
    """The step was judged and the rule's condition holds.

    `IssueFound("loss 12.3 above 5")` is enough. The evaluator adds step, mode and worker. It also
    adds the tensor if the text begins with its name and a colon.

    Args:
        evidence: The finding in one line, or the whole evidence.
        tensor: Name of the tensor, if a text is given and does not begin with it.
        measure: Name of what was measured; a statistic such as `l2` is plotted in reports.
        value: The measured value.
        threshold: What the value was compared with.
        remedy: What to try first. By default it names the rule and what it finds.

    Attributes:
        evidence: What the finding rests on.

    Raises:
        TypeError: The evidence is neither a text nor an `Evidence`, or a detail has a wrong type.
        ValueError: The text is empty, or details are given beside an `Evidence`, which has them.
    """

    evidence: Evidence

    def __init__(
        self,
        evidence: Evidence | str,
        *,
        tensor: str = "",
        measure: str = "",
        value: float = math.nan,
        threshold: float = math.nan,
        remedy: str = "",
    ) -> None:
        has_details = bool(tensor or measure or remedy) or value == value or threshold == threshold  # noqa: PLR0124 - not NaN
        if isinstance(evidence, Evidence):
            if has_details:
                raise ValueError("IssueFound got an Evidence and details: put them into the former")
        elif not isinstance(evidence, str):
            raise TypeError(
                f"IssueFound got {reprlib.repr(evidence)}, but takes a text, such as "
                'IssueFound("loss 12.3 above 5"), or an Evidence'
            )
        elif not evidence.strip():
            raise ValueError("IssueFound got an empty text: say what was found, in one line")
        else:
            evidence = Evidence(
                step=-1,
                mode="",
                worker="",
                tensor=tensor,
                measure=measure,
                value=value,
                threshold=threshold,
                sentence=" ".join(evidence.split()),
                remedy=remedy,
            )
        object.__setattr__(self, "evidence", evidence)


@dataclass(frozen=True)
class NotEvaluated:
    """The step could not be judged.

    Attributes:
        reason: Why, in one line for the user.
    """

    reason: str


@dataclass(frozen=True)
class NotApplicable(NotEvaluated):
    """The step is none of those that the rule judges: one of another mode, say.

    Such steps are counted by themselves, and their reason is told only where no other is known.
    """


@dataclass(frozen=True)
class Failed:
    """The rule itself is broken: its evaluation over this run is over.

    Attributes:
        reason: What went wrong, e.g. `KeyError: 'loss' (my_rule.py, line 12: values["loss"])`.
    """

    reason: str


Outcome = Passed | IssueFound | NotEvaluated | Failed


def status_details(rule_configuration_name: str, state: EvaluationState) -> str:
    """Return the text of `StatusDetails` for a state, at most 1,024 characters.

    A finding begins with the sentence that users of the original know, so that scripts which search
    for it still work; the evidence follows on a line of its own.

    Args:
        rule_configuration_name: The name under which the rule is configured.
        state: The state to tell about.
    """
    counts = state.counts
    if state.evidence is not None:
        evidence = state.evidence
        text = (
            f"RuleEvaluationConditionMet: Evaluation of the rule {rule_configuration_name} at step "
            f"{evidence.step} resulted in the condition being met\n{evidence.line}"
        )
    elif state.has_found_nothing_to_judge:
        text = (
            f"{_INSUFFICIENT}Insufficient information to invoke rule "
            f"{rule_configuration_name}: {state.reason}"
        )
    elif state.status is RuleStatus.ERROR:
        text = f"Evaluation of the rule {rule_configuration_name} failed: {state.reason}"
    else:
        evaluated = counted(counts.evaluated, "step")
        text = f"{evaluated} evaluated, {counts.not_evaluated} not evaluated"
        if counts.not_evaluated:
            text += _because(counts)
        if counts.not_applicable:
            text += f"; {counts.not_applicable} not applicable"
        if counts.unreadable:
            text += f"; {counted(counts.unreadable, 'file')} unreadable: {counts.last_problem}"
        if counts.missing:
            were, are = ("was", "is") if counts.missing == 1 else ("were", "are")
            text += f"; {counted(counts.missing, 'step')} that {were} to be saved {are} missing"
        if counts.given_up:
            text += f"; {counted(counts.given_up, 'worker')} given up: {counts.last_problem}"
    if len(text) > MAX_STATUS_DETAILS_LENGTH:
        text = text[: MAX_STATUS_DETAILS_LENGTH - len(_ELLIPSIS)] + _ELLIPSIS
    return text


def _because(counts: Counts) -> str:
    """Return why most of the steps that were not evaluated were not."""
    most = commonest(counts.reasons)
    if most is None:  # a state of an earlier version
        return f", the last because {counts.last_reason}" if counts.last_reason else ""
    is_all = most.count == counts.not_evaluated
    told = "" if is_all else f", {most.count} of them"
    if most.mode not in ("", "GLOBAL"):  # runs of one mode only may name none
        told = f"{', all' if is_all else told} of mode {most.mode},"
    return f"{told} because {most.text}"


def is_insufficient(details: str) -> bool:
    """Tell whether `StatusDetails` say that a rule had nothing to judge.

    Args:
        details: The text.
    """
    return details.startswith(_INSUFFICIENT)


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
