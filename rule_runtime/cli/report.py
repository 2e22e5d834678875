"""The command `report`: writes an HTML report about a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hook_layer.storage.base import open_store
from rule_runtime.cli.destinations import printed_aside
from rule_runtime.cli.options import (
    Bar,
    OutputFormat,
    OutputOption,
    PackOption,
    RuleOption,
    RunArgument,
    evaluated_or_stored,
    mistakes,
    newest_run,
    progress,
)
from rule_runtime.reporting.output_file import check_replaceable

if TYPE_CHECKING:
    from rule_runtime.reporting.html_report import HtmlReport
    from rule_runtime.reporting.job_verdicts import JobVerdict
    from rule_runtime.trial.shared_reads import SharedReads

__all__ = ["report"]


def report(  # noqa: PLR0917 - each is an option of the command
    path: RunArgument,
    rule: RuleOption = None,
    pack: PackOption = None,
    output: OutputOption = OutputFormat.TABLE,
    output_file: Annotated[
        str,
        typer.Option(
            "--output-file",
            "-f",
            metavar="FILE",
            help="File or s3:// URI of the page. A name that ends in .json gets the numbers only.",
        ),
    ] = "report.html",
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the output file also if it is no report."),
    ] = False,
) -> None:
    """Write an HTML report of a run: findings, losses, gradients, configuration.

    Without --rule and --pack, the report shows the stored verdicts in `rule-output/`, and evaluates
    the other rules that the run configures, otherwise the pack `recommended`. It prints the path of
    the page; with `--output json` also the verdicts. An earlier report is replaced, another file
    only with --overwrite.
    """
    with mistakes():
        if not overwrite:
            check_replaceable(output_file)
        path = newest_run(path)
        with printed_aside(output), progress() as bar:
            made = _made(path, rule, pack, bar)
        if not made.parts.reading.num_steps:
            raise ValueError(
                f"{path}: no saved step found; give the folder that the hook writes to"
            )
        written = made.save(output_file, overwrite=overwrite)
    if output is OutputFormat.JSON:
        verdicts = [verdict.to_json() for verdict in made.parts.verdicts]
        typer.echo(json.dumps({"report": written, "verdicts": verdicts}, indent=2))
    else:
        typer.echo(f"report: {written}")


def _made(path: str, rule: list[str] | None, pack: str | None, bar: Bar) -> HtmlReport:
    from rule_runtime.reporting import html_report  # noqa: PLC0415 - needs jinja2
    from rule_runtime.trial.shared_reads import SharedReads  # noqa: PLC0415 - loads numpy

    store = SharedReads(open_store(path))
    verdicts = _verdicts(store, rule, pack, bar)
    return html_report.report_of_store(
        store, verdicts, on_start=bar.begin, on_read=lambda key: bar.done(f"read {key}")
    )


def _verdicts(
    store: SharedReads, rule: list[str] | None, pack: str | None, bar: Bar
) -> Sequence[JobVerdict]:
    from rule_runtime.engine.stored_run import evaluate_stored_run  # noqa: PLC0415 - loads numpy
    from rule_runtime.live_page.run_rules import RunRules  # noqa: PLC0415 - loads all rules
    from rule_runtime.reporting.job_verdicts import (  # noqa: PLC0415 - as above
        stored_verdicts,
        verdicts_of,
    )
    from rule_runtime.reporting.run_reader import current_run_of  # noqa: PLC0415 - as above

    rules = evaluated_or_stored(store, rule, pack)
    chosen = rules.find() if isinstance(rules, RunRules) else rules
    states = (
        evaluate_stored_run(store, chosen, on_start=bar.begin, on_evaluated=bar.done)
        if chosen
        else {}
    )
    judged = verdicts_of(states)
    if not isinstance(rules, RunRules):
        return judged
    return rules.shown(judged, stored_verdicts(store.uri, current_run_of(store)))
