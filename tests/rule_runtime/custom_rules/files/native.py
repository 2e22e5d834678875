"""A custom rule as ours are written."""

from __future__ import annotations

from typing import Annotated

from rule_runtime import Rule
from rule_runtime.engine.outcome import Evidence, IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory
from rule_runtime.trial.step_view import StepView


class QuietGradient(Rule):
    """Finds gradients that are small for several steps in a row."""

    threshold: Annotated[float, AtLeast(0)] = 1e-7
    patience: Annotated[int, AtLeast(1)] = 1
    names: tuple[str, ...] = ("^gradient",)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        rows = step.tensors(regex=self.names)
        if not len(rows):
            return NotEvaluated("no gradient was saved")
        smallest = float(rows.column("abs_mean").min())
        memory["quiet"] = memory.get("quiet", 0) + 1 if smallest < self.threshold else 0
        if memory["quiet"] < self.patience:
            return Passed()
        return IssueFound(
            Evidence(
                step=step.step,
                mode=step.mode.name,
                worker=rows.workers[0],
                tensor=rows.names[0],
                measure="abs_mean",
                value=smallest,
                threshold=self.threshold,
                sentence=f"{rows.names[0]}: quiet",
                remedy="wait",
            )
        )
