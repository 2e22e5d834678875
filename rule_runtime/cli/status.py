"""The command `status`: a job from its submission on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from hook_layer.format.paths import JOB_FILE, job_name_of
from rule_runtime.cli.destinations import printed_aside
from rule_runtime.cli.evaluation import exit_status_of_told
from rule_runtime.cli.options import OutputFormat, OutputOption, mistakes
from rule_runtime.cli.output import STATUS_COLOURS
from rule_runtime.cli.tables import Records, harmless
from rule_runtime.evaluation.outcome import NOT_EVALUATED, RuleStatus, is_insufficient
from rule_runtime.jobs.places import absolute_output_path

if TYPE_CHECKING:
    from rule_runtime.jobs import DebugJob

__all__ = ["status"]

_BELOW: Final = ("", "debug-output")
"""Where a run lies below the folder of its job."""
_NO_RUN: Final = (
    "the folder {0} holds no job.json, nor does its debug-output, so {0} was taken for the name of "
    "a job; "
)


_Job = Annotated[
    str, typer.Argument(help="Name of the training job, or folder or s3:// URI of its run.")
]


def status(  # noqa: PLR0917 - each is an option of the command
    job: _Job,
    output_path: Annotated[
        str | None,
        typer.Option(help="Where the job of a name writes. Default: what SageMaker says."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every rule has ended.")] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Tell where the rules' logs are.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Ask the job to stop first.")] = False,
    stage: Annotated[str, typer.Option(help="Stage of the deployment that judges it.")] = "dev",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Tell how a job and its rules stand.

    Exit status 0: no issue so far, 1: a rule found one, 2: a rule failed, none could judge, or
    nothing is known of the job.
    """
    with mistakes(), printed_aside(output):
        if output_path is None and _is_place(job):
            output_path = absolute_output_path(job)
            job = job_name_of(output_path)
        found = _known_job(job, output_path, stage)
        if stop:
            found.stop()
        if wait:
            # Progress goes where verdicts do not: those may be read by a program.
            found.wait_for_rules(out=lambda line: typer.echo(harmless(line), err=True))
        described = found.describe()
        urls = found.rule_log_urls() if logs else {}
        cut = found.cut_values() if output is OutputFormat.TABLE else ""
    rules: list[dict[str, Any]] = described["DebugRuleEvaluationStatuses"]
    if output is OutputFormat.JSON:
        told = {**described, "RuleLogUrls": urls} if logs else described
        typer.echo(json.dumps(told, indent=2, default=str))
    else:
        _print(job, described, rules, urls)
        if cut:
            typer.echo(harmless(cut))
    raise typer.Exit(exit_status_of_told({_told_status(rule) for rule in rules}))


def _known_job(job: str, output_path: str | None, stage: str) -> DebugJob:
    from rule_runtime.jobs import DebugJob  # noqa: PLC0415 - loads numpy

    is_folder = output_path is None and Path(job).is_dir()
    try:
        found = DebugJob(job, output_path, stage=stage)
        found.check_known()
    except (ValueError, OSError) as error:
        raise ValueError(f"{_NO_RUN.format(job) if is_folder else ''}{error}") from error
    return found


def _is_place(job: str) -> bool:
    """Tell whether a job is named by where its run is stored; a name has no slash in it."""
    return "/" in job or any((Path(job) / below / JOB_FILE).is_file() for below in _BELOW)


def _told_status(rule: dict[str, Any]) -> str:
    """Return the status; an Error of a rule that had nothing to judge is told as what it is."""
    details = rule.get("StatusDetails") or ""
    return NOT_EVALUATED if is_insufficient(details) else str(rule["RuleEvaluationStatus"])


def _print(
    job: str, described: dict[str, Any], rules: list[dict[str, Any]], urls: dict[str, str]
) -> None:
    console = Console()
    secondary = described.get("SecondaryStatus")
    told = described["TrainingJobStatus"]
    told += f", {secondary}" if secondary and secondary != told else ""
    reason = described.get("FailureReason")
    told += f": {reason}" if reason else ""
    console.print(Text(harmless(f"{job}: {told}"), style="bold"), soft_wrap=True)
    table = Records("rule", "status", "since", "details", whole=("status", "since"))
    for rule in rules:
        colour = STATUS_COLOURS.get(RuleStatus(rule["RuleEvaluationStatus"]), "")
        table.add_row(
            Text(rule["RuleConfigurationName"]),
            Text(_told_status(rule), style=colour),
            Text(f"{rule['LastModifiedTime']:%Y-%m-%d %H:%M:%S}"),
            Text((rule.get("StatusDetails") or "").strip().rpartition("\n")[2]),
        )
    console.print(table)
    for name, url in urls.items():
        line = harmless(f"{name}: {url}")
        console.print(line, markup=False, highlight=False, soft_wrap=True)
