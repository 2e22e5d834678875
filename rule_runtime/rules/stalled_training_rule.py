"""StalledTrainingRule: detects training runs that save nothing for a long time."""

from __future__ import annotations

from typing import Annotated

from rule_runtime.engine.evidence import ANY_MEASURE
from rule_runtime.engine.findings import what_to_try
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import IssueFound, Missing, NotEnough, Outcome, Passed
from rule_runtime.engine.rule import GreaterThan, Memory, Rule, Unit
from rule_runtime.trial.step_view import StepView

__all__ = ["StalledTrainingRule"]


class StalledTrainingRule(Rule):
    """Detects training runs that save nothing for longer than a given time.

    How it decides:
        The rule reports a gap of more than `threshold` seconds between two saved steps. While a run
        is silent, the time since the last output counts. The time before the first saved step does
        not.

    Parameters:
        threshold: Longest time without output that passes.
        check_gaps: False to ignore a stall after which the training continued.
        stop_training_on_fire: Accepted and ignored.
        training_job_name_prefix: Accepted and ignored.

    What to try:
        Find out where the training hangs: data loading, a checkpoint, or a rank that the others
        wait for. If it is only slow, save more often or raise threshold.
    """

    threshold: Annotated[int, GreaterThan(0), Unit("s")] = 1800
    check_gaps: bool = True
    stop_training_on_fire: bool = False
    training_job_name_prefix: str | None = None

    former_names = (("judge_gaps", "check_gaps"),)
    fatal_measures = (ANY_MEASURE,)

    def needs(self) -> Needs:
        """Return two steps, because the time between them counts."""
        return Needs(saved_steps=2)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the time since the previous step with the threshold.

        Memory: The latest `time` so far, and its `step`.
        """
        if step.time is None:
            raise Missing("the files of the step have no time", "use the hook of Stepwatch")
        previous = memory.get("step")
        gap = step.time - memory.get("time", step.time)
        if previous is None or gap > 0:  # a clock that was set back does not change the latest time
            memory.update(time=step.time, step=step.step)
        if previous is None:
            raise NotEnough(2, "saved step", 1)
        if gap <= self.threshold or not self.check_gaps:
            return Passed()
        return self._stalled(gap, f"after step {previous}", "; the training continued")

    def check_silence(self, seconds: float, step: int) -> Outcome:
        """Compare the time since the last output with the threshold."""
        if seconds <= self.threshold:
            return Passed()
        return self._stalled(seconds, f"after step {step}" if step >= 0 else "since the start")

    def _stalled(self, seconds: float, since: str, then: str = "") -> IssueFound:
        limit, measure, remedy = self.threshold, "seconds_without_output", what_to_try(self)
        text = f"nothing was saved for {seconds:.0f} s {since}, more than {limit} s{then}"
        return IssueFound(text, measure=measure, value=seconds, threshold=limit, remedy=remedy)
