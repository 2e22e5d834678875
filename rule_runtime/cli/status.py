"""The command `status`: shows the state of a job and its rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from hook_layer.format.paths import JOB_FILE, job_name_of
from hook_layer.format.session_file import SESSION_FILE
from rule_runtime.cli.destinations import printed_aside
from rule_runtime.cli.evaluation import ExitStatus, exit_status_of_statuses
from rule_runtime.cli.options import OutputFormat, OutputOption, VerboseOption, mistakes
from rule_runtime.cli.output import STATUS_COLOURS
from rule_runtime.cli.tables import Records, harmless
from rule_runtime.engine.outcome import (
    STATUS_ORDER,
    RuleStatus,
    counted,
    is_insufficient,
    needs_more,
    status_text,
    without_api_prefix,
)
from rule_runtime.trial.sessions import folder_of_sessions, runs_at

if TYPE_CHECKING:
    from rule_runtime.jobs import DebugJob

__all__ = ["status"]

_STATUSES: Final = "DebugRuleEvaluationStatuses"
_BELOW: Final = ("", "debug-output")
"""Possible paths of a run in its job's folder."""
_NO_RUN: Final = (
    "neither the folder {0} nor its debug-output contains job.json, so {0} counts as the name of "
    "a job; "
)


_Job = Annotated[
    str,
    typer.Argument(help="Name of the training job, or folder or s3:// URI of its run or session."),
]


def status(  # noqa: PLR0917 - each is an option of the command
    job: _Job,
    output_path: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Output path of a job that is given by name. Default: ask SageMaker.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every rule has ended.")] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Show the URLs of the rules' logs.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Request a stop of the job first.")] = False,
    stage: Annotated[
        str, typer.Option(help="Stage of the deployment that evaluates the job.")
    ] = "dev",
    output: OutputOption = OutputFormat.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Show the state of a job and its rules, or of each run of a session.

    Exit status 0: no issue so far; 1: issue found; 2: a rule failed, no rule was evaluated, or the
    job is unknown.
    """
    with mistakes(), printed_aside(output):
        place = job if output_path is None else f"{output_path.rstrip('/')}/{job}"
        is_session = _is_session(place)
        runs = _runs(place) if output_path is None or is_session else []
        asked: list[tuple[str, str | None]] = [(job_name_of(path), path) for path in runs]
        asked = asked or [(job, output_path)]
        described = list[_Described]()
        for name, path in asked:
            try:
                known = _known_job(name, path, stage)
                described.append(_described(known, should_stop=stop, should_wait=wait, logs=logs))
            except (ValueError, OSError) as error:  # noqa: PERF203 - each turn reads files
                if not is_session:
                    raise
                typer.echo(f"stepwatch: {name}: {harmless(str(error))}", err=True)
    if output is OutputFormat.JSON:
        shown = [{**of, "RuleLogUrls": urls} if logs else of for of, urls, _ in described]
        typer.echo(json.dumps(shown if is_session else shown[0], indent=2, default=str))
    else:
        for of, urls, lines in described:
            _print(of["TrainingJobName"] if runs else job, of, urls, is_verbose=verbose)
            for line in filter(None, lines):
                typer.echo(harmless(line))
    exit_status = exit_status_of_statuses(
        {_displayed_status(rule) for of, _, _ in described for rule in of[_STATUSES]}
    )
    if len(described) < len(asked) and exit_status is ExitStatus.NO_ISSUE:
        exit_status = ExitStatus.NOT_JUDGED
    raise typer.Exit(exit_status)


class _Described(NamedTuple):
    """The state of a job, where its rules' logs are, and lines about its data."""

    job: dict[str, Any]
    log_urls: dict[str, str]
    lines: tuple[str, ...]


def _described(job: DebugJob, *, should_stop: bool, should_wait: bool, logs: bool) -> _Described:
    if should_stop:
        job.stop()
    if should_wait:
        # Progress goes to the other stream, because programs may read the verdicts.
        job.wait_for_rules(out=lambda line: typer.echo(harmless(line), err=True))
    urls = job.rule_log_urls() if logs else {}
    return _Described(job.describe(), urls, (job.coverage(), job.cut_values()))


def _is_session(job: str) -> bool:
    return (Path(job) / SESSION_FILE).is_file()


def _runs(job: str) -> list[str]:
    """Return the folders of the selected runs; empty if a job is given by name."""
    if not _is_place(job):
        return []
    from rule_runtime.jobs.job_files import absolute_output_path  # noqa: PLC0415 - loads numpy

    return [absolute_output_path(run.path) for run in runs_at(job)]


def _known_job(job: str, output_path: str | None, stage: str) -> DebugJob:
    from rule_runtime.jobs import DebugJob  # noqa: PLC0415 - loads numpy

    is_folder = output_path is None and Path(job).is_dir()
    if is_folder and (sessions := folder_of_sessions(job)):
        raise ValueError(sessions)
    try:
        found = DebugJob(job, output_path, stage=stage)
        found.check_known()
    except (ValueError, OSError) as error:
        raise ValueError(f"{_NO_RUN.format(job) if is_folder else ''}{error}") from error
    return found


def _is_place(job: str) -> bool:
    """Return whether the argument is a path of a run; job names have no slash."""
    return (
        "/" in job
        or _is_session(job)
        or any((Path(job) / below / JOB_FILE).is_file() for below in _BELOW)
    )


def _displayed_status(rule: dict[str, Any]) -> str:
    """Return the status to display; an Error can mean that the rule was not evaluated (yet)."""
    details = rule.get("StatusDetails") or ""
    return status_text(
        str(rule["RuleEvaluationStatus"]),
        is_not_evaluated=is_insufficient(details),
        needs_more=needs_more(details),
    )


def _is_silent(rule: dict[str, Any]) -> bool:
    """Return whether a rule was not evaluated, without a fault of the rule."""
    return is_insufficient(rule.get("StatusDetails") or "")


def _place(rule: dict[str, Any]) -> int:
    """Return the sort key of a rule: findings first, rules that were not evaluated last."""
    if _is_silent(rule):
        return len(STATUS_ORDER)
    return STATUS_ORDER.index(RuleStatus(rule["RuleEvaluationStatus"]))


def _print(job: str, described: dict[str, Any], urls: dict[str, str], *, is_verbose: bool) -> None:
    console = Console()
    secondary = described.get("SecondaryStatus")
    job_status = described["TrainingJobStatus"]
    job_status += f", {secondary}" if secondary and secondary != job_status else ""
    reason = described.get("FailureReason")
    job_status += f": {reason}" if reason else ""
    console.print(Text(harmless(f"{job}: {job_status}"), style="bold"), soft_wrap=True)
    if diagnosis := described.get("Diagnosis"):
        console.print(Text(harmless(diagnosis["Headline"]), style="bold red"), soft_wrap=True)
        console.print(Text(harmless(f"Change: {diagnosis['Change']}")), soft_wrap=True)
    rules = described[_STATUSES]
    silent = [rule for rule in rules if _is_silent(rule)]
    shown = rules if is_verbose else [rule for rule in rules if rule not in silent]
    table = Records("rule", "status", "since", "details", whole=("status", "since"))
    for rule in sorted(shown, key=_place):
        colour = STATUS_COLOURS.get(RuleStatus(rule["RuleEvaluationStatus"]), "")
        table.add_row(
            Text(rule["RuleConfigurationName"]),
            Text(_displayed_status(rule), style=colour),
            Text(f"{rule['LastModifiedTime']:%Y-%m-%d %H:%M:%S}"),
            Text(without_api_prefix(rule.get("StatusDetails") or "")),
        )
    console.print(table)
    if silent and not is_verbose:
        note = f"{counted(len(silent), 'rule')} not evaluated; `-v` shows why"
        console.print(note, markup=False, highlight=False)
    for name, url in urls.items():
        line = harmless(f"{name}: {url}")
        console.print(line, markup=False, highlight=False, soft_wrap=True)
