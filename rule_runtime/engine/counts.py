"""Counts the evaluated steps of a run, and the reasons for the others."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rule_runtime.engine.json_codec import JsonRecord
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import shortened

__all__ = ["MAX_REASONS", "MAX_TEXT", "Counts", "Reason"]

MAX_REASONS: Final = 6
"""Kinds of reasons that are kept; a further one replaces the least frequent, with its count."""

MAX_TEXT: Final = 400
"""Maximum length of a reason or advice in characters."""
_NUMBER: Final = re.compile(r"\d+")


class Reason(NamedTuple):
    """Why some steps of one mode were not evaluated.

    Attributes:
        text: The reason of the latest step; numbers in it can differ for earlier steps.
        mode: The mode of the steps; empty for steps that could not be shown to the rule.
    """

    text: str
    mode: str
    num_steps: int


@dataclass(frozen=True, kw_only=True)
class Counts(JsonRecord):
    """Counts of the steps of a run.

    Attributes:
        evaluated: Steps at which the rule decided.
        not_evaluated: Steps that it could not evaluate.
        not_applicable: Steps that it does not evaluate, such as those of another mode.
        last_reason: Why the last step was not evaluated; if all were, why the last one was not
            applicable.
        unreadable: Index files that could not be parsed.
        last_problem: Problem of the last of these, or the last worker that was given up.
        missing: Index files of an ended run that were never stored.
        failure: Why the rule gets no further step: it raised, or returned no outcome.
        given_up: Number of steps fed without waiting for a worker, counted per worker.
        reasons: Reasons for steps that were not evaluated, with their numbers.
        advice: The first advice of the rule; empty without one.
        begin: The lowest step in its mode with the rule's data; -1 before the first.
        ready: Steps with the rule's data after the training steps that it needs.
        lacking: What the rule needs and what it had, at the latest undecided step.
    """

    evaluated: int = 0
    not_evaluated: int = 0
    not_applicable: int = 0
    last_reason: str = ""
    unreadable: int = 0
    last_problem: str = ""
    missing: int = 0
    failure: str = ""
    given_up: int = 0
    reasons: tuple[Reason, ...] = ()
    advice: str = ""
    begin: int = -1
    ready: int = 0
    lacking: str = ""

    @property
    def is_undecided(self) -> bool:
        """True if the rule has its data, and has not decided yet."""
        return bool(self.lacking) and not self.evaluated

    @property
    def most_frequent(self) -> Reason | None:
        """The most frequent reason of steps that were not evaluated; of several, the latest."""
        return max(reversed(self.reasons), key=lambda each: each.num_steps, default=None)

    @property
    def main_reason(self) -> str:
        """Why most steps were not evaluated; if all were, why the last was not applicable."""
        most = self.most_frequent
        return self.last_reason if most is None else most.text

    def with_data(self, needs: Needs, step: int, *, reason: str, is_decision: bool) -> Counts:
        """Return the counts with one more step that has the rule's data.

        Args:
            needs: What the rule needs to decide.
            step: The step in its mode.
            reason: Why the rule could not decide; empty if it leaves that to its needs.
            is_decision: Whether the step is a decision whatever the rule needs.
        """
        begin = step if self.begin < 0 else min(self.begin, step)
        is_ready = step - begin >= needs.steps and not (reason and needs.validation_passes)
        counts = replace(self, begin=begin, ready=self.ready + is_ready)
        if not (reason or is_decision):
            reason = needs.unmet(counts.ready, step - begin)
        if reason:
            return replace(counts, lacking=shortened(reason, MAX_TEXT))
        return replace(counts, evaluated=self.evaluated + 1)

    def with_not_evaluated(self, reason: str, mode: str) -> Counts:
        """Return the counts with one more step that was not evaluated.

        Reasons that differ only in numbers are combined. Reasons of more than one in `MAX_REASONS`
        steps are always kept (space-saving counts, Metwally et al. 2005).
        """
        text = shortened(reason, MAX_TEXT)
        kind = _NUMBER.sub("", text), mode
        others = [each for each in self.reasons if (_NUMBER.sub("", each.text), each.mode) != kind]
        num_steps = sum(each.num_steps for each in self.reasons if each not in others)
        if len(others) >= MAX_REASONS:
            least = min(others, key=lambda each: each.num_steps)
            others.remove(least)
            num_steps = least.num_steps
        return replace(
            self,
            not_evaluated=self.not_evaluated + 1,
            last_reason=reason,
            reasons=(*others, Reason(text, mode, num_steps + 1)),
        )

    def with_not_applicable(self, reason: str) -> Counts:
        """Return the counts with one more step that was not applicable."""
        last = self.last_reason if self.not_evaluated else reason
        return replace(self, not_applicable=self.not_applicable + 1, last_reason=last)
