"""StalledTrainingRule: a training that saves nothing for a long time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from rule_runtime.engine.outcome import Evidence, IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import GreaterThan, Memory, Rule, Unit

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["StalledTrainingRule"]

_REMEDY: Final = (
    "Look where the training hangs: data loading, a checkpoint, a worker that the others wait for; "
    "if it is only slow, save more often or raise threshold."
)


class StalledTrainingRule(Rule):
    """Finds a training that saves nothing for longer than a given time.

    How it decides:
        The hook writes into each index file when its step began, and the earliest of all workers
        counts. At each saved step that time is compared with the latest of the steps before;
        strictly more than `threshold` seconds fires. A clock that was set back is no gap. The clock
        starts with the first saved step, so the start of the job does not count; nor does what
        comes after the end of the training. With `judge_gaps` off such a gap passes: the training
        goes on, and there is no reason to stop it. A stall that goes on has no step yet: it is
        judged by whoever has a clock (`check_silence`), with the seconds since the last output. The
        first step is not evaluated, nor are the original client's files, which tell no time.
        `stop_training_on_fire` and `training_job_name_prefix` are accepted and change nothing: what
        happens after a finding is the matter of the actions and of the stop policy, which know the
        job by its name and not by a prefix.

    Parameters:
        threshold: Seconds without output that are no issue yet.
        judge_gaps: Whether a stall that is over, for a later step was saved, is an issue; False
            leaves those that go on.
        stop_training_on_fire: Not used; superseded by the action StopTraining.
        training_job_name_prefix: Not used; superseded likewise.

    What to try:
        A look at the log and at the workers' stacks; a shorter saving interval.
    """

    threshold: Annotated[int, GreaterThan(0), Unit("s")] = 1800
    judge_gaps: bool = True
    stop_training_on_fire: bool = False
    training_job_name_prefix: str | None = None

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the time since the step before with the threshold.

        Args:
            step: What was saved at the step.
            memory: The latest `time` so far, and its `step`.
        """
        time = step.time
        if time is None:
            return NotEvaluated("the files of the step do not tell when it began")
        before, number = memory.get("time"), memory.get("step")
        if before is None or time > before:
            memory.update(time=time, step=step.step)
        if before is None:
            return NotEvaluated("there is no step before to compare the time with")
        gap = time - before
        if gap <= self.threshold or not self.judge_gaps:
            return Passed()
        return IssueFound(
            Evidence(
                step=step.step,
                mode=step.mode.name,
                worker=min(step.workers),
                tensor="",
                measure="seconds_without_output",
                value=gap,
                threshold=float(self.threshold),
                sentence=(
                    f"nothing was saved for {gap:.0f} s behind step {number}, longer than "
                    f"{self.threshold} s; the training went on"
                ),
                remedy=_REMEDY,
            )
        )

    def check_silence(self, seconds: float, step: int) -> Outcome:
        """Compare the time since the last output with the threshold.

        Args:
            seconds: Seconds since the last output of a run that has not ended.
            step: Global step of that output, -1 if there was none yet.
        """
        if seconds <= self.threshold:
            return Passed()
        since = f"behind step {step}" if step >= 0 else "since the start"
        return IssueFound(
            Evidence(
                step=max(step, 0),
                mode="GLOBAL",
                worker="",
                tensor="",
                measure="seconds_without_output",
                value=float(seconds),
                threshold=float(self.threshold),
                sentence=(
                    f"nothing was saved for {seconds:.0f} s {since}, longer than {self.threshold} s"
                ),
                remedy=_REMEDY,
            )
        )
