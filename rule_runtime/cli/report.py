"""The command `report`: one page about a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hook_layer.storage.base import open_store
from rule_runtime.cli.evaluation import evaluate_run
from rule_runtime.cli.options import (
    ChosenRules,
    PackOption,
    RuleOption,
    RunArgument,
    mistakes,
    progress,
)

if TYPE_CHECKING:
    from rule_runtime.reporting.job_verdicts import JobVerdict

__all__ = ["report"]


def report(
    path: RunArgument,
    output: Annotated[
        str,
        typer.Option(help="File, or s3:// URI of one; its numbers if the name ends in .json."),
    ] = "report.html",
    rule: RuleOption = None,
    pack: PackOption = None,
) -> None:
    """Write a page about a run: what rules found, losses, gradients, how it was configured.

    Without --rule and --pack the verdicts are those in `rule-output/` beside the tensors, and where
    there are none, the run is judged by the pack `recommended`. No event file is read for the rest.
    """
    with mistakes():
        from rule_runtime.reporting import html_report  # noqa: PLC0415 - needs jinja2

        verdicts = _verdicts(path, rule, pack)
        made = html_report.job_report(path, verdicts)
        if not made.parts.reading.num_steps:
            raise ValueError(
                f"{path}: no step of a run is stored here; give the folder that the hook writes to"
            )
        written = made.save(output)
    typer.echo(f"report: {written}")


def _verdicts(path: str, rule: list[str] | None, pack: str | None) -> Sequence[JobVerdict]:
    from rule_runtime.reporting.job_verdicts import (  # noqa: PLC0415 - loads all rules
        stored_verdicts,
        verdicts_of,
    )
    from rule_runtime.reporting.run_reading import current_run_of  # noqa: PLC0415

    if not (rule or pack):
        store = open_store(path)
        stored = stored_verdicts(store.uri, current_run_of(store))
        if stored:
            return stored
    chosen = ChosenRules.of(rule, pack)
    with progress() as bar:
        bar.begin(len(chosen.all))
        return verdicts_of(evaluate_run(path, chosen.all, on_judged=bar.done))
