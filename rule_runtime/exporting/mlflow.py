"""Exports findings to MLflow: tags with the cause and the change, and metrics."""

from __future__ import annotations

import mlflow

from rule_runtime.exporting.run_findings import RunFindings

__all__ = ["export_run"]


def export_run(run: RunFindings) -> None:
    """Add the findings to the script's run, or to a run named like the session."""
    if run.logger_run:  # by a client, because `start_run` would change the status of the run
        client = mlflow.MlflowClient(run.logger_run["tracking_uri"])
        _add(client, run.logger_run["id"], run)
    else:
        with mlflow.start_run(run_name=run.name) as started:
            _add(mlflow.MlflowClient(), started.info.run_id, run)


def _add(client: mlflow.MlflowClient, run_id: str, run: RunFindings) -> None:
    client.log_metric(run_id, "stepwatch/findings", len(run.findings))
    if run.findings:
        client.set_tag(run_id, "stepwatch.cause", run.headline)
        client.set_tag(run_id, "stepwatch.change", run.advice)
    for finding in run.findings:
        name = finding.rule.replace(":", "/")  # a custom rule's name has its file
        client.log_metric(run_id, f"stepwatch/{name}", 1, step=finding.step)
