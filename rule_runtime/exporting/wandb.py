"""Exports findings to W&B: an alert, a tag and values of the summary."""

from __future__ import annotations

from typing import Final

import wandb

from rule_runtime.exporting.run_findings import RunFindings

__all__ = ["export_run"]

_MAX_TITLE: Final = 63
"""Characters of an alert's title."""


def export_run(run: RunFindings) -> None:
    """Add the findings to the script's run, or to a run named like the session."""
    own = dict(run.logger_run)
    named = {**own, "resume": "allow"} if own else {"name": run.name, "job_type": "stepwatch"}
    settings = wandb.Settings(
        console="off",
        silent=True,
        x_disable_meta=True,
        x_disable_stats=True,
        disable_git=True,
        disable_code=True,
    )
    with wandb.init(**named, settings=settings) as target:
        target.summary["stepwatch/findings"] = len(run.findings)
        if run.findings:
            target.summary["stepwatch/cause"] = run.headline
            target.summary["stepwatch/change"] = run.advice
            for finding in run.findings:
                target.summary[f"stepwatch/first_step/{finding.rule}"] = finding.step
            target.tags = (*(target.tags or ()), "stepwatch-issue")
            title = f"Stepwatch: {run.headline.partition(':')[0]}"[:_MAX_TITLE]
            target.alert(title, f"{run.headline}. Change: {run.advice}", level="ERROR")
        target.finish(exit_code=int(run.has_failed))  # keeps the state of a run that failed
