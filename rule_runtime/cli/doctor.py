"""The command `doctor`: checks an installation or a deployment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.text import Text

from hook_layer.storage.base import open_store
from rule_runtime.cli.options import OutputFormat, OutputOption, mistakes
from rule_runtime.cli.tables import Records
from rule_runtime.doctor.deployment import deployment_findings, place_findings
from rule_runtime.doctor.finding import Finding, Verdict
from rule_runtime.jobs.aws import Aws

__all__ = ["doctor"]

_PROBLEM = 1
_COLOURS = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.PROBLEM: "red"}


def doctor(
    path: Annotated[
        str | None,
        typer.Argument(
            help="Folder or URI that runs write to. A small object is written there and removed."
        ),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            help="Name of a deployed stack, such as Stepwatch-dev: checks what stops jobs, failed "
            "events, subscriptions and alarms."
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Check the installation, a bucket or a deployed stack, and say how to fix problems.

    Exit status 0: no problem; 1: a problem; 2: wrong usage.
    """
    with mistakes():
        findings = list(_findings(path, stack))
    if output is OutputFormat.JSON:
        typer.echo(json.dumps([asdict(each) for each in findings], indent=2))
    else:
        _print(findings)
    has_problem = any(each.verdict is Verdict.PROBLEM for each in findings)
    raise typer.Exit(_PROBLEM if has_problem else 0)


def _findings(path: str | None, stack: str | None) -> Iterator[Finding]:
    from rule_runtime.doctor.installation import (  # noqa: PLC0415 - loads the hook
        installation_findings,
        library_version,
    )

    yield from installation_findings()
    parts = urlsplit(path or "")
    if stack is not None:
        bucket = parts.netloc if parts.scheme == "s3" else ""
        yield from deployment_findings(Aws(), stack, library_version(), bucket)
    if path is not None:
        yield from place_findings(open_store(path))


def _print(findings: list[Finding]) -> None:
    table = Records("what", "", "found", "what to do", whole=("",))
    for each in findings:
        verdict = Text(each.verdict.value, style=_COLOURS[each.verdict])
        table.add_row(each.subject, verdict, each.told, each.remedy)
    Console().print(table)
