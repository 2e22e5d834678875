"""Exports findings to TensorBoard: a text, and a marker at the first step of each finding."""

from __future__ import annotations

from tensorboardX import SummaryWriter

from rule_runtime.exporting.run_findings import RunFindings

__all__ = ["export_run"]


def export_run(run: RunFindings) -> None:
    """Write the findings beside the script's scalars, or into `tensorboard/` of the session."""
    folder = run.logger_run.get("folder") or f"{run.folder.rstrip('/')}/tensorboard/{run.name}"
    step = run.findings[0].step if run.findings else 0
    with SummaryWriter(folder, filename_suffix=".stepwatch") as writer:
        writer.add_text("stepwatch/findings", run.markdown, step)
        for finding in run.findings:
            writer.add_scalar(f"stepwatch/{finding.rule}", 1, finding.step)
