"""What a rule returns for a step, and the status and status details of its verdict."""

from __future__ import annotations

import math
import re
import reprlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from rule_runtime.engine.evidence import Evidence

if TYPE_CHECKING:
    from rule_runtime.engine.counts import Counts
    from rule_runtime.engine.state import EvaluationState

__all__ = [
    "MAX_STATUS_DETAILS_LENGTH",
    "NOT_EVALUATED",
    "NOT_EVALUATED_YET",
    "STATUS_ORDER",
    "Evidence",
    "Failed",
    "IssueFound",
    "Missing",
    "NotApplicable",
    "NotEnough",
    "NotEvaluated",
    "Outcome",
    "Passed",
    "RuleStatus",
    "counted",
    "is_insufficient",
    "needs_more",
    "shortened",
    "status_details",
    "status_text",
    "without_api_prefix",
]

MAX_STATUS_DETAILS_LENGTH: Final = 1024
"""Maximum number of characters in `StatusDetails` in the training API."""

NOT_EVALUATED: Final = "not evaluated"
"""Display status of a rule without data; its status in the API is Error."""
NOT_EVALUATED_YET: Final = "not evaluated yet"
"""Display status of a rule that needs more steps or elements; its status in the API is Error."""

_INSUFFICIENT: Final = "InsufficientInformationForRuleInvocation: "
_API_PREFIX: Final = re.compile(
    f"^{_INSUFFICIENT}Insufficient information to invoke rule .*?(?P<yet> yet)?: "
)


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
        """True if the status is a verdict; only a stronger verdict can replace it."""
        return self in _FINAL


STATUS_ORDER: Final = (
    *(RuleStatus.ISSUES_FOUND, RuleStatus.ERROR, RuleStatus.STOPPING, RuleStatus.STOPPED),
    *(RuleStatus.IN_PROGRESS, RuleStatus.NO_ISSUES_FOUND),
)
"""Display order of verdicts."""

_FINAL: Final = frozenset({RuleStatus.NO_ISSUES_FOUND, RuleStatus.ISSUES_FOUND, RuleStatus.ERROR})


@dataclass(frozen=True)
class Passed:
    """The step was evaluated without a finding.

    It counts as evaluated once the rule's needs are met, see `Rule.needs`.

    Attributes:
        advice: A possible improvement in one line; empty for none. It is displayed, but is no
            finding and stops nothing.
        has_decided: Whether the step counts as evaluated before the rule's needs are met.
    """

    advice: str = ""
    has_decided: bool = False


@dataclass(frozen=True, init=False)
class IssueFound:
    """The step was evaluated, and the rule's condition holds.

    `IssueFound("loss 12.3 above 5")` is enough. The evaluator adds step, mode and worker. It also
    adds the tensor if the text begins with its name and a colon.

    Args:
        evidence: The finding on one line, or an `Evidence`.
        tensor: Name of the tensor, if the text does not begin with it.
        measure: Name of the measure; a statistic such as `l2` is plotted in reports.
        value: The measured value.
        threshold: The threshold of the value.
        remedy: What to try first; by default, the rule and what it finds.

    Raises:
        TypeError: The evidence is neither a text nor an `Evidence`, or a detail has a wrong type.
        ValueError: The text is empty, or details are given in addition to an `Evidence`.
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
    """The step could not be evaluated.

    Attributes:
        reason: Why, in one line for the user.
        needs_more: Whether later steps can complete the data, see `NotEnough`.
    """

    reason: str
    needs_more: bool = False


class Missing(Exception):  # noqa: N818 - it is an answer
    """Data that a rule or a fact needs was not saved at this step.

    The step counts as not evaluated; changes to the memory are kept.

    Args:
        reason: What is missing, such as "no validation loss was saved".
        how_to_get_it: What users can change, such as "call model.eval() in validation".
    """

    def __init__(self, reason: str, how_to_get_it: str = "") -> None:
        super().__init__(f"{reason}: {how_to_get_it}" if how_to_get_it else reason)
        self.reason = reason
        self.how_to_get_it = how_to_get_it


class NotEnough(Missing):
    """There are too few steps, passes or elements to decide; a longer run would have enough.

    Until the rule decides for the first time, the step counts as not evaluated yet. Later, such
    steps are ignored.

    Args:
        needed: The number needed.
        noun: Noun for one of them, such as "label".
        had: The number so far.
        why: Why they are needed, or which do not count.
    """

    def __init__(self, needed: int, noun: str, had: int, why: str = "") -> None:
        super().__init__(f"needs {counted(needed, noun)}, had {had}", why)


@dataclass(frozen=True)
class NotApplicable(NotEvaluated):
    """The rule does not evaluate this step, for example because of its mode.

    Such steps are counted separately. Their reason is displayed only if there is no other.
    """


@dataclass(frozen=True)
class Failed:
    """The rule failed, and gets no further step of this run.

    Attributes:
        reason: What went wrong, such as `KeyError: 'loss' (my_rule.py, line 12: values["loss"])`.
    """

    reason: str


Outcome = Passed | IssueFound | NotEvaluated | Failed


def counted(number: int, noun: str) -> str:
    """Return a number with a noun: `1 step`, `2 steps`, `2 passes`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def shortened(text: str, length: int) -> str:
    """Return a text of at most `length` characters; three dots show that it was cut."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def status_details(rule_configuration_name: str, state: EvaluationState) -> str:
    """Return the text of `StatusDetails` for a state, at most 1,024 characters.

    A finding begins with the sentence of SageMaker Debugger, because scripts search for it. The
    evidence follows on its own line.
    """
    name = rule_configuration_name
    if state.evidence is not None:
        text = (
            f"RuleEvaluationConditionMet: Evaluation of the rule {name} at step "
            f"{state.evidence.step} resulted in the condition being met\n{state.evidence.line}"
        )
    elif state.has_evaluated_nothing:
        yet = " yet" if state.counts.is_undecided else ""
        text = f"{_INSUFFICIENT}Insufficient information to invoke rule {name}{yet}: {state.reason}"
    elif state.status is RuleStatus.ERROR:
        text = f"Evaluation of the rule {name} failed: {state.reason}"
    else:
        text = _progress(state.counts)
    return shortened(text, MAX_STATUS_DETAILS_LENGTH)


def _progress(counts: Counts) -> str:
    text = f"advice: {counts.advice}; " if counts.advice else ""
    text += f"{NOT_EVALUATED_YET}: {counts.lacking}; " if counts.is_undecided else ""
    text += f"{counted(counts.evaluated, 'step')} evaluated, {counts.not_evaluated} not evaluated"
    most = counts.most_frequent
    if most is not None:
        is_all = most.num_steps == counts.not_evaluated
        share = "" if is_all else f", {most.num_steps} of them"
        if most.mode not in ("", "GLOBAL"):  # runs with only one mode may not name it
            share = f"{', all' if is_all else share} of mode {most.mode},"
        text += f"{share} because {most.text}"
    if counts.not_applicable:
        text += f"; {counts.not_applicable} not applicable"
    if counts.unreadable:
        text += f"; {counted(counts.unreadable, 'file')} unreadable: {counts.last_problem}"
    if counts.missing:
        text += f"; {counted(counts.missing, 'expected step')} missing"
    if counts.given_up:
        text += f"; {counted(counts.given_up, 'worker')} given up: {counts.last_problem}"
    return text


def is_insufficient(details: str) -> bool:
    """Return whether `StatusDetails` report that a rule was not evaluated."""
    return details.startswith(_INSUFFICIENT)


def needs_more(details: str) -> bool:
    """Return whether `StatusDetails` report that a rule needs more steps or elements."""
    found = _API_PREFIX.match(details)
    return found is not None and found["yet"] is not None


def status_text(status: str, *, is_not_evaluated: bool, needs_more: bool) -> str:
    """Return the status to display; an Error can mean that the rule was not evaluated (yet)."""
    if not is_not_evaluated:
        return status
    return NOT_EVALUATED_YET if needs_more else NOT_EVALUATED


def without_api_prefix(details: str) -> str:
    """Return the last line of `StatusDetails` without the API's error name as prefix."""
    line = details.strip().rpartition("\n")[2]
    return _API_PREFIX.sub("", line)
